// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// Request says what a request to the API server is about.
type Request struct {
	// Verb is the one that permissions use: get, list, watch, create, update, patch,
	// delete, deletecollection.
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

// notWrites are resources that a manager posts to without changing what jobs do.
var notWrites = []string{
	"events", "events.events.k8s.io", "leases.coordination.k8s.io",
	"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io",
}

// IsWrite reports whether the request is made to change an object.
func (r Request) IsWrite() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) &&
		!r.DryRun && !slices.Contains(notWrites, r.Resource)
}

// IsEvent reports whether the request writes an event for people.
func (r Request) IsEvent() bool {
	return (r.Resource == "events" || r.Resource == "events.events.k8s.io") && (r.Verb == "create" || r.Verb == "patch")
}

// Classify reads a request's path and query, and the name from the body of a create.
// A path that is not a resource's gives a Request without Resource.
func Classify(r *http.Request, body []byte) Request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, parts = parts[1], parts[3:]
	default:
		return Request{}
	}
	req := Request{DryRun: r.URL.Query().Has("dryRun")}
	// /namespaces/NAME alone is the namespace itself.
	if parts[0] == "namespaces" && len(parts) > 2 {
		req.Namespace, parts = parts[1], parts[2:]
	}
	req.Resource = parts[0]
	if group != "" {
		req.Resource += "." + group
	}
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Subresource = parts[2]
	}
	req.Verb = verb(r, req.Name != "")
	if req.Verb == "create" && req.Name == "" {
		req.Name = nameIn(body)
	}
	return req
}

func verb(r *http.Request, named bool) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if named {
			return "delete"
		}
		return "deletecollection"
	}
	switch {
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		return "watch"
	case named:
		return "get"
	}
	return "list"
}

// nameIn returns the name of the object in a JSON body; other encodings keep theirs.
func nameIn(body []byte) string {
	var obj struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if json.Unmarshal(body, &obj) != nil {
		return ""
	}
	return obj.Metadata.Name
}
