// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// told logs what a webhook refuses.
type told struct{ admission.Handler }

// Handle implements admission.Handler.
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

// fieldsOf names what was refused. Messages quote values.
func fieldsOf(status *metav1.Status) []string {
	if status.Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.Details.Causes {
		fields = append(fields, cause.Field)
	}
	return fields
}

// logOf returns the logger of a request.
func logOf(base logr.Logger, req *admission.Request) logr.Logger {
	if req == nil {
		return base
	}
	return base.WithValues("trainJob", klog.KRef(req.Namespace, req.Name), "operation", req.Operation, "requestID", req.UID)
}
