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
	expect.Rows(t, map[string]expect.Row[[]byte, []byte]{
		"nobody is trusted":                       {Want: current},
		"it is trusted":                           {In: current, Want: current},
		"a former one stays":                      {In: former, Want: slices.Concat(former, current)},
		"both are trusted":                        {In: slices.Concat(former, current), Want: slices.Concat(former, current)},
		"an expired one goes":                     {In: slices.Concat(expired, former), Want: slices.Concat(former, current)},
		"a placeholder goes":                      {In: []byte("\n"), Want: current},
		"what is no certificate goes":             {In: noCertificate, Want: current},
		"what somebody added twice is there once": {In: slices.Concat(former, former), Want: slices.Concat(former, current)},
	}, func(t *testing.T, tc expect.Row[[]byte, []byte]) {
		expect.Same(t, "Unexpected bundle", string(tc.Want), string(withAuthority(tc.In, current, now)))
	})
}

func TestSignedBy(t *testing.T) {
	ca, signed := newAuthority(t, "ours", time.Now().Add(time.Hour))
	other, _ := newAuthority(t, "other", time.Now().Add(time.Hour))
	expect.Answers(t, func(in []byte) bool { return signedBy(signed, in) }, map[string]expect.Row[[]byte, bool]{
		"of the authority":           {In: ca, Want: true},
		"of another":                 {In: other},
		"of an unreadable authority": {In: []byte("none")},
	})
}

// Nobody may know of a new authority yet, or be at the time when a certificate begins.
func TestANewCertificateSettles(t *testing.T) {
	now := time.Unix(10_000, 0)
	certificate := func(began, ends time.Duration) *tls.Certificate {
		return &tls.Certificate{Leaf: &x509.Certificate{NotBefore: now.Add(began), NotAfter: now.Add(ends)}}
	}
	good := certificate(-time.Hour, time.Hour)
	type row struct {
		served, signed *tls.Certificate
		untrusted      bool
		want           time.Duration
	}
	expect.Rows(t, map[string]row{
		"the first":                       {signed: certificate(0, time.Hour)},
		"the one that is served":          {served: good, signed: good},
		"beside a good one":               {served: good, signed: certificate(-10*time.Second, time.Hour), want: 50 * time.Second},
		"beside a good one, a minute on":  {served: good, signed: certificate(-time.Minute, time.Hour)},
		"beside one that nobody trusts":   {served: good, signed: certificate(0, time.Hour), untrusted: true},
		"beside one that is about to end": {served: certificate(-time.Hour, 30*time.Second), signed: certificate(0, time.Hour)},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "It waits", tc.want, settling(tc.served, tc.signed, !tc.untrusted, now))
	})
}
