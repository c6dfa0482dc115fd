// SPDX-License-Identifier: Apache-2.0

// Package logs reads logs of a local control plane from now on, and counts API requests by its audit log.
package logs

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

// Log is a log that is being written.
type Log struct {
	path   string
	offset int64
}

// Open returns a log from its present end on.
func Open(path string) (*Log, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &Log{path: path, offset: info.Size()}, nil
}

// Lines hands the lines since the last call to take. One that is being written is for the next time.
func (l *Log) Lines(take func([]byte) error) error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Seek(l.offset, io.SeekStart)
	for reader := bufio.NewReaderSize(f, 1<<20); err == nil; {
		var line []byte
		if line, err = reader.ReadBytes('\n'); err == nil {
			l.offset += int64(len(line))
			err = take(line)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("log %s: %w", l.path, err)
}

// Outcome says what became of a request.
type Outcome string

// The outcomes.
const (
	// Done is what was asked for.
	Done Outcome = "done"
	// NoChange is a write after which the object is the same; it is only told where the log holds bodies.
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

// Event is what we need of audit.k8s.io/v1 Event.
type Event struct {
	Verb           string
	RequestURI     string
	User           struct{ Username string }
	ObjectRef      struct{ Namespace, Name, Resource, Subresource string }
	ResponseStatus struct{ Code int }
	ResponseObject struct {
		Metadata struct{ UID, ResourceVersion string }
	}
}

// DryRun reports whether nothing was to be stored.
func (e *Event) DryRun() bool {
	u, err := url.Parse(e.RequestURI)
	return err == nil && u.Query().Has("dryRun")
}

// Audit is an audit log that is being written.
type Audit struct {
	*Log
	// versions are those of objects that writes have made, where bodies are logged.
	versions map[string]bool
}

// OpenAudit returns the log from its present end on.
func OpenAudit(path string) (*Audit, error) {
	log, err := Open(path)
	return &Audit{Log: log, versions: map[string]bool{}}, err
}

// Events hands the events since the last call to take. Watches are left out: they are few, and no requests
// of a job's. So are leases, which are those of leader election and nodes.
func (a *Audit) Events(take func(*Event)) error {
	return a.Lines(func(line []byte) error {
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Verb != "watch" && e.ObjectRef.Resource != "leases" {
			take(&e)
		}
		return nil
	})
}

// Count counts the requests since the last call that are about objects of a namespace; an empty namespace counts all.
func (a *Audit) Count(namespace string) (Counts, error) {
	counts := Counts{}
	err := a.Events(func(e *Event) {
		if namespace != "" && e.ObjectRef.Namespace != namespace {
			return
		}
		r := Request{User: e.User.Username, Verb: e.Verb, Resource: e.ObjectRef.Resource, DryRun: e.DryRun()}
		if e.ObjectRef.Subresource != "" {
			r.Resource += "/" + e.ObjectRef.Subresource
		}
		r.Outcome = a.outcome(e, r)
		counts[r]++
	})
	return counts, err
}

func (a *Audit) outcome(e *Event, r Request) Outcome {
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
	if a.versions[version] {
		return NoChange
	}
	a.versions[version] = true
	return Done
}
