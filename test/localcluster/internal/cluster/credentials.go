// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

const (
	tokenFile         = "certs/tokens.csv"
	signingKeyFile    = "certs/service-account.key"
	authorityCertFile = "certs/ca.crt"
	authorityKeyFile  = "certs/ca.key"
)

// people are the users besides the components.
var people = []user{{name: "admin", person: true, groups: []string{mastersGroup}}, {name: "user", person: true}}

// validity is long because Kueue looks 90 days ahead and would replace a
// certificate that ends before, and because a cluster may be left running.
const validity = 10 * 365 * 24 * time.Hour

// user is one who authenticates by token.
type user struct {
	name   string
	person bool
	groups []string
	token  string
}

// makeCredentials writes all certificates, tokens and kubeconfigs. They are made
// once: what runs already has read them.
func (c *Cluster) makeCredentials() error {
	if _, err := os.Stat(c.Kubeconfig()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Kueue's certificate rotation accepts an authority only with an RSA key, and with this name.
	authority, key, err := pkiutil.NewCertificateAuthority(c.certificate(kueueCAName))
	if err != nil {
		return err
	}
	if err := c.writeCertificates(authority, key); err != nil {
		return err
	}
	users := c.users()
	if err := c.writeTokens(users); err != nil {
		return err
	}
	return c.writeKubeconfigs(users, pkiutil.EncodeCertPEM(authority))
}

// certificate is one for a server on loopback, valid for dnsNames too.
func (c *Cluster) certificate(name string, dnsNames ...string) *pkiutil.CertConfig {
	return &pkiutil.CertConfig{
		Config: certutil.Config{
			CommonName: name, Organization: []string{"localcluster"}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			AltNames: certutil.AltNames{DNSNames: append(dnsNames, "localhost"), IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
		},
		NotAfter: time.Now().Add(validity),
	}
}

func (c *Cluster) writeCertificates(authority *x509.Certificate, key crypto.Signer) error {
	signingKey, err := pkiutil.GeneratePrivateKey(kubeadm.EncryptionAlgorithmRSA2048)
	if err != nil {
		return err
	}
	err = errors.Join(
		pkiutil.WriteCertAndKey(c.path("certs"), "ca", authority, key),
		pkiutil.WriteKey(c.path("certs"), "service-account", signingKey))
	for _, comp := range components(Settings{Integration: External}) {
		if comp.serving {
			err = errors.Join(err, c.writeServing(authority, key, comp))
		}
	}
	return err
}

func (c *Cluster) writeServing(authority *x509.Certificate, authorityKey crypto.Signer, comp component) error {
	config := c.certificate(comp.name, comp.servingNames...)
	config.EncryptionAlgorithm = kubeadm.EncryptionAlgorithmECDSAP256
	cert, key, err := pkiutil.NewCertAndKey(authority, authorityKey, config)
	if err != nil {
		return fmt.Errorf("%s: %w", comp.name, err)
	}
	err = pkiutil.WriteCertAndKey(c.certDir(comp.name), "tls", cert, key)
	if comp.name == trainer.name {
		// The directory that Trainer looks in is this one seen from below.
		err = errors.Join(err, pkiutil.WriteCertAndKey(filepath.Join(c.certDir(comp.name), trainerCertDir), "tls", cert, key))
	}
	return err
}

// users are all people and all components that call the API server, kueue-trainer
// always: the API server reads them when it starts.
func (c *Cluster) users() []user {
	users := slices.Clone(people)
	for _, comp := range components(Settings{Integration: External}) {
		if comp.groups != nil {
			users = append(users, user{name: comp.name, groups: comp.groups})
		}
	}
	for i := range users {
		users[i].token = rand.Text()
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
		if u.person {
			addUser(forPeople, u)
			continue
		}
		own := c.newKubeconfig(authority)
		addUser(own, u)
		if err := clientcmd.WriteToFile(*own, c.componentKubeconfig(u.name)); err != nil {
			return err
		}
	}
	forPeople.CurrentContext = people[0].name
	return clientcmd.WriteToFile(*forPeople, c.Kubeconfig())
}

func addUser(config *clientcmdapi.Config, u user) {
	config.AuthInfos[u.name] = &clientcmdapi.AuthInfo{Token: u.token}
	config.Contexts[u.name] = &clientcmdapi.Context{Cluster: "localcluster", AuthInfo: u.name}
	config.CurrentContext = u.name
}

func (c *Cluster) newKubeconfig(authority []byte) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["localcluster"] = &clientcmdapi.Cluster{Server: c.apiURL(), CertificateAuthorityData: authority}
	return config
}

// writeFile makes the directory too, and keeps the file to its owner: most hold keys.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
