// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
	cases := map[string]struct {
		object string
		user   string
		inTree bool
		// forged has the request leave out owner and status, which the API server does not take from it.
		forged bool
		want   []string
	}{
		"one with quota stays active, and is marked": {object: workload(false, "TrainJob", hasQuota, others), want: []string{marked, active}},
		"one without annotations, too": {object: workload(false, "TrainJob", hasQuota, ""),
			want: []string{"add /metadata/annotations map[kueue-trainer.dev/deactivate", active}},
		"one that is marked keeps its mark": {
			object: workload(false, "TrainJob", hasQuota, `"kueue-trainer.dev/deactivate":"true"`), want: []string{active}},
		"one that Kueue deactivates says so by itself": {
			object: workload(false, "TrainJob", hasQuota+","+is("DeactivationTarget", "MaximumExecutionTimeExceeded"), others), want: []string{active}},
		"one whose request hides that":                            {object: workload(false, "TrainJob", hasQuota, others), forged: true, want: []string{marked, active}},
		"one that is deactivated by the manager is":               {object: workload(false, "TrainJob", hasQuota, others), user: self},
		"one that waits is deactivated":                           {object: workload(false, "TrainJob", "", others)},
		"one that has finished is deactivated":                    {object: workload(false, "TrainJob", hasQuota+","+is("Finished", "Succeeded"), others)},
		"one of another kind is nobody's here":                    {object: workload(false, "RayJob", hasQuota, others)},
		"one that is activated is left as it is":                  {object: workload(true, "TrainJob", hasQuota, others)},
		"where the in-tree integration acts, it is Kueue's alone": {object: workload(false, "TrainJob", hasQuota, others), inTree: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h, _ := newHandlers(t)
			h.InTree = testenv.InTree(t, tc.inTree)
			user := "admin"
			if tc.user != "" {
				user = tc.user
			}
			old := strings.Replace(tc.object, `"active":false`, `"active":true`, 1)
			sent := tc.object
			if tc.forged {
				sent = workload(false, "ConfigMap", "", others)
			}
			response := (&deactivator{h.handler}).Handle(t.Context(), request(user, sent, old))
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
}
