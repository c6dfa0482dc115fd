// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
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
	type row struct {
		response                admission.Response
		wantOutcome, wantReason string
	}
	expect.Rows(t, map[string]row{
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
	}, func(t *testing.T, tc row) {
		outcome, reason := verdict(tc.response)
		expect.That(t, outcome == tc.wantOutcome && reason == tc.wantReason, "verdict = %q, %q; want %q, %q", outcome, reason, tc.wantOutcome, tc.wantReason)
	})
}

func TestCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	recorder := metrics.NewRecorder(registry, metrics.QueueLabels{})
	handledBy := func(handle admission.HandlerFunc) *counted {
		return &counted{handle, metrics.WebhookValidating, recorder}
	}
	answers := handledBy(func(context.Context, admission.Request) admission.Response { return admission.Denied("no") })
	for _, operation := range []admissionv1.Operation{
		admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect, "", "create", "MADE-UP", "made up by anybody",
	} {
		expect.That(t, !answers.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation}}).Allowed,
			"The answer to %q is another one", operation)
	}
	panics := &admission.Webhook{Handler: handledBy(func(context.Context, admission.Request) admission.Response { panic("a bug") })}
	recovered := panics.Handle(t.Context(), admission.Request{})
	expect.Same(t, "Unexpected answer to a panic", http.StatusInternalServerError, int(recovered.Result.Code))
	want := `# HELP kueue_trainer_webhook_requests_total ` + metrics.WebhookRequests.Help + `.
# TYPE kueue_trainer_webhook_requests_total counter
`
	for operation, n := range map[string]int{"CREATE": 1, "UPDATE": 1, "DELETE": 1, "CONNECT": 1, "other": 4} {
		want += fmt.Sprintf("kueue_trainer_webhook_requests_total{kind=\"validating\",operation=%q,outcome=\"refused\",reason=\"Forbidden\"} %d\n", operation, n)
	}
	want += "kueue_trainer_webhook_requests_total{kind=\"validating\",operation=\"other\",outcome=\"failed\",reason=\"InternalServerError\"} 1\n"
	expect.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), metrics.WebhookRequests.Name))
}

// A refusal is logged with what is wrong, and without the value that is.
func TestRefusalsAreLogged(t *testing.T) {
	env := field.NewPath("spec", "trainer", "env").Index(0).Child("value")
	expect.Rows(t, map[string]expect.Row[admission.Response, []string]{
		"what is allowed": {In: admission.Allowed("")},
		"a field": {In: refused(invalid(&trainjob.TrainJob{}, field.ErrorList{field.Invalid(env, "s3cret", "not so")})),
			Want: []string{`"msg":"Refused TrainJob"`, `"trainJob":{"name":"llm","namespace":"team"}`, `"operation":"CREATE"`, `"reason":"Invalid"`, `"fields":["spec.trainer.env[0].value"]`}},
		"a request": {In: admission.Errored(http.StatusBadRequest, http.ErrNoLocation), Want: []string{`"msg":"Refused TrainJob"`, `"code":400`}},
		"what cannot be decided": {In: admission.Errored(http.StatusInternalServerError, http.ErrNoLocation),
			Want: []string{`"level":"error"`, `"msg":"Could not decide about TrainJob"`, `"code":500`, http.ErrNoLocation.Error()}},
	}, func(t *testing.T, tc expect.Row[admission.Response, []string]) {
		var out bytes.Buffer
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "team", Name: "llm", Operation: admissionv1.Create}}
		handler := told{admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return tc.In })}
		handler.Handle(ctrl.LoggerInto(t.Context(), logOf("trainJob")(logging.New(zap.WriteTo(&out)), &req)), req)
		for _, want := range tc.Want {
			expect.That(t, strings.Contains(out.String(), want), "The line has no %s:\n%s", want, out.String())
		}
		expect.That(t, !strings.Contains(out.String(), "s3cret") && (tc.Want != nil || out.Len() == 0), "The log has too much:\n%s", out.String())
	})
}

