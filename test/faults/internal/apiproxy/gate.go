// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gate is what stands between a manager and its view of one resource.
type gate struct {
	mu sync.Mutex
	// shut is open while streams are held back; nil when they flow.
	shut chan struct{}
	// isCut makes new requests wait, too.
	isCut bool
	// expired is the number of reconnects that are still to be told to list again.
	expired int
	// old is a list of before, served to whoever lists now.
	old []byte
	// streams are the watches that are open, by what ends them.
	streams map[*http.Request]context.CancelFunc
	// last is the request for the latest watch.
	last *http.Request
}

func (p *Proxy) gate(resource string) *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gates[resource] == nil {
		p.gates[resource] = &gate{streams: map[*http.Request]context.CancelFunc{}}
	}
	return p.gates[resource]
}

// Watched reports whether a manager watches a resource through this proxy.
func (p *Proxy) Watched(resource string) bool {
	g := p.gate(resource)
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.streams) > 0
}

// Hold keeps back what the watches of a resource bring; where nobody watches it, the
// answers to reads of its single objects.
func (p *Proxy) Hold(resource string) {
	g := p.gate(resource)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close()
}

// Cut breaks the watches of a resource off and lets nobody see it until Release; who
// then wants to go on where it was is told to list again.
func (p *Proxy) Cut(resource string) {
	g := p.gate(resource)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close()
	g.isCut, g.expired = true, len(g.streams)
	for _, end := range g.streams {
		end()
	}
}

// ServeOld answers lists of a resource that may be old with one of before, and holds
// back what happened since, until Release.
func (p *Proxy) ServeOld(resource string, list []byte) {
	g := p.gate(resource)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close()
	g.old = list
}

// Release lets everything of a resource flow again.
func (p *Proxy) Release(resource string) {
	g := p.gate(resource)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
	}
	g.shut, g.isCut, g.old = nil, false, nil
}

// ReleaseAll lets everything flow again.
func (p *Proxy) ReleaseAll() {
	p.mu.Lock()
	var resources []string
	for resource := range p.gates {
		resources = append(resources, resource)
	}
	p.mu.Unlock()
	for _, resource := range resources {
		p.Release(resource)
	}
}

// List returns the list that a manager which watches a resource would get now, as JSON.
func (p *Proxy) List(ctx context.Context, resource string) ([]byte, error) {
	g := p.gate(resource)
	g.mu.Lock()
	last := g.last
	g.mu.Unlock()
	if last == nil {
		return nil, fmt.Errorf("nobody watches %s", resource)
	}
	query := url.Values{}
	for _, selector := range []string{"labelSelector", "fieldSelector"} {
		if value := last.URL.Query().Get(selector); value != "" {
			query.Set(selector, value)
		}
	}
	list := p.target.JoinPath(last.URL.Path)
	list.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, list.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", last.Header.Get("Authorization"))
	req.Header.Set("Accept", "application/json")
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("listing %s: %s", resource, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// close shuts the gate. The caller holds the lock.
func (g *gate) close() {
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// wait blocks while the gate is shut. It gives false when ctx ended first.
func (g *gate) wait(ctx context.Context) bool {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return true
	}
	select {
	case <-shut:
		return true
	case <-ctx.Done():
		return false
	}
}

// serveRead answers reads as the gate of their resource says.
func (p *Proxy) serveRead(w http.ResponseWriter, r *http.Request, req Request) {
	g := p.gate(req.Resource)
	g.mu.Lock()
	old, late := g.old, g.isCut || (req.Verb == "get" && len(g.streams) == 0)
	g.mu.Unlock()
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	switch {
	// Resource version 0 takes any state that there ever was; without one, the API
	// server owes the present.
	case old != nil && req.Verb == "list" && r.URL.Query().Get("resourceVersion") == "0":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(old)
		return
	case old != nil && initial:
		// The client falls back to a list.
		writeStatus(w, metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: "no streaming lists here"})
		return
	case late && !g.wait(r.Context()):
		return
	case req.Verb == "watch" && !initial && g.takeExpired():
		writeStatus(w, metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
		return
	}
	if req.Verb != "watch" {
		p.pass.ServeHTTP(w, r)
		return
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	r = r.WithContext(context.WithValue(ctx, gateKey{}, g))
	g.opened(r, end)
	defer g.closed(r)
	p.pass.ServeHTTP(w, r)
}

func (g *gate) takeExpired() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.expired == 0 {
		return false
	}
	g.expired--
	return true
}

func (g *gate) opened(r *http.Request, end context.CancelFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams[r], g.last = end, r
}

func (g *gate) closed(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.streams, r)
}

type gateKey struct{}

// gateBody makes a watch's stream pass its gate.
func (p *Proxy) gateBody(response *http.Response) error {
	ctx := response.Request.Context()
	if g, ok := ctx.Value(gateKey{}).(*gate); ok {
		response.Body = &gatedBody{ReadCloser: response.Body, gate: g, ctx: ctx}
	}
	return nil
}

// gatedBody is a stream whose data waits for the gate after it has arrived: nothing
// that comes while the gate is shut gets through.
type gatedBody struct {
	io.ReadCloser
	gate *gate
	ctx  context.Context
}

// Read implements io.Reader.
func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.gate.wait(b.ctx) {
		return 0, b.ctx.Err()
	}
	return n, err
}
