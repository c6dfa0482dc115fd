// SPDX-License-Identifier: Apache-2.0

// Package apiproxy is a reverse proxy between a manager and its API server that puts
// faults into the connection. The manager is the shipped binary and knows nothing of it.
package apiproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// Interceptor deals with a write. It runs in the goroutine of the request and may take as long as it likes.
type Interceptor func(*Exchange)

// Proxy passes requests on and keeps a record of the writes among them.
type Proxy struct {
	server *httptest.Server
	pass   *httputil.ReverseProxy

	mu           sync.Mutex
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
		pass:         &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1, ErrorLog: noNews},
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
func (p *Proxy) ask(r *http.Request) (code int, body []byte) {
	answer := httptest.NewRecorder()
	p.pass.ServeHTTP(answer, r)
	return answer.Code, answer.Body.Bytes()
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
	if slices.Contains(events, req.Resource) && (req.Verb == "create" || req.Verb == "patch") {
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
	code, _ := e.proxy.ask(e.r.Clone(context.WithoutCancel(e.r.Context())))
	if code == http.StatusBadGateway {
		return errors.New("the API server did not answer")
	}
	return nil
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

// Request says what a request to the API server is about.
type Request struct {
	// Verb is the one that permissions use: get, list, watch, create, update, patch, delete, deletecollection.
	Verb string
	// Resource is the plural, with the API group behind a dot unless that is the core's:
	// "pods", "workloads.kueue.x-k8s.io".
	Resource    string
	Subresource string
	Namespace   string
	// Name is that of the object; for a create, the one that the body gives.
	Name   string
	DryRun bool
}

// events are the resources by which a manager tells people something.
var events = []string{"events", "events.events.k8s.io"}

// notWrites are resources that a manager posts to without changing what jobs do.
var notWrites = append([]string{
	"leases.coordination.k8s.io",
	"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io",
}, events...)

// IsWrite reports whether the request is made to change an object.
func (r Request) IsWrite() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) &&
		!r.DryRun && !slices.Contains(notWrites, r.Resource)
}

var paths = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// Classify reads a request's path and query, and the name from the body of a create.
// A path that is not a resource's gives a Request without Resource.
func Classify(r *http.Request, body []byte) Request {
	info, err := paths.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return Request{}
	}
	req := Request{
		Verb: info.Verb, Resource: schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}.String(), Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name, DryRun: r.URL.Query().Has("dryRun"),
	}
	if req.Verb == "create" && req.Name == "" {
		var obj metav1.PartialObjectMetadata
		// Other encodings than JSON keep their names.
		_ = json.Unmarshal(body, &obj)
		req.Name = obj.Name
	}
	return req
}
