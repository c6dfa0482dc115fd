// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"encoding/json"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
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

// IsEvent reports whether the request writes an event for people.
func (r Request) IsEvent() bool {
	return slices.Contains(events, r.Resource) && (r.Verb == "create" || r.Verb == "patch")
}

// paths reads them as the API server does.
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
