// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// gate is what stands between a manager and its view of one resource. The proxy's lock guards it.
type gate struct {
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
	last    *http.Request
}

func (p *Proxy) at(resource string, do func(*gate)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.gates[resource]
	if g == nil {
		g = &gate{streams: map[*http.Request]context.CancelFunc{}}
		p.gates[resource] = g
	}
	do(g)
}

// Watched reports whether a manager watches a resource through this proxy.
func (p *Proxy) Watched(resource string) (watched bool) {
	p.at(resource, func(g *gate) { watched = len(g.streams) > 0 })
	return watched
}

// Hold keeps back what the watches of a resource bring; where nobody watches it, the
// answers to reads of its single objects.
func (p *Proxy) Hold(resource string) { p.at(resource, (*gate).close) }

// Cut breaks the watches of a resource off and lets nobody see it until Release; who
// then wants to go on where it was is told to list again.
func (p *Proxy) Cut(resource string) {
	p.at(resource, func(g *gate) {
		g.close()
		g.isCut, g.expired = true, len(g.streams)
		for _, end := range g.streams {
			end()
		}
	})
}

// ServeOld answers lists of a resource that may be old with one of before, and holds
// back what happened since, until Release.
func (p *Proxy) ServeOld(resource string, list []byte) {
	p.at(resource, func(g *gate) {
		g.close()
		g.old = list
	})
}

// Release lets everything of a resource flow again.
func (p *Proxy) Release(resource string) { p.at(resource, (*gate).open) }

// ReleaseAll lets everything flow again.
func (p *Proxy) ReleaseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.gates {
		g.open()
	}
}

func (g *gate) close() {
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	if g.shut != nil {
		close(g.shut)
	}
	g.shut, g.isCut, g.old = nil, false, nil
}

// pastGate blocks while the gate of a resource is shut. It fails when ctx ends first.
func (p *Proxy) pastGate(ctx context.Context, resource string) error {
	var shut chan struct{}
	p.at(resource, func(g *gate) { shut = g.shut })
	if shut == nil {
		return nil
	}
	select {
	case <-shut:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// List returns the list that a manager which watches a resource would get now, as JSON.
func (p *Proxy) List(ctx context.Context, resource string) ([]byte, error) {
	var last *http.Request
	p.at(resource, func(g *gate) { last = g.last })
	if last == nil {
		return nil, fmt.Errorf("nobody watches %s", resource)
	}
	list := last.Clone(ctx)
	list.Header.Set("Accept", "application/json")
	query := list.URL.Query()
	list.URL.RawQuery = url.Values{"labelSelector": query["labelSelector"], "fieldSelector": query["fieldSelector"]}.Encode()
	code, body := p.ask(list)
	if code != http.StatusOK {
		return nil, fmt.Errorf("listing %s: %d %s", resource, code, body)
	}
	return body, nil
}

func (p *Proxy) serveRead(w http.ResponseWriter, r *http.Request, req Request) {
	var old []byte
	late := false
	p.at(req.Resource, func(g *gate) { old, late = g.old, g.isCut || (req.Verb == "get" && len(g.streams) == 0) })
	query := r.URL.Query()
	initial := query.Get("sendInitialEvents") == "true"
	switch {
	// Resource version 0 takes any state that there ever was; without one, the API server owes the present.
	case old != nil && req.Verb == "list" && query.Get("resourceVersion") == "0":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(old)
	case old != nil && initial:
		// The client falls back to a list.
		writeStatus(w, apierrors.NewBadRequest("no streaming lists here"))
	case late && p.pastGate(r.Context(), req.Resource) != nil:
		// Nobody waits for the answer any more.
	case req.Verb == "watch" && !initial && p.takeExpired(req.Resource):
		writeStatus(w, apierrors.NewResourceExpired("too old resource version"))
	case req.Verb == "watch":
		p.serveWatch(w, r, req.Resource)
	default:
		p.pass.ServeHTTP(w, r)
	}
}

func (p *Proxy) takeExpired(resource string) (expired bool) {
	p.at(resource, func(g *gate) { expired, g.expired = g.expired > 0, max(0, g.expired-1) })
	return expired
}

func (p *Proxy) serveWatch(w http.ResponseWriter, r *http.Request, resource string) {
	ctx, end := context.WithCancel(r.Context())
	defer end()
	r = r.WithContext(ctx)
	p.at(resource, func(g *gate) { g.streams[r], g.last = end, r })
	defer p.at(resource, func(g *gate) { delete(g.streams, r) })
	past := func() error { return p.pastGate(ctx, resource) }
	p.pass.ServeHTTP(&gatedWriter{w, past}, r)
}

// gatedWriter takes a stream whose data waits for the gate after it has arrived: nothing
// that comes while the gate is shut gets through.
type gatedWriter struct {
	http.ResponseWriter

	pastGate func() error
}

// Write implements io.Writer.
func (w *gatedWriter) Write(data []byte) (int, error) {
	if err := w.pastGate(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(data)
}

// Unwrap lets the stream be flushed.
func (w *gatedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
