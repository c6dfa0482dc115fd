// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

const podsPath = "/api/v1/pods"

// apiServer answers lists with "now", watches with the lines sent on events, and
// counts what it is told to write.
type apiServer struct {
	events chan string
	writes int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.writes++
		fmt.Fprint(w, "written")
		return
	}
	if r.URL.Query().Get("watch") == "" {
		fmt.Fprint(w, "now")
		return
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case line := <-s.events:
			fmt.Fprintln(w, line)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// start returns a proxy before an API server, and a client of it.
func start(t *testing.T) (*apiServer, *Proxy, *http.Client) {
	t.Helper()
	api := &apiServer{events: make(chan string)}
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := New(target, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(proxy.CA())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	t.Cleanup(client.CloseIdleConnections)
	return api, proxy, client
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// watch returns the lines of a watch; the channel closes when it breaks off.
func watch(t *testing.T, client *http.Client, url string) <-chan string {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

func TestHeldWatchBringsNothingUntilItIsReleased(t *testing.T) {
	api, proxy, client := start(t)
	lines := watch(t, client, proxy.URL()+podsPath+"?watch=true")
	api.events <- "first"
	if got := <-lines; got != "first" {
		t.Fatalf("got %q", got)
	}
	proxy.Hold("pods")
	api.events <- "second"
	select {
	case got := <-lines:
		t.Fatalf("%q came through", got)
	case <-time.After(100 * time.Millisecond):
	}
	proxy.Release("pods")
	if got := <-lines; got != "second" {
		t.Fatalf("got %q", got)
	}
}

func TestCutWatchHasToListAnew(t *testing.T) {
	_, proxy, client := start(t)
	lines := watch(t, client, proxy.URL()+podsPath+"?watch=true")
	proxy.Cut("pods")
	if line, open := <-lines; open {
		t.Fatalf("the stream goes on with %q", line)
	}
	time.AfterFunc(50*time.Millisecond, func() { proxy.Release("pods") })
	if code, _ := get(t, client, proxy.URL()+podsPath+"?watch=true&resourceVersion=5"); code != http.StatusGone {
		t.Errorf("the reconnect is answered with %d", code)
	}
	if _, body := get(t, client, proxy.URL()+podsPath); body != "now" {
		t.Errorf("the list is %q", body)
	}
}

func TestOldListIsServedUntilItIsReleased(t *testing.T) {
	_, proxy, client := start(t)
	proxy.ServeOld("pods", []byte("then"))
	if _, body := get(t, client, proxy.URL()+podsPath+"?resourceVersion=0"); body != "then" {
		t.Errorf("the list is %q", body)
	}
	if _, body := get(t, client, proxy.URL()+podsPath); body != "now" {
		t.Errorf("a list that must not be old is %q", body)
	}
	if code, _ := get(t, client, proxy.URL()+podsPath+"?watch=true&sendInitialEvents=true"); code != http.StatusBadRequest {
		t.Errorf("a streaming list is answered with %d", code)
	}
	proxy.Release("pods")
	if _, body := get(t, client, proxy.URL()+podsPath+"?resourceVersion=0"); body != "now" {
		t.Errorf("the list is %q", body)
	}
}

func TestLostResponseWasCommitted(t *testing.T) {
	api, proxy, client := start(t)
	proxy.Intercept("team", func(e *Exchange) bool {
		if _, err := e.Forward(); err != nil {
			t.Error(err)
		}
		e.Lose()
		return true
	})
	if resp, err := client.Post(proxy.URL()+"/api/v1/namespaces/team/pods", "", strings.NewReader("{}")); err == nil {
		_ = resp.Body.Close()
		t.Errorf("answered with %s", resp.Status)
	}
	if api.writes != 1 {
		t.Errorf("%d writes arrived", api.writes)
	}
	if got := len(proxy.Writes("team")); got != 1 {
		t.Errorf("%d writes are on record", got)
	}
}
