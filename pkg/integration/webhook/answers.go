// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// counted counts the answers of a handler.
type counted struct {
	admission.Handler
	kind    string
	metrics *metrics.Recorder
}

func (c *counted) Handle(ctx context.Context, req admission.Request) admission.Response {
	// What stays where the handler panics: controller-runtime logs that and answers for it.
	outcome, reason := metrics.AnswerFailed, "InternalServerError"
	defer func() { c.metrics.Answered(c.kind, operationOf(req), outcome, reason) }()
	response := c.Handler.Handle(ctx, req)
	outcome, reason = verdict(response)
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

// told logs what a webhook refuses.
type told struct{ admission.Handler }

func (t *told) Handle(ctx context.Context, req admission.Request) admission.Response {
	response := t.Handler.Handle(ctx, req)
	switch result := response.Result; {
	case response.Allowed || result == nil:
	case result.Code >= http.StatusInternalServerError:
		ctrl.LoggerFrom(ctx).Error(errors.New(result.Message), "Could not decide about TrainJob", "code", result.Code)
	default:
		ctrl.LoggerFrom(ctx).Info("Refused TrainJob", "reason", result.Reason, "code", result.Code, "fields", fieldsOf(result))
	}
	return response
}

// fieldsOf names what was refused. Messages quote values, and a path has keys as long as their user likes.
func fieldsOf(status *metav1.Status) []string {
	const longest = 256
	return kueuelib.Map(ptr.Deref(status.Details, metav1.StatusDetails{}).Causes, func(cause *metav1.StatusCause) string {
		return cause.Field[:min(longest, len(cause.Field))]
	})
}

// logOf returns what makes the logger of a request about an object, which it names by key.
func logOf(key string) func(logr.Logger, *admission.Request) logr.Logger {
	return func(base logr.Logger, req *admission.Request) logr.Logger {
		if req == nil {
			return base
		}
		return base.WithValues(key, klog.KRef(req.Namespace, req.Name), "operation", req.Operation, "requestID", req.UID)
	}
}