func TestRestoreFields(t *testing.T) {
	const (
		stored   = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":8}},"future":0},"initializer":{"model":{}}}}`
		respelt  = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}},"future":0},"initializer":{"model":{}}}}`
		lost     = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}}},"initializer":{"model":{}}}}`
		less     = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":4}},"future":0},"initializer":{"model":{}}}}`
		without  = `{"spec":{"initializer":{"model":{}}}}`
		restored = `[{"op":"replace","path":"/spec/trainer","value":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":8}},"future":0}}]`
	)
	const env = `{"spec":{"trainer":{"env":[{"name":"CPUS","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}]}}}`
	type row struct {
		// stored is what it says above, where it is left out.
		stored, given string
		own           bool
		want          string
	}
	expect.Rows(t, map[string]row{
		"a divisor that Trainer's types always write": {stored: env, given: strings.Replace(env, `"limits.cpu"`, `"limits.cpu","divisor":"0"`, 1),
			want: `[{"op":"replace","path":"/spec/trainer","value":{"env":[{"name":"CPUS","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}}]}}]`},
		"nothing changed":                                 {given: stored, want: "null"},
		"only the spelling of an amount changed":          {given: respelt, want: restored},
		"the same in a write of ours":                     {given: respelt, own: true, want: restored},
		"a user asks for less":                            {given: less, want: "null"},
		"a write of ours never means what it says there":  {given: lost, own: true, want: restored},
		"the field is left out, for the CRD to refuse it": {given: without, want: "null"},
	}, func(t *testing.T, tc row) {
		ops := expect.Must(restoreFields([]byte(tc.given), []byte(cmp.Or(tc.stored, stored)), tc.own))(t)
		expect.Same(t, "unexpected operations", tc.want, expect.JSON(t, ops))
	})
}

func TestRestoreFieldsOfWhatIsNoObject(t *testing.T) {
	_, err := restoreFields([]byte(`{"spec":[]}`), []byte(`{"spec":{}}`), false)
	expect.That(t, err != nil, "a spec that is a list must be an error, and no panic")
}

func TestWebhooksYield(t *testing.T) {
	d, v := newHandlers(t)
	d.InTree = testenv.InTree(t, true)
	// What the in-tree integration does at a start: no gate, its own entry, resumed.
	old, object := inQueue(torch(suspended, gateJSON)), inQueue(torch(resumed, emptyJSON))
	r := d.Handle(t.Context(), request("kueue", object, old))
	expect.That(t, r.Allowed && len(r.Patches) == 0, "The defaulter must not touch anything: %+v", r)
	r = v.Handle(t.Context(), request("kueue", object, old))
	expect.That(t, r.Allowed, "The validator must not refuse anything: %+v", r.Result)
}

func TestWarnsOfStopsInVain(t *testing.T) {
	running, stopped := torch(resumed, placedJSON), torch(suspended, placedJSON)
	type row struct {
		user, labels, oldLabels string
		object, old             string
		warns                   bool
	}
	expect.Rows(t, map[string]row{
		"a job that runs":                 {labels: queued, oldLabels: queued, object: stopped, old: running, warns: true},
		"another label beside":            {labels: queued + `,"a":"b"`, oldLabels: queued, object: stopped, old: running, warns: true},
		"another queue with it":           {labels: `"kueue.x-k8s.io/queue-name":"other"`, oldLabels: queued, object: stopped, old: running},
		"a priority with it":              {labels: queued + `,"kueue.x-k8s.io/priority-class":"high"`, oldLabels: queued, object: stopped, old: running},
		"one that was suspended before":   {labels: queued, oldLabels: queued, object: stopped, old: stopped},
		"one that was resumed too early":  {labels: queued, oldLabels: queued, object: torch(suspended, gateJSON), old: torch(resumed, gateJSON)},
		"one without a queue":             {object: torch(suspended), old: torch("")},
		"a resume":                        {labels: queued, oldLabels: queued, object: running, old: stopped},
		"the manager, which has to do it": {user: self, labels: queued, oldLabels: queued, object: stopped, old: running},
	}, func(t *testing.T, tc row) {
		_, v := newHandlers(t)
		of := request(tc.user, inttest.Manifest(tc.labels, tc.object), inttest.Manifest(tc.oldLabels, tc.old))
		wantWarning(t, v, of, "kubectl trainjob stop -n ns ", tc.warns)
	})
}

