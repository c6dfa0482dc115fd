// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/hold"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestWithPriority(t *testing.T) {
	const supposed = "with priority 1000 (urgent) "
	gated := func(s *scene) {
		s.Workload.Annotations = map[string]string{"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
	}
	cases := map[string]struct {
		scene changes
		want  State
		err   string
	}{
		"it would preempt": {
			scene: changes{ofH100, preempting, taken("h100", 4)},
			want: stateIs(Waiting, "Preempts", supposed+"asks for 32 GPUs and would get them in queue gpus (ClusterQueue gpus) by preempting "+
				"team/other-h100 (priority 0, ClusterQueue gpus: lower in the same queue): node on flavor h100", ""),
		},
		"it would be in front": {
			scene: changes{ofH100, strict, pending("first", 10, minutesAgo(60))},
			want:  stateIs(Waiting, "Fits", supposed+couldHave32, ""),
		},
		"nobody would go for it": {
			scene: changes{ofH100, taken("h100", 4)},
			want:  stateIs(Waiting, "QuotaInUse", supposed+wouldWait+"32 GPUs, flavor h100 has 0 of 32 GPUs free", waitForEnd),
		},
		"something else keeps it back": {
			scene: changes{gated},
			want: stuck(Waiting, "AdmissionGated", supposed+"waits all the same, and is held back by annotation kueue.x-k8s.io/admission-gated-by",
				"whoever set the annotation has to take it off"),
		},
		"its class is not there": {
			scene: changes{withoutWorkload, naming("gone")},
			want:  stateIs(Waiting, "Fits", supposed+couldHave32, ""),
		},
		"it runs":       {scene: changes{admitted, withPods(4, runningPod)}, err: "TrainJob team/llm does not wait for quota (Running)"},
		"no such class": {scene: changes{classes("low", "high")}, err: "there is no WorkloadPriorityClass urgent: name another: low, high"},
		"classes that may not be seen": {
			scene: changes{func(s *scene) { s.Classes = nil }}, err: "you may not list WorkloadPriorityClasses",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newScene(append(changes{classes("low", "urgent")}, tc.scene...)...).facts(t)
			if f.Workload == nil {
				f.PodSets = []kueue.PodSet{podSet("node", 4)}
			}
			before := StateOf(f)
			other, err := f.withPriority(t.Context(), "urgent")
			if tc.err != "" {
				expect.That(t, strings.HasPrefix(expect.Text(err), tc.err), "Unexpected error: %v", err)
				return
			}
			expect.NoError(t, err)
			expect.Same(t, "Unexpected state", tc.want, StateOf(other), cmpopts.IgnoreFields(State{}, "Cause"))
			expect.Same(t, "The facts changed", before, StateOf(f))
			expect.That(t, len(Explain(other).Chain) == 0, "The chain is told of what is not so")
		})
	}
}

func TestTableOfThoseThatWait(t *testing.T) {
	var got []string
	for name, scene := range map[string]changes{"waits": nil, "runs": {admitted, withPods(4, runningPod)}, "without a queue": {withoutQueue}, "off": {switchedOff},
		"held": {func(s *scene) { s.Job.Labels[kit.QueueLabel] = hold.Queue("gpus") }},
	} {
		if s := StateOf(newScene(scene...).facts(t)); s.waits() {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	expect.Same(t, "Unexpected TrainJobs", []string{"held", "off", "waits"}, got)
	var out strings.Builder
	e := Explain(newScene(withoutWorkload, naming("gone"), classes("low")).facts(t))
	expect.NoError(t, (&printer{out: &out}).table([]Explanation{e}))
	const want = `NAMESPACE   NAME   REASON                 WHY                                                                        WHAT HELPS
team        llm    PriorityClassMissing   is not queued: it names WorkloadPriorityClass gone, which does not exist   create it, or label the job with one that exists: low
`
	expect.Same(t, "Unexpected table", want, out.String())
}
