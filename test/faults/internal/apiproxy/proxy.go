// SPDX-License-Identifier: Apache-2.0

// Package apiproxy is a reverse proxy between a manager and its API server that puts
// faults into the connection. The manager is the shipped binary and knows nothing of it.
package apiproxy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Interceptor may take a write over; it says whether it did. It runs in the goroutine
// of the request and may take as long as it likes.
type Interceptor func(*Exchange) bool

// Proxy passes requests on and keeps a record of the writes among them.
type Proxy struct {
	target    *url.URL
	transport *http.Transport
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

// New starts a proxy for the API server at target, whose certificate ca has signed.
func New(target *url.URL, ca []byte) (*Proxy, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in the authority of %s", target)
	}
	p := &Proxy{
		target:    target,
		transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true},
		gates:     map[string]*gate{},
		events:    map[string]int{},

		interceptors: map[string]Interceptor{},
	}
	p.pass = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      p.transport,
		FlushInterval:  -1,
		ModifyResponse: p.gateBody,
		// A manager that was killed leaves broken streams behind; they are no news.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = p.pass.ErrorLog
	p.server.StartTLS()
	return p, nil
}

// Close stops the proxy, open streams included.
func (p *Proxy) Close() {
	p.ReleaseAll()
	p.server.CloseClientConnections()
	p.server.Close()
	p.transport.CloseIdleConnections()
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
	var out []Write
	for _, w := range p.writes {
		if w.Namespace == namespace {
			out = append(out, w)
		}
	}
	return out
}

// Events returns the number of events written in a namespace.
func (p *Proxy) Events(namespace string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.events[namespace]
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
	switch {
	case req.IsWrite():
		p.serveWrite(&Exchange{Request: req, proxy: p, w: w, r: r, body: body})
	case req.Verb == "list" || req.Verb == "watch" || req.Verb == "get":
		p.serveRead(w, r, req)
	default:
		p.countEvent(req)
		p.pass.ServeHTTP(w, r)
	}
}

func (p *Proxy) countEvent(req Request) {
	if req.IsEvent() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.events[req.Namespace]++
	}
}

func (p *Proxy) serveWrite(e *Exchange) {
	p.mu.Lock()
	p.writes = append(p.writes, Write{Request: e.Request, At: time.Now()})
	intercept := p.interceptors[e.Namespace]
	p.mu.Unlock()
	if intercept != nil && intercept(e) {
		return
	}
	p.pass.ServeHTTP(e.w, e.r)
}