func TestDeactivator(t *testing.T) {
	workload := func(active bool, owner, conditions, annotations string) string {
		return fmt.Sprintf(`{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"wl","namespace":"ns","annotations":{%s},
			"ownerReferences":[{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":%q,"name":"job","uid":"job","controller":true}]},
			"spec":{"active":%t,"podSets":[]},"status":{"conditions":[%s]}}`, annotations, owner, active, conditions)
	}
	is := func(condition, reason string) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","reason":%q,"message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`, condition, reason)
	}
	hasQuota := is("QuotaReserved", "QuotaReserved")
	const others = `"example.com/mine":"1"`
	const active, marked = "replace /spec/active true", "add /metadata/annotations/kueue-trainer.dev~1deactivate"
	type row struct {
		object string
		user   string
		inTree bool
		// forged has the request leave out owner and status, which the API server does not take from it.
		forged bool
		// claims is what the request says of its status, before is whether it was deactivated before.
		claims string
		before bool
		want   []string
	}
	expect.Rows(t, map[string]row{
		"one with quota stays active, and is marked": {object: workload(false, "TrainJob", hasQuota, others), want: []string{marked, active}},
		"one without annotations, too":               {object: workload(false, "TrainJob", hasQuota, ""), want: []string{"add /metadata/annotations map[kueue-trainer.dev/deactivate", active}},
		"one that is marked keeps its mark":          {object: workload(false, "TrainJob", hasQuota, `"kueue-trainer.dev/deactivate":"true"`), want: []string{active}},
		"one that Kueue deactivates says so by itself": {
			object: workload(false, "TrainJob", hasQuota+","+is("DeactivationTarget", "MaximumExecutionTimeExceeded"), others), want: []string{active}},
		"one whose request hides that":                            {object: workload(false, "TrainJob", hasQuota, others), forged: true, want: []string{marked, active}},
		"one that is deactivated by the manager is":               {object: workload(false, "TrainJob", hasQuota, others), user: self},
		"one that waits is deactivated":                           {object: workload(false, "TrainJob", "", others)},
		"one that has finished is deactivated":                    {object: workload(false, "TrainJob", hasQuota+","+is("Finished", "Succeeded"), others)},
		"one of another kind is nobody's here":                    {object: workload(false, "RayJob", hasQuota, others)},
		"one that is deactivated already is":                      {object: workload(false, "TrainJob", hasQuota, others), before: true},
		"one whose request says that Kueue does it":               {object: workload(false, "TrainJob", hasQuota, others), claims: is("DeactivationTarget", "MaximumExecutionTimeExceeded"), want: []string{marked, active}},
		"one that is activated is left as it is":                  {object: workload(true, "TrainJob", hasQuota, others)},
		"where the in-tree integration acts, it is Kueue's alone": {object: workload(false, "TrainJob", hasQuota, others), inTree: true},
	}, func(t *testing.T, tc row) {
		h, _ := newHandlers(t)
		h.InTree = testenv.InTree(t, tc.inTree)
		old := strings.Replace(tc.object, `"active":false`, `"active":true`, 1)
		sent := tc.object
		if tc.before {
			old = tc.object
		}
		if tc.claims != "" {
			sent = workload(false, "TrainJob", hasQuota+","+tc.claims, others)
		}
		if tc.forged {
			sent = workload(false, "ConfigMap", "", others)
		}
		response := (&deactivator{h.handler}).Handle(t.Context(), request(cmp.Or(tc.user, "admin"), sent, old))
		expect.That(t, response.Allowed, "It is refused: %v", response.Result)
		var got []string
		for _, patch := range response.Patches {
			got = append(got, fmt.Sprint(patch.Operation, " ", patch.Path, " ", patch.Value))
		}
		slices.Sort(got)
		expect.That(t, slices.EqualFunc(got, tc.want, strings.HasPrefix), "Unexpected patches %q, want %q", got, tc.want)
		expect.Same(t, "The user is told", len(tc.want) > 0, len(response.Warnings) > 0)
	})
}
