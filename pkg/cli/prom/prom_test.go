// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTokenStaysWithItsServer(t *testing.T) {
	got := ""
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	sent := ""
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(first.Close)
	token := filepath.Join(t.TempDir(), "token")
	expect.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	flags := Flags{URL: first.URL, TokenFile: token}
	_, err := Ask[model.Vector](expect.Must(flags.Client())(t).Query(t.Context(), "up", time.Now()))
	expect.That(t, err != nil, "Nothing is taken for an answer")
	expect.Same(t, "Unexpected tokens of the server, and of that which it redirects to", []string{"Bearer secret", ""}, []string{sent, got})
}

func TestPrometheusThatNeverAnswersIsGivenUp(t *testing.T) {
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(over) })
	flags := Flags{URL: silent.URL}
	_, err := Ask[model.Vector](expect.Must(flags.client(50*time.Millisecond))(t).Query(t.Context(), "up", time.Now()))
	expect.Says(t, err, "Client.Timeout exceeded")
}

func TestPrometheusDoesNotTellPasswords(t *testing.T) {
	for _, address := range []string{"http://ann:secret@host:port", "http://ann:secret@%"} {
		_, err := (&Flags{URL: address}).Client()
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret"), "Client() = %v, want an error without the password", err)
	}
}
