// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/csv"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
)

const (
	tokenFile         = "certs/tokens.csv"
	signingKeyFile    = "certs/service-account.key"
	authorityCertFile = "certs/ca.crt"
	authorityKeyFile  = "certs/ca.key"
)

// validity is long: Kueue would replace a certificate that ends within 90 days, and a cluster may be left running.
const validity = 10 * 365 * 24 * time.Hour

// makeCredentials writes all certificates, tokens and kubeconfigs. They are made once: what runs already has read them.
func (c *Cluster) makeCredentials() {
	if _, err := os.Stat(c.Kubeconfig()); !errors.Is(err, fs.ErrNotExist) {
		attempt.Succeed(err)
		return
	}
	// Kueue's certificate rotation accepts an authority only with an RSA key, and with this name.
	authority, key, err := pkiutil.NewCertificateAuthority(certificate(kueueCAName))
	attempt.Succeed(err)
	c.writeCertificates(authority, key)
	c.writeUsers(pkiutil.EncodeCertPEM(authority))
}

// certificate is one for a server on loopback, valid for dnsNames too.
func certificate(name string, dnsNames ...string) *pkiutil.CertConfig {
	return &pkiutil.CertConfig{
		Config: certutil.Config{
			CommonName: name, Organization: []string{"localcluster"}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			AltNames: certutil.AltNames{DNSNames: append(dnsNames, "localhost"), IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
		},
		NotAfter: time.Now().Add(validity),
	}
}

func (c *Cluster) writeCertificates(authority *x509.Certificate, authorityKey crypto.Signer) {
	attempt.Succeed(pkiutil.WriteCertAndKey(c.path("certs"), "ca", authority, authorityKey))
	signingKey := attempt.Must(pkiutil.GeneratePrivateKey(kubeadm.EncryptionAlgorithmRSA2048))
	attempt.Succeed(pkiutil.WriteKey(c.path("certs"), "service-account", signingKey))
	for _, comp := range components(Settings{Integration: External}) {
		config := certificate(comp.name, comp.servingNames...)
		config.EncryptionAlgorithm = kubeadm.EncryptionAlgorithmECDSAP256
		cert, key, err := pkiutil.NewCertAndKey(authority, authorityKey, config)
		attempt.Succeed(err, "%s", comp.name)
		// The second is where controller-runtime looks below $TMPDIR, and Trainer knows no other place.
		for _, dir := range []string{c.certDir(comp.name), filepath.Join(c.certDir(comp.name), "k8s-webhook-server", "serving-certs")} {
			attempt.Succeed(pkiutil.WriteCertAndKey(dir, "tls", cert, key))
		}
	}
}

// writeUsers writes who authenticates by which token, one kubeconfig for people, with a context each, and one per
// component, kueue-trainer always: the API server reads the tokens when it starts. The file for people comes last: it
// says that all are there.
func (c *Cluster) writeUsers(authority []byte) {
	var users [][]string
	server := &clientcmdapi.Cluster{Server: "https://" + c.address("kube-apiserver", "secure"), CertificateAuthorityData: authority}
	add := func(config *clientcmdapi.Config, name string, groups ...string) {
		token := rand.Text()
		users = append(users, []string{token, name, name, strings.Join(groups, ",")})
		config.Clusters["localcluster"] = server
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: "localcluster", AuthInfo: name}
		config.CurrentContext = name
	}
	people := clientcmdapi.NewConfig()
	add(people, "user")
	add(people, "admin", mastersGroup)
	for _, comp := range components(Settings{Integration: External}) {
		own := clientcmdapi.NewConfig()
		add(own, comp.name, comp.groups...)
		attempt.Succeed(clientcmd.WriteToFile(*own, c.componentKubeconfig(comp.name)))
	}
	var tokens bytes.Buffer
	attempt.Succeed(csv.NewWriter(&tokens).WriteAll(users))
	writeFile(c.path(tokenFile), tokens.Bytes())
	attempt.Succeed(clientcmd.WriteToFile(*people, c.Kubeconfig()))
}

// writeFile makes the directory too, and keeps the file to its owner: most hold keys.
func writeFile(path string, content []byte) {
	attempt.Succeed(os.MkdirAll(filepath.Dir(path), 0o755))
	attempt.Succeed(os.WriteFile(path, content, 0o600))
}
