// SPDX-License-Identifier: Apache-2.0

// Package audit counts API requests from the audit log of the local control plane.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// Outcome says what became of a request.
type Outcome string

// The outcomes.
const (
	// Done is what was asked for.
	Done Outcome = "done"
	// NoChange is a write after which the object is the same; it is only told where the log
	// holds bodies.
	NoChange Outcome = "no change"
	// Missing is 404 for a read.
	Missing Outcome = "not found"
	// Conflict is 409, or a JSON patch whose test failed.
	Conflict Outcome = "conflict"
	// Refused is any other error.
	Refused Outcome = "refused"
)

// Request is a kind of request.
type Request struct {
	// User is the component that asked.
	User string `json:"user"`
	Verb string `json:"verb"`
	// Resource with its subresource, such as workloads/status.
	Resource string  `json:"resource"`
	DryRun   bool    `json:"dryRun,omitempty"`
	Outcome  Outcome `json:"outcome"`
}

// Write reports whether the request is meant to change something that is stored.
func (r Request) Write() bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
}

// Counts are numbers of requests.
type Counts map[Request]int

// event is what we need of audit.k8s.io/v1 Event.
type event struct {
	Verb           string
	RequestURI     string
	User           struct{ Username string }
	ObjectRef      struct{ Namespace, Name, Resource, Subresource string }
	ResponseStatus struct{ Code int }
	ResponseObject struct {
		Metadata struct{ UID, ResourceVersion string }
	}
}

// Log is an audit log that is being written.
type Log struct {
	path   string
	offset int64
	// versions are those of objects that writes have made, where bodies are logged.
	versions map[string]bool
}

// Open returns the log from its present end on.
func Open(path string) (*Log, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &Log{path: path, offset: info.Size(), versions: map[string]bool{}}, nil
}

// Count counts the requests since the last call that are about objects of a namespace;
// an empty namespace counts all. Watches are left out: they are few, and no requests of a
// job's. So are leases, which are those of leader election and nodes.
func (l *Log) Count(namespace string) (Counts, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return nil, err
	}
	counts, reader := Counts{}, bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			// An unfinished line is for the next time.
			return counts, nil
		}
		if err != nil {
			return nil, err
		}
		l.offset += int64(len(line))
		if err := l.count(line, namespace, counts); err != nil {
			return nil, fmt.Errorf("audit log %s: %w", l.path, err)
		}
	}
}

func (l *Log) count(line []byte, namespace string, counts Counts) error {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	if e.Verb == "watch" || e.ObjectRef.Resource == "leases" || (namespace != "" && e.ObjectRef.Namespace != namespace) {
		return nil
	}
	r := Request{User: e.User.Username, Verb: e.Verb, Resource: e.ObjectRef.Resource, DryRun: e.dryRun()}
	if e.ObjectRef.Subresource != "" {
		r.Resource += "/" + e.ObjectRef.Subresource
	}
	r.Outcome = l.outcome(&e, r)
	counts[r]++
	return nil
}

func (e *event) dryRun() bool {
	u, err := url.Parse(e.RequestURI)
	return err == nil && u.Query().Has("dryRun")
}

func (l *Log) outcome(e *event, r Request) Outcome {
	switch code := e.ResponseStatus.Code; {
	case code == http.StatusNotFound && !r.Write():
		return Missing
	// The API server answers a failed test of a JSON patch with 422.
	case code == http.StatusConflict && e.Verb != "create", code == http.StatusUnprocessableEntity && e.Verb == "patch":
		return Conflict
	case code >= http.StatusBadRequest:
		return Refused
	}
	made := e.ResponseObject.Metadata
	if !r.Write() || r.DryRun || made.ResourceVersion == "" {
		return Done
	}
	version := strings.Join([]string{made.UID, made.ResourceVersion}, "/")
	if l.versions[version] {
		return NoChange
	}
	l.versions[version] = true
	return Done
}
