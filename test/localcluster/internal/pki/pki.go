// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates of one local cluster: one authority and a
// serving certificate per component.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity is long because Kueue looks 90 days ahead and would replace a
// certificate that ends before, and because a cluster may be left running.
const validity = 10 * 365 * 24 * time.Hour

// KeyPair is a certificate and its key, PEM encoded.
type KeyPair struct {
	Cert []byte
	Key  []byte
}

// Authority signs serving certificates.
type Authority struct {
	KeyPair
	cert *x509.Certificate
	key  *rsa.PrivateKey
}

// NewAuthority makes a self-signed authority. Its key is RSA in PKCS#1 and its
// certificate carries dnsName, because Kueue's certificate rotation accepts an
// authority only like that.
func NewAuthority(name, dnsName string) (*Authority, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	template := newTemplate(name, []string{dnsName})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("failed to sign authority %s: %w", name, err)
	}
	pair := KeyPair{Cert: encode("CERTIFICATE", der), Key: encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))}
	return ParseAuthority(pair)
}

// ParseAuthority reads an authority that NewAuthority made.
func ParseAuthority(pair KeyPair) (*Authority, error) {
	certBlock, _ := pem.Decode(pair.Cert)
	keyBlock, _ := pem.Decode(pair.Key)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("no PEM block in the authority's files")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS1PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &Authority{KeyPair: pair, cert: cert, key: key}, nil
}

// Serving makes a certificate for a server on loopback, valid for dnsNames too.
func (a *Authority) Serving(name string, dnsNames ...string) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	template := newTemplate(name, append([]string{"localhost"}, dnsNames...))
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return KeyPair{}, fmt.Errorf("failed to sign certificate %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(crypto.PrivateKey(key))
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}, nil
}

// NewSigningKey makes the key that the API server signs ServiceAccount tokens with.
func NewSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)), nil
}

func newTemplate(name string, dnsNames []string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: []string{"localcluster"}},
		DNSNames:     dnsNames,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(validity),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
