// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/pki"
)

const (
	tokenFile         = "certs/tokens.csv"
	signingKeyFile    = "certs/service-account.key"
	authorityCertFile = "certs/ca.crt"
	authorityKeyFile  = "certs/ca.key"
)

// people are the users besides the components.
var people = []user{{name: "admin", groups: []string{mastersGroup}}, {name: "user"}}

// user is one who authenticates by token.
type user struct {
	name   string
	groups []string
	token  string
}

// makeCredentials writes all certificates, tokens and kubeconfigs. They are made
// once: what runs already has read them.
func (c *Cluster) makeCredentials() error {
	if _, err := os.Stat(c.Kubeconfig()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	authority, err := pki.NewAuthority("localcluster", kueueCAName)
	if err != nil {
		return err
	}
	if err := c.writeCertificates(authority); err != nil {
		return err
	}
	users := c.users()
	if err := c.writeTokens(users); err != nil {
		return err
	}
	return c.writeKubeconfigs(users, authority.Cert)
}

func (c *Cluster) writeCertificates(authority *pki.Authority) error {
	signingKey, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	err = errors.Join(
		writeFile(c.path(authorityCertFile), authority.Cert),
		writeFile(c.path(authorityKeyFile), authority.Key),
		writeFile(c.path(signingKeyFile), signingKey))
	for _, comp := range components(Settings{Integration: External}) {
		if comp.serving {
			err = errors.Join(err, c.writeServing(authority, comp))
		}
	}
	return err
}

func (c *Cluster) writeServing(authority *pki.Authority, comp component) error {
	pair, err := authority.Serving(comp.name, comp.servingNames...)
	if err != nil {
		return err
	}
	if err := errors.Join(writeFile(c.certFile(comp.name), pair.Cert), writeFile(c.keyFile(comp.name), pair.Key)); err != nil {
		return err
	}
	if comp.name != trainer.name {
		return nil
	}
	// The directory that Trainer looks in is this one seen from below.
	below := filepath.Join(c.certDir(comp.name), trainerCertDir)
	return errors.Join(writeFile(filepath.Join(below, "tls.crt"), pair.Cert), writeFile(filepath.Join(below, "tls.key"), pair.Key))
}

// users are all people and all components that call the API server, kueue-trainer
// always: the API server reads them when it starts.
func (c *Cluster) users() []user {
	var users []user
	for _, person := range people {
		users = append(users, user{name: person.name, groups: person.groups, token: rand.Text()})
	}
	for _, comp := range components(Settings{Integration: External}) {
		if comp.groups != nil {
			users = append(users, user{name: comp.name, groups: comp.groups, token: rand.Text()})
		}
	}
	return users
}

func (c *Cluster) writeTokens(users []user) error {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	for _, u := range users {
		if err := w.Write([]string{u.token, u.name, u.name, strings.Join(u.groups, ",")}); err != nil {
			return err
		}
	}
	w.Flush()
	return errors.Join(w.Error(), writeFile(c.path(tokenFile), out.Bytes()))
}

// writeKubeconfigs writes one file for people, with a context each, and one per
// component. The file for people comes last: it says that all are there.
func (c *Cluster) writeKubeconfigs(users []user, authority []byte) error {
	forPeople := c.newKubeconfig(authority)
	for _, u := range users {
		if isPerson(u.name) {
			addUser(forPeople, u)
			continue
		}
		config := c.newKubeconfig(authority)
		addUser(config, u)
		config.CurrentContext = u.name
		if err := writeKubeconfig(config, c.componentKubeconfig(u.name)); err != nil {
			return err
		}
	}
	forPeople.CurrentContext = people[0].name
	return writeKubeconfig(forPeople, c.Kubeconfig())
}

func isPerson(name string) bool { return name == people[0].name || name == people[1].name }

func (c *Cluster) newKubeconfig(authority []byte) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["localcluster"] = &clientcmdapi.Cluster{Server: c.apiURL(), CertificateAuthorityData: authority}
	return config
}

func addUser(config *clientcmdapi.Config, u user) {
	config.AuthInfos[u.name] = &clientcmdapi.AuthInfo{Token: u.token}
	config.Contexts[u.name] = &clientcmdapi.Context{Cluster: "localcluster", AuthInfo: u.name}
}

func writeKubeconfig(config *clientcmdapi.Config, path string) error {
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(path, content)
}

// writeFile makes the directory too, and keeps the file to its owner: most hold keys.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
