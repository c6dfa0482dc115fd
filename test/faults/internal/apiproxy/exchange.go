// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Exchange is one write that an interceptor has taken over. It ends by Pass, Reply or Lose.
type Exchange struct {
	Request

	proxy *Proxy
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
}

// Response is what the API server answered.
type Response struct {
	Code   int
	header http.Header
	body   []byte
}

// Forward sends the write to the API server, be the one who asked still there or not.
func (e *Exchange) Forward() (*Response, error) {
	out := e.r.Clone(context.WithoutCancel(e.r.Context()))
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host, out.Host = e.proxy.target.Scheme, e.proxy.target.Host, e.proxy.target.Host
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(e.body)), int64(len(e.body))
	answer, err := e.proxy.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	return &Response{Code: answer.StatusCode, header: answer.Header, body: body}, nil
}

// Answer sends the API server's response to the client.
func (e *Exchange) Answer(response *Response) {
	maps.Copy(e.w.Header(), response.header)
	e.w.WriteHeader(response.Code)
	_, _ = e.w.Write(response.body)
}

// Pass forwards the write and answers with what comes back.
func (e *Exchange) Pass() {
	response, err := e.Forward()
	if err != nil {
		e.Lose()
	}
	e.Answer(response)
}

// Reply answers with an error in the API server's place.
func (e *Exchange) Reply(status metav1.Status) {
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		e.w.Header().Set("Retry-After", "1")
	}
	writeStatus(e.w, status)
}

// Lose breaks the stream off, so that the one who asked does not know what became of it.
func (e *Exchange) Lose() {
	panic(http.ErrAbortHandler)
}

func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
