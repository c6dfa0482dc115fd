// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPodSetsTellsWhyThereAreNone(t *testing.T) {
	cases := map[string]struct{ spec, want string }{
		"a runtime that is not there":      {spec: `{"runtimeRef":{"name":"none"}}`, want: `no ClusterTrainingRuntime "none"`},
		"an override that cannot be read":  {spec: `{"runtimeRef":{"name":"torch"},"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"spec":{"tolerations":"x"}}]}`, want: "spec.podTemplateOverrides[0].spec"},
		"a runtime of a kind that is none": {spec: `{"runtimeRef":{"name":"torch","kind":"Pod"}}`, want: "spec.runtimeRef.kind"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, recorder := newReconciler(t)
			r.env.Field = patch.Of(trainjob.Trainer21)
			j := &job{env: r.env}
			expect.NoError(t, json.Unmarshal([]byte(inttest.Manifest(inttest.Queued, tc.spec)), &j.TrainJob))
			j.Namespace = "ns"
			j.Suspend()
			podSets, err := j.PodSets(t.Context(), r.env.client)
			expect.That(t, err != nil, "PodSets returned %v", podSets)
			wantTold(t, eventsSoFar(recorder, jobevents.ReasonNotDescribed), tc.want)
		})
	}
}

// A runtime that is deleted, made and deleted again is told of twice.
func TestPodSetsTellsAgainWhatWasMended(t *testing.T) {
	stored, _ := suspendedJob()
	r, recorder := newReconciler(t)
	for _, runtime := range []string{"none", "none", "torch", "none"} {
		j := jobOf(r, stored)
		j.Spec.RuntimeRef.Name = runtime
		_, err := j.PodSets(t.Context(), r.env.client)
		expect.Need(t, (err == nil) == (runtime == "torch"), "PodSets with runtime %s: %v", runtime, err)
	}
	expect.Same(t, "Unexpected number of events", 2, len(recorder.Events))
}
