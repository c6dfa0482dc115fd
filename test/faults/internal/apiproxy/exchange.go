// SPDX-License-Identifier: Apache-2.0

package apiproxy

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Exchange is one write that an interceptor has taken over. It ends by Pass, Reply or Lose.
type Exchange struct {
	Request

	proxy *Proxy
	w     http.ResponseWriter
	r     *http.Request
}

// Forward sends the write to the API server, be the one who asked still there or not.
func (e *Exchange) Forward() error {
	_, _, err := e.proxy.ask(e.r.Clone(context.WithoutCancel(e.r.Context())))
	return err
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
