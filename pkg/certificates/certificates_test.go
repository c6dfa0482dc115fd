// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/cert-manager/cert-manager/pkg/util/pki"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// newAuthority returns a PEM certificate, and one for serving that it signed.
func newAuthority(t *testing.T, name string, notAfter time.Time) ([]byte, *tls.Certificate) {
	t.Helper()
	key := expect.Must(pki.GenerateECPrivateKey(256))(t)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter}
	data, ca, err := pki.SignCertificate(template, template, key.Public(), key)
	expect.NoError(t, err)
	leaf := &x509.Certificate{DNSNames: []string{"svc"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	_, signed, err := pki.SignCertificate(leaf, ca, key.Public(), key)
	expect.NoError(t, err)
	return data, &tls.Certificate{Leaf: signed}
}

func TestWithAuthority(t *testing.T) {
	now := time.Now()
	former, _ := newAuthority(t, "former", now.Add(time.Hour))
	current, _ := newAuthority(t, "current", now.Add(time.Hour))
	expired, _ := newAuthority(t, "expired", now.Add(-time.Minute))
	noCertificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")})
	cases := map[string]struct{ bundle, want []byte }{
		"nobody is trusted":                       {want: current},
		"it is trusted":                           {bundle: current, want: current},
		"a former one stays":                      {bundle: former, want: slices.Concat(former, current)},
		"both are trusted":                        {bundle: slices.Concat(former, current), want: slices.Concat(former, current)},
		"an expired one goes":                     {bundle: slices.Concat(expired, former), want: slices.Concat(former, current)},
		"a placeholder goes":                      {bundle: []byte("\n"), want: current},
		"what is no certificate goes":             {bundle: noCertificate, want: current},
		"what somebody added twice is there once": {bundle: slices.Concat(former, former), want: slices.Concat(former, current)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected bundle", string(tc.want), string(withAuthority(tc.bundle, current, now)))
		})
	}
}

func TestSignedBy(t *testing.T) {
	ca, signed := newAuthority(t, "ours", time.Now().Add(time.Hour))
	other, _ := newAuthority(t, "other", time.Now().Add(time.Hour))
	cases := map[string]struct {
		ca   []byte
		want bool
	}{
		"of the authority":           {ca: ca, want: true},
		"of another":                 {ca: other},
		"of an unreadable authority": {ca: []byte("none")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected signedBy", tc.want, signedBy(signed, tc.ca)) })
	}
}

// Nobody may know of a new authority yet, or be at the time when a certificate begins.
func TestANewCertificateSettles(t *testing.T) {
	now := time.Unix(10_000, 0)
	certificate := func(began, ends time.Duration) *tls.Certificate {
		return &tls.Certificate{Leaf: &x509.Certificate{NotBefore: now.Add(began), NotAfter: now.Add(ends)}}
	}
	good := certificate(-time.Hour, time.Hour)
	for name, tc := range map[string]struct {
		served, signed *tls.Certificate
		want           time.Duration
	}{
		"the first":                       {signed: certificate(0, time.Hour)},
		"the one that is served":          {served: good, signed: good},
		"beside a good one":               {served: good, signed: certificate(-10*time.Second, time.Hour), want: 50 * time.Second},
		"beside a good one, a minute on":  {served: good, signed: certificate(-time.Minute, time.Hour)},
		"beside one that is about to end": {served: certificate(-time.Hour, 30*time.Second), signed: certificate(0, time.Hour)},
	} {
		t.Run(name, func(t *testing.T) { expect.Same(t, "It waits", tc.want, settling(tc.served, tc.signed, now)) })
	}
}
