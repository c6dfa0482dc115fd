// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestWithPriority(t *testing.T) {
	const supposed = "with priority 1000 (urgent) "
	gated := func(s *scene) {
		s.Workload.Annotations = map[string]string{"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
	}
	urgent := func(t *testing.T, scene changes) (f, other *Facts, err error) {
		f = newScene(append(changes{classes("low", "urgent")}, scene...)...).facts(t)
		if f.Workload == nil {
			f.PodSets = []kueue.PodSet{podSet("node", 4)}
		}
		other, err = f.withPriority(t.Context(), "urgent")
		return f, other, err
	}
	expect.Rows(t, map[string]row[State]{
		"it would preempt": given(ofH100, preempting, taken("h100", 4)).is(Waiting, "Preempts", supposed+"asks for 32 GPUs and would get them in queue gpus (ClusterQueue gpus) by preempting "+
			"team/other-h100 (priority 0, ClusterQueue gpus: lower in the same queue): node on flavor h100", ""),
		"it would be in front": given(ofH100, strict, pending("first", 10, minutesAgo(60))).is(Waiting, "Fits", supposed+couldHave32, ""),
		"nobody would go for it": given(ofH100, taken("h100", 4)).is(Waiting, "QuotaInUse",
			supposed+wouldWait+"32 GPUs, flavor h100: 0 of 32 GPUs are free", waitForEnd),
		"something else keeps it back": given(gated).stuck(Waiting, "AdmissionGated",
			supposed+"waits all the same, and is held back by annotation kueue.x-k8s.io/admission-gated-by", "whoever set the annotation has to take it off"),
		"its class is not there": given(withoutWorkload, naming("gone")).is(Waiting, "Fits", supposed+couldHave32, ""),
	}, func(t *testing.T, tc row[State]) {
		f, other, err := urgent(t, tc.scene)
		expect.NoError(t, err)
		expect.Same(t, "Unexpected state", tc.want, StateOf(other), cmpopts.IgnoreFields(State{}, "Cause"))
		expect.Same(t, "The facts changed", StateOf(newScene(append(changes{classes("low", "urgent")}, tc.scene...)...).facts(t)), StateOf(f))
		expect.That(t, len(Explain(other).Chain) == 0, "The chain is told of what is not so")
	})
	expect.Rows(t, map[string]row[string]{
		"it runs":                      {changes{admitted, withPods(4, runningPod)}, "TrainJob team/llm does not wait for quota (Running)"},
		"no such class":                {changes{classes("low", "high")}, "there is no WorkloadPriorityClass urgent: name another: low, high"},
		"classes that may not be seen": {changes{func(s *scene) { s.Classes = nil }}, "you may not list WorkloadPriorityClasses"},
	}, func(t *testing.T, tc row[string]) {
		_, _, err := urgent(t, tc.scene)
		expect.That(t, strings.HasPrefix(expect.Text(err), tc.want), "Unexpected error: %v", err)
	})
}

func TestTableOfThoseThatWait(t *testing.T) {
	var got []string
	for name, scene := range map[string]changes{"waits": nil, "runs": {admitted, withPods(4, runningPod)}, "without a queue": {withoutQueue}, "off": {switchedOff},
		"held": {func(s *scene) { s.Job.Labels[kit.QueueLabel] = trainjob.HeldQueue("gpus") }},
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
