// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// counted counts the answers of a handler.
type counted struct {
	admission.Handler
	kind    string
	metrics *metrics.Recorder
}

// Handle implements admission.Handler.
func (c *counted) Handle(ctx context.Context, req admission.Request) admission.Response {
	response := c.Handler.Handle(ctx, req)
	outcome, reason := verdict(response)
	c.metrics.Answered(c.kind, operationOf(req), outcome, reason)
	return response
}

// operationOf returns the operation of a request, as long as it is one of Kubernetes': whoever reaches
// the port may ask for anything, and each word would be a series more.
func operationOf(req admission.Request) string {
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return string(req.Operation)
	}
	return metrics.OperationOther
}

// verdict returns the words of the metrics for a response.
func verdict(response admission.Response) (outcome, reason string) {
	result := response.Result
	switch {
	case response.Allowed:
		return metrics.AnswerAllowed, ""
	case result == nil:
		return metrics.AnswerRefused, string(metav1.StatusReasonUnknown)
	case result.Code >= http.StatusInternalServerError:
		return metrics.AnswerFailed, wordOf(result)
	case result.Details != nil && len(result.Details.Causes) > 0:
		return metrics.AnswerRefused, fieldOf(result.Details.Causes[0].Field)
	}
	return metrics.AnswerRefused, wordOf(result)
}

// wordOf returns Kubernetes' word for a status; handlers of controller-runtime give none.
func wordOf(result *metav1.Status) string {
	if result.Reason != "" {
		return string(result.Reason)
	}
	return strings.ReplaceAll(http.StatusText(int(result.Code)), " ", "")
}

// fieldOf returns the first two parts of a field's path, without keys and indexes, which may be a
// tenant's.
func fieldOf(path string) string {
	path, _, _ = strings.Cut(path, "[")
	if parts := strings.SplitN(path, ".", 3); len(parts) > 2 {
		return parts[0] + "." + parts[1]
	}
	return path
}
