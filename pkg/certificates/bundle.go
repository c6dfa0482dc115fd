// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"time"
)

// withAuthority returns a bundle of PEM blocks that has ca, and none that is no certificate or
// has expired. Former authorities stay until they expire: other replicas may serve by them.
func withAuthority(bundle, ca []byte, now time.Time) []byte {
	var out []byte
	seen := map[string]bool{}
	for _, block := range append(blocks(bundle), blocks(ca)...) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(certificate.NotAfter) || seen[string(block.Bytes)] {
			continue
		}
		seen[string(block.Bytes)] = true
		out = append(out, pem.EncodeToMemory(block)...)
	}
	return out
}

func blocks(data []byte) []*pem.Block {
	var out []*pem.Block
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, &pem.Block{Type: block.Type, Bytes: block.Bytes})
	}
	return out
}

// signedBy reports whether a serving certificate is of an authority.
func signedBy(serving *tls.Certificate, ca []byte) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	_, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: roots})
	return err == nil
}
