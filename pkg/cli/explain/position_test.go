// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPlacement(t *testing.T) {
	runtime := provenance.Source{Kind: provenance.Runtime}
	mine := provenance.Source{Kind: provenance.Patch, Manager: "example.com/me"}
	said := func(by provenance.Source, value string) provenance.Setting {
		return provenance.Setting{Source: by, Value: json.RawMessage(value)}
	}
	f := newScene(func(s *scene) {
		s.Fields = []provenance.Field{
			{Job: "node", Path: "spec.template.spec.nodeSelector[pool]", Setting: said(runtime, `"h100"`)},
			{Job: "node", Path: "spec.template.spec.tolerations", Setting: said(mine, `[{"key":"spot","operator":"Exists"}]`),
				Overrode: []provenance.Setting{said(runtime, `[]`)}},
			{Job: "node", Path: "spec.template.spec.volumes[data].emptyDir", Setting: said(mine, `{}`)},
			{Job: "node", Path: "spec.template.metadata.labels[kueue.x-k8s.io/podset]", Setting: said(runtime, `"node"`)},
			{Job: "node", Path: "metadata.labels[team]", Setting: said(mine, `"a"`)},
			// Nothing of these decides on a place, and no patch set them.
			{Job: "node", Path: "spec.template.spec.containers[node].image", Setting: said(runtime, `"torch"`)},
			{Job: "node", Path: "spec.parallelism", Setting: said(provenance.Source{Kind: provenance.Trainer}, `4`)},
		}
	}).facts(t)
	want := []Part{
		{Field: "metadata.labels[kueue.x-k8s.io/queue-name]", Value: json.RawMessage(`"gpus"`), SetBy: "TrainJob"},
		{ReplicatedJob: "node", Field: "nodeSelector[pool]", Value: json.RawMessage(`"h100"`), SetBy: "runtime torch"},
		{ReplicatedJob: "node", Field: "tolerations", Value: json.RawMessage(`[{"key":"spot","operator":"Exists"}]`), SetBy: "example.com/me",
			Overrode: []Overridden{{Value: json.RawMessage(`[]`), SetBy: "runtime torch"}}},
		{ReplicatedJob: "node", Field: "volumes[data].emptyDir", Value: json.RawMessage(`{}`), SetBy: "example.com/me"},
		{ReplicatedJob: "node", Field: "labels[kueue.x-k8s.io/podset]", Value: json.RawMessage(`"node"`), SetBy: "runtime torch"},
		{ReplicatedJob: "node", Field: "metadata.labels[team]", Value: json.RawMessage(`"a"`), SetBy: "example.com/me"},
	}
	expect.Same(t, "Unexpected placement", want, Placement(f))
}

func TestValueText(t *testing.T) {
	type row struct{ field, value, want string }
	expect.Rows(t, map[string]row{
		"a text":      {"nodeSelector[pool]", `"h100"`, "h100"},
		"tolerations": {"tolerations", `[{"operator":"Exists"},{"key":"a","value":"b","effect":"NoSchedule"},{"key":"c","operator":"Exists"}]`, "*, a=b:NoSchedule, c"},
		"a gate":      {"schedulingGates[g]", `{"name":"g"}`, "g"},
		"other":       {"affinity.nodeAffinity", `{"a":[1]}`, `{"a":[1]}`},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected text of a value", tc.want, valueText(tc.field, json.RawMessage(tc.value)))
	})
}

func TestPlace(t *testing.T) {
	eachScene(t, "position", map[string]row[*Position]{
		"alone": {want: &Position{Place: 1, Pending: 1, Source: Computed}},
		"higher priority first, then who came first": {scene: changes{pending("later", 0, minutesAgo(1)), pending("urgent", 10, minutesAgo(1)), pending("earlier", 0, minutesAgo(9))},
			want: &Position{Place: 3, Pending: 4, Ahead: []string{"team/earlier", "team/urgent"}, Source: Computed}},
		"who has quota does not wait": {scene: changes{taken("h100", 1)}, want: &Position{Place: 1, Pending: 1, Source: Computed}},
		"who was stopped by an admission check queues from then on": {scene: changes{pending("later", 0, minutesAgo(3)), evicted(kueue.WorkloadEvictedByAdmissionCheck, "")},
			want: &Position{Place: 2, Pending: 2, Ahead: []string{"team/later"}, Source: Computed}},
		"who waits in a stopped queue is not in it": {scene: changes{queueHeld}},
		"who is inactive is not in the queue":       {scene: changes{switchedOff}},
	}, (*Facts).Place)
}

func TestOrdinal(t *testing.T) {
	got := []string{ordinal(1), ordinal(2), ordinal(3), ordinal(4), ordinal(11), ordinal(21), ordinal(112)}
	expect.Same(t, "Unexpected ordinals", []string{"1st", "2nd", "3rd", "4th", "11th", "21st", "112th"}, got)
}

