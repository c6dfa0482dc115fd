// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// CountWrites wraps the transport of a client configuration. All clients of the manager are made
// from that one: those of its caches, of events and of leader election, too.
func (r *Recorder) CountWrites(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(req *http.Request) (*http.Response, error) {
		resource := written(req)
		response, err := next.RoundTrip(req)
		if resource != "" {
			r.Wrote(resource, outcomeOf(response, err))
		}
		return response, err
	})
}

// questions are API groups of which an object that is created is a question, and stored nowhere.
var questions = map[string]bool{"authentication.k8s.io": true, "authorization.k8s.io": true}

var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// written returns the resource that a request is about to change, as roles name it; empty: none.
func written(req *http.Request) string {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return ""
	}
	info, err := paths.NewRequestInfo(req)
	if err != nil || questions[info.APIGroup] || req.URL.Query().Has("dryRun") {
		return ""
	}
	return path.Join(info.Resource, info.Subresource)
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
