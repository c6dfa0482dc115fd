// SPDX-License-Identifier: Apache-2.0

// Package apiproxy is a reverse proxy between a manager and its API server that puts
// faults into the connection. The manager is the shipped binary and knows nothing of it.
package apiproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Interceptor deals with a write. It runs in the goroutine of the request and may take as
// long as it likes.
type Interceptor func(*Exchange)

// Proxy passes requests on and keeps a record of the writes among them.
type Proxy struct {
	target    *url.URL
	transport http.RoundTripper
	server    *httptest.Server
	pass      *httputil.ReverseProxy

	mu sync.Mutex
	// interceptors by namespace.
	interceptors map[string]Interceptor
	writes       []Write
	events       map[string]int
	gates        map[string]*gate
}

// Write is one write as it arrived, before anything was done to it.
type Write struct {
	Request
	At time.Time
}

// New starts a proxy for the API server of config. Who asks shows its own credentials.
func New(config *rest.Config) (*Proxy, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, err
	}
	// A manager that was killed leaves broken streams behind; they are no news.
	noNews := log.New(io.Discard, "", 0)
	p := &Proxy{
		target: target, transport: transport,
		pass: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: transport, FlushInterval: -1, ErrorLog: noNews,
		},
		interceptors: map[string]Interceptor{}, events: map[string]int{}, gates: map[string]*gate{},
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = noNews
	p.server.StartTLS()
	return p, nil
}

// Close stops the proxy, open streams included.
func (p *Proxy) Close() {
	p.ReleaseAll()
	p.server.CloseClientConnections()
	p.server.Close()
}

// URL is where managers find the proxy.
func (p *Proxy) URL() string { return p.server.URL }

// CA is what the proxy's certificate is verified by.
func (p *Proxy) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// Intercept shows the writes in a namespace to an interceptor; nil for none.
func (p *Proxy) Intercept(namespace string, i Interceptor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interceptors[namespace] = i
}

// Writes returns the writes in a namespace, in the order of their arrival.
func (p *Proxy) Writes(namespace string) []Write {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.writes), func(w Write) bool { return w.Namespace != namespace })
}

// Events returns the number of events written in a namespace.
func (p *Proxy) Events(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events[namespace]
}

// ask passes a request on and reads the whole answer.
func (p *Proxy) ask(r *http.Request) (code int, body []byte, err error) {
	r.RequestURI = ""
	r.URL.Scheme, r.URL.Host, r.Host = p.target.Scheme, p.target.Host, p.target.Host
	answer, err := p.transport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	var body []byte
	if r.Method != http.MethodGet {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	req := Classify(r, body)
	if req.IsEvent() {
		p.mu.Lock()
		p.events[req.Namespace]++
		p.mu.Unlock()
	}
	switch {
	case req.IsWrite():
		p.serveWrite(&Exchange{Request: req, proxy: p, w: w, r: r})
	case req.Verb == "list" || req.Verb == "watch" || req.Verb == "get":
		p.serveRead(w, r, req)
	default:
		p.pass.ServeHTTP(w, r)
	}
}

func (p *Proxy) serveWrite(e *Exchange) {
	p.mu.Lock()
	p.writes = append(p.writes, Write{Request: e.Request, At: time.Now()})
	intercept := p.interceptors[e.Namespace]
	p.mu.Unlock()
	if intercept == nil {
		intercept = (*Exchange).Pass
	}
	intercept(e)
}

// Exchange is one write, for an interceptor to deal with. It ends by Pass, Reply or Lose.
type Exchange struct {
	Request

	proxy *Proxy
	w     http.ResponseWriter
	r     *http.Request
}

// Forward sends the write to the API server, be the one who asked still there or not.
func (e *Exchange) Forward() error {
	_, _, err := e.proxy.ask(e.r.Clone(context.WithoutCancel(e.r.Context())))
	return err
}

// Pass forwards the write and answers with what comes back.
func (e *Exchange) Pass() { e.proxy.pass.ServeHTTP(e.w, e.r) }

// Reply answers with an error in the API server's place.
func (e *Exchange) Reply(err *apierrors.StatusError) { writeStatus(e.w, err) }

// Lose breaks the stream off, so that the one who asked does not know what became of it.
func (e *Exchange) Lose() {
	panic(http.ErrAbortHandler)
}

func writeStatus(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