func TestTimeLimit(t *testing.T) {
	limit := func(s *scene) { s.Workload.Spec.MaximumExecutionTimeSeconds = new(int32(3600)) }
	ranBefore := func(s *scene) { s.Workload.Status.AccumulatedPastExecutionTimeSeconds = new(int32(600)) }
	type row struct {
		scene changes
		want  *TimeLimit
		says  string
	}
	expect.Rows(t, map[string]row{
		"none":                   {scene: changes{admitted}},
		"no Workload":            {scene: changes{limit, withoutWorkload}},
		"while it waits":         {scene: changes{limit}, want: &TimeLimit{Seconds: 3600}, says: "Time limit: 60m, 0s used, 60m left"},
		"of the first admission": {scene: changes{limit, admitted}, want: &TimeLimit{Seconds: 3600, UsedSeconds: 120}, says: "Time limit: 60m, 2m used, 58m left"},
		"of all admissions":      {scene: changes{limit, ranBefore, admitted}, want: &TimeLimit{Seconds: 3600, UsedSeconds: 720}, says: "Time limit: 60m, 12m used, 48m left"},
		"exceeded while it stops": {scene: changes{limit, admitted, func(s *scene) { s.Workload.Spec.MaximumExecutionTimeSeconds = new(int32(60)) }},
			want: &TimeLimit{Seconds: 60, UsedSeconds: 120}, says: "Time limit: 60s, 2m used, 0s left"},
		"over": {scene: changes{limit, admitted, with(kueue.WorkloadFinished, "", "", 1)}},
	}, func(t *testing.T, tc row) {
		e := Explain(newScene(tc.scene...).facts(t))
		expect.Same(t, "Unexpected time limit", tc.want, e.TimeLimit)
		text := printed(t, &e)
		expect.That(t, (tc.says != "" || !strings.Contains(text, "Time limit:")) && strings.Contains(text, tc.says), "Want %q in:\n%s", tc.says, text)
	})
}

func TestHeld(t *testing.T) {
	wrote := func(manager, fields string, minutes int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: new(minutesAgo(minutes)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const label = `{"f:metadata":{"f:labels":{"f:kueue.x-k8s.io/queue-name":{}}}}`
	holds := func(s *scene) {
		s.Job.Labels[kueueconstants.QueueLabel] = trainjob.HeldQueue("gpus")
		s.Job.ManagedFields = []metav1.ManagedFieldsEntry{
			wrote("kubectl-trainjob", label, 9), wrote("other", label, 1), {Manager: trainjob.HoldFieldOwner, Time: new(minutesAgo(1))},
			wrote(trainjob.HoldFieldOwner, `{"f:spec":{"f:suspend":{}}}`, 2), wrote(trainjob.HoldFieldOwner, label, 4), wrote(trainjob.HoldFieldOwner, label, 3),
		}
	}
	const resume = "kubectl trainjob resume -n team llm"
	eachScene(t, "state", map[string]row[State]{
		"out of its queue":               given(holds).stuck(Held, "Held", "is held out of queue gpus by its user", resume),
		"before it has a Workload again": given(holds, withoutWorkload).stuck(Held, "Held", "is held out of queue gpus by its user", resume),
		"by somebody who may not see its Workload": given(holds, func(s *scene) { s.Workload, s.Unseen = nil, []string{inventory.Workloads} }).stuck(Held, "Held",
			"is held out of queue gpus by its user; you may not see its Workload, nor so whether it still has quota", resume),
		"while its pods end": given(admitted, withPods(2, runningPod), holds).is(Stopping, "Held",
			"is being stopped, to be held out of queue gpus; 2 pods still there, it keeps the quota until they are gone", ""),
	}, StateOf, cmpopts.IgnoreFields(State{}, "Since", "Hidden"))
	expect.Same(t, "Unexpected time", new(minutesAgo(3)), StateOf(newScene(holds).facts(t)).Since)
	t.Run("by somebody else than the plugin", func(t *testing.T) {
		s := newScene(holds)
		s.Job.ManagedFields = s.Job.ManagedFields[:4]
		got := StateOf(s.facts(t))
		expect.That(t, got.Since == nil, "Unexpected time %v", got.Since)
	})
	t.Run("in a queue that somebody named so", func(t *testing.T) {
		s := newScene(holds)
		s.inventory.LocalQueues = append(s.inventory.LocalQueues, localQueue(trainjob.HeldQueue("gpus"), "gpus"))
		got := StateOf(s.facts(t))
		expect.That(t, got.Phase != Held, "Unexpected state %+v", got)
	})
}

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
