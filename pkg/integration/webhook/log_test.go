// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// A refusal is logged with what is wrong, and without the value that is.
func TestRefusalsAreLogged(t *testing.T) {
	env := field.NewPath("spec", "trainer", "env").Index(0).Child("value")
	tests := map[string]struct {
		response admission.Response
		want     []string
	}{
		"what is allowed": {response: admission.Allowed("")},
		"a field": {
			response: refused(invalid(&trainjob.TrainJob{}, field.ErrorList{field.Invalid(env, "s3cret", "not so")})),
			want:     []string{`"msg":"Refused TrainJob"`, `"trainJob":{"name":"llm","namespace":"team"}`, `"operation":"CREATE"`, `"reason":"Invalid"`, `"fields":["spec.trainer.env[0].value"]`},
		},
		"a request": {response: admission.Errored(http.StatusBadRequest, http.ErrNoLocation), want: []string{`"msg":"Refused TrainJob"`, `"code":400`}},
		"what cannot be decided": {
			response: admission.Errored(http.StatusInternalServerError, http.ErrNoLocation),
			want:     []string{`"level":"error"`, `"msg":"Could not decide about TrainJob"`, `"code":500`, http.ErrNoLocation.Error()},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "team", Name: "llm", Operation: admissionv1.Create}}
			handler := told{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return tc.response })}
			handler.Handle(ctrl.LoggerInto(t.Context(), logOf(logging.New(zap.WriteTo(&out)), &req)), req)
			for _, want := range tc.want {
				expect.That(t, strings.Contains(out.String(), want), "The line has no %s:\n%s", want, out.String())
			}
			expect.That(t, !strings.Contains(out.String(), "s3cret") && (tc.want != nil || out.Len() == 0), "The log has too much:\n%s", out.String())
		})
	}
}
