// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CountWrites wraps the transport of a client configuration. All clients of the manager are made
// from that one: those of its caches, of events and of leader election, too.
func (r *Recorder) CountWrites(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resource := written(req)
		response, err := next.RoundTrip(req)
		if resource != "" {
			r.Wrote(resource, outcomeOf(response, err))
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// questions are API groups of which an object that is created is a question, and stored nowhere.
var questions = map[string]bool{"authentication.k8s.io": true, "authorization.k8s.io": true}

// written returns the resource that a request is about to change, as roles name it; empty: none.
func written(req *http.Request) string {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return ""
	}
	if req.URL.Query().Has("dryRun") {
		return ""
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3 && !questions[parts[1]]:
		parts = parts[3:]
	default:
		return ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		return parts[0] + "/" + parts[2]
	}
	return parts[0]
}

// outcomeOf returns the word for what became of a write.
func outcomeOf(response *http.Response, err error) string {
	switch {
	case err != nil:
		return WriteFailed
	case response.StatusCode < http.StatusBadRequest:
		return WriteDone
	case response.StatusCode == http.StatusConflict, response.StatusCode == http.StatusNotFound:
		return WriteConflict
	case response.StatusCode == http.StatusUnprocessableEntity && failedTest(response):
		return WriteConflict
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
		return WriteFailed
	}
	return WriteRefused
}

// failedTest reports whether a JSON patch was refused because the object is not what it says any
// more. The API server answers that like an invalid object, but names no kind. It leaves the body to
// be read again.
func failedTest(response *http.Response) bool {
	body, err := io.ReadAll(response.Body)
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	var status metav1.Status
	if err != nil || json.Unmarshal(body, &status) != nil {
		return false
	}
	return status.Details == nil || status.Details.Kind == ""
}
