// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const podsPath = "/api/v1/pods"

// apiServer answers lists with "now", watches with the lines sent on events, and counts what it is told to write.
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

// scene is a proxy before an API server, and a client of it.
type scene struct {
	*Proxy

	t      *testing.T
	api    *apiServer
	client *http.Client
}

func start(t *testing.T) *scene {
	t.Helper()
	api := &apiServer{events: make(chan string)}
	server := httptest.NewTLSServer(api)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	proxy := expect.Must(New(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}))(t)
	t.Cleanup(proxy.Close)
	client := proxy.server.Client()
	// What waits for ever fails.
	client.Timeout = 10 * time.Second
	return &scene{proxy, t, api, client}
}

// ask returns the code of an answer, and its body until the test is over.
func (s *scene) ask(query string) (code int, body io.Reader) {
	s.t.Helper()
	resp, err := s.client.Get(s.URL() + podsPath + query)
	expect.NoError(s.t, err)
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp.StatusCode, resp.Body
}

func (s *scene) wantAnswer(query string, code int, want string) {
	s.t.Helper()
	answered, body := s.ask(query)
	said := expect.Must(io.ReadAll(body))(s.t)
	expect.That(s.t, answered == code && (want == "" || string(said) == want), "%q is answered with %d %q, want %d %q", query, answered, said, code, want)
}

// watch returns the lines of a watch; the channel closes when it breaks off.
func (s *scene) watch() <-chan string {
	s.t.Helper()
	_, body := s.ask("?watch=true")
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

func (s *scene) wantLine(lines <-chan string, want string) {
	s.t.Helper()
	got := <-lines
	expect.Need(s.t, got == want, "got %q, want %q", got, want)
}

func TestHeldWatchBringsNothingUntilItIsReleased(t *testing.T) {
	s := start(t)
	lines := s.watch()
	s.api.events <- "first"
	s.wantLine(lines, "first")
	s.Hold("pods")
	s.api.events <- "second"
	select {
	case got := <-lines:
		t.Fatalf("%q came through", got)
	case <-time.After(100 * time.Millisecond):
	}
	s.Release("pods")
	s.wantLine(lines, "second")
}

func TestCutWatchHasToListAnew(t *testing.T) {
	s := start(t)
	lines := s.watch()
	s.Cut("pods")
	line, open := <-lines
	expect.Need(t, !open, "the stream goes on with %q", line)
	time.AfterFunc(50*time.Millisecond, func() { s.Release("pods") })
	s.wantAnswer("?watch=true&resourceVersion=5", http.StatusGone, "")
	s.wantAnswer("", http.StatusOK, "now")
}

func TestOldListIsServedUntilItIsReleased(t *testing.T) {
	s := start(t)
	s.ServeOld("pods", []byte("then"))
	s.wantAnswer("?resourceVersion=0", http.StatusOK, "then")
	// A list that must not be old.
	s.wantAnswer("", http.StatusOK, "now")
	s.wantAnswer("?watch=true&sendInitialEvents=true", http.StatusBadRequest, "")
	s.Release("pods")
	s.wantAnswer("?resourceVersion=0", http.StatusOK, "now")
}

func TestLostResponseWasCommitted(t *testing.T) {
	s := start(t)
	s.Intercept("team", func(e *Exchange) {
		err := e.Forward()
		expect.That(t, err == nil, "%v", err)
		e.Lose()
	})
	if resp, err := s.client.Post(s.URL()+"/api/v1/namespaces/team/pods", "", strings.NewReader("{}")); err == nil {
		_ = resp.Body.Close()
		t.Errorf("answered with %s", resp.Status)
	}
	expect.That(t, s.api.writes == 1, "%d writes arrived", s.api.writes)
	expect.Same(t, "Unexpected number of writes on record", 1, len(s.Writes("team")))
}

func TestClassify(t *testing.T) {
	type row struct {
		method, url, body string
		want              Request
		isWrite           bool
	}
	expect.Rows(t, map[string]row{
		"a patch of a status": {
			"PATCH", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w/status?fieldManager=m", "",
			Request{Verb: "patch", Resource: "workloads.kueue.x-k8s.io", Subresource: "status", Namespace: "team", Name: "w"}, true,
		},
		"a create has its name from the body": {
			"POST", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads", `{"metadata":{"name":"w"}}`,
			Request{Verb: "create", Resource: "workloads.kueue.x-k8s.io", Namespace: "team", Name: "w"}, true,
		},
		"a dry run": {
			"POST", "/apis/batch/v1/namespaces/team/jobs?dryRun=All", "not JSON",
			Request{Verb: "create", Resource: "jobs.batch", Namespace: "team", DryRun: true}, false,
		},
		"a lease is no write": {
			"PUT", "/apis/coordination.k8s.io/v1/namespaces/system/leases/l", "",
			Request{Verb: "update", Resource: "leases.coordination.k8s.io", Namespace: "system", Name: "l"}, false,
		},
		"discovery": {"GET", "/apis/batch/v1", "", Request{}, false},
	}, func(t *testing.T, tc row) {
		got := Classify(httptest.NewRequest(tc.method, tc.url, strings.NewReader(tc.body)), []byte(tc.body))
		expect.Same(t, "unexpected request", tc.want, got)
		expect.Same(t, "Unexpected IsWrite", tc.isWrite, got.IsWrite())
	})
}
