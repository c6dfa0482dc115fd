// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestVerdict(t *testing.T) {
	invalidAt := func(paths ...*field.Path) admission.Response {
		var errs field.ErrorList
		for _, path := range paths {
			errs = append(errs, field.Invalid(path, "value", "is wrong"))
		}
		return refused(invalid(&trainjob.TrainJob{}, errs))
	}
	spec := field.NewPath("spec")
	cases := map[string]struct {
		response                admission.Response
		wantOutcome, wantReason string
	}{
		"allowed":                    {admission.Allowed(""), "allowed", ""},
		"allowed with a patch":       {admission.PatchResponseFromRaw([]byte(`{}`), []byte(`{"spec":{}}`)), "allowed", ""},
		"a field":                    {invalidAt(runtimeRefPath), "refused", "spec.runtimeRef"},
		"the first of two fields":    {invalidAt(managedByPath, runtimeRefPath), "refused", "spec.managedBy"},
		"a field of an entry":        {invalidAt(spec.Child("runtimePatches").Index(7).Child("trainingRuntimeSpec")), "refused", "spec.runtimePatches"},
		"a field far down":           {invalidAt(spec.Child("trainer", "resourcesPerNode", "limits")), "refused", "spec.trainer"},
		"a label that a tenant made": {invalidAt(labelPath("made.up/by-a-tenant")), "refused", "metadata.labels"},
		"the whole spec":             {invalidAt(spec), "refused", "spec"},
		"Trainer is unknown":         {refused(apierrors.NewServiceUnavailable("no Trainer")), "failed", "ServiceUnavailable"},
		"no TrainJob":                {admission.Errored(http.StatusBadRequest, errors.New("no JSON")), "refused", "BadRequest"},
		"our own fault":              {refused(errors.New("a bug")), "failed", "InternalServerError"},
		"a plain refusal":            {admission.Denied("no"), "refused", "Forbidden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			outcome, reason := verdict(tc.response)
			expect.That(t, outcome == tc.wantOutcome && reason == tc.wantReason,
				"verdict = %q, %q; want %q, %q", outcome, reason, tc.wantOutcome, tc.wantReason)
		})
	}
}

func TestCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	answers := &counted{
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Denied("no") }),
		kind:    metrics.WebhookValidating, metrics: metrics.NewRecorder(registry, metrics.QueueLabels{}),
	}
	for _, operation := range []admissionv1.Operation{
		admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect, "", "create", "MADE-UP", "made up by anybody",
	} {
		expect.That(t, !answers.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation}}).Allowed,
			"The answer to %q is another one", operation)
	}
	want := `# HELP kueue_trainer_webhook_requests_total ` + metrics.WebhookRequests().Help + `.
# TYPE kueue_trainer_webhook_requests_total counter
`
	for operation, n := range map[string]int{"CREATE": 1, "UPDATE": 1, "DELETE": 1, "CONNECT": 1, "other": 4} {
		want += fmt.Sprintf("kueue_trainer_webhook_requests_total{kind=\"validating\",operation=%q,outcome=\"refused\",reason=\"Forbidden\"} %d\n", operation, n)
	}
	expect.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), metrics.WebhookRequests().Name))
}
