// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestProgress(t *testing.T) {
	const queued = "+ submitted: trainjob ns/job\n+ queued: LocalQueue q\n"
	const admitted = queued + "+ quota reserved: ClusterQueue cq\n+ admitted: flavor h100\n"
	type change = func(*explain.Facts)
	is := func(conditions ...string) change {
		return func(f *explain.Facts) {
			f.Job.Spec.Suspend = nil
			f.Workload.Status.Admission = &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{
				{Name: "node", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{kit.GPU: "h100", "cpu": "any"}},
			}}
			for _, condition := range conditions {
				f.Workload.Status.Conditions = append(f.Workload.Status.Conditions, metav1.Condition{Type: condition, Status: "True", LastTransitionTime: metav1.Now()})
			}
		}
	}
	runs := func(f *explain.Facts) {
		f.Job.Spec.Suspend, f.JobSet, f.Pods = nil, &jobsetapi.JobSet{}, make([]corev1.Pod, 2)
		for i := range f.Pods {
			f.Pods[i].Status.Phase = corev1.PodRunning
		}
	}
	withoutWorkload := func(f *explain.Facts) { f.Workload = nil }
	type row struct {
		with []change
		gone bool
		// want has a line for each step, with + where it is done, what the next one waits for, and the failure.
		want string
	}
	expect.Rows(t, map[string]row{
		"in no queue": {with: []change{withoutWorkload, runs, func(f *explain.Facts) { f.Job.Labels = nil }}, want: "+ submitted: trainjob ns/job\n" +
			"+ pods running: names no queue: it runs outside of all quotas"},
		"just created": {with: []change{withoutWorkload}, want: "+ submitted: trainjob ns/job\n- queued: is not queued yet: Trainer has not made its JobSet, without which it queues after the manager's waitForJobSet, 10s by default\n- quota reserved\n- admitted\n- pods running"},
		"to who may not see Workloads": {with: []change{withoutWorkload, runs, func(f *explain.Facts) { f.Unseen = []string{"workloads.kueue.x-k8s.io"} }}, want: queued +
			"+ quota reserved\n+ admitted\n+ pods running: is in a queue; you may not see its Workload"},
		"in a queue that there is not": {want: queued + "- quota reserved: names LocalQueue q, which does not exist in namespace ns (waits)\n- admitted\n- pods running"},
		"with quota": {with: []change{is(kueue.WorkloadQuotaReserved)}, want: queued + "+ quota reserved: ClusterQueue cq\n" +
			"- admitted: has quota in queue q (ClusterQueue cq), node on flavor h100 and any, and waits to be admitted (waits)\n- pods running"},
		"admitted": {with: []change{is(kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted), func(f *explain.Facts) { f.Job.Spec.Suspend = ptr.To(true) }}, want: admitted +
			"- pods running: is admitted (node on flavor h100 and any) and about to be started"},
		"running": {with: []change{is(kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted), runs}, want: admitted +
			"+ pods running: runs with 2 pods in queue q (ClusterQueue cq): nothing that has a quota, node on flavor h100 and any"},
		"in another cluster": {with: []change{is(kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted), func(f *explain.Facts) {
			f.Job.Spec.ManagedBy, f.Workload.Status.ClusterName = ptr.To(kueue.MultiKueueControllerName), ptr.To("west")
		}}, want: admitted + "+ in a worker: is in worker cluster west"},
		"deactivated": {with: []change{func(f *explain.Facts) { f.Workload.Spec.Active = ptr.To(false) }}, want: queued +
			"- quota reserved: was taken out of its queue: spec.active of its Workload is false (waits)\n- admitted\n- pods running\n" +
			"it was taken out of its queue: spec.active of its Workload is false"},
		"failed": {with: []change{func(f *explain.Facts) {
			f.Job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobFailed, Status: "True", Message: "backoff limit"}}
		}}, want: "- submitted: has failed: backoff limit\n- queued\n- quota reserved\n- admitted\n- pods running\nit has failed: backoff limit"},
		"deleted": {gone: true, want: "+ submitted\n- pods running\nit was deleted"},
	}, func(t *testing.T, tc row) {
		var facts *explain.Facts
		if !tc.gone {
			facts = kit.With(&explain.Facts{
				Around: explain.Around{Now: time.Now(), Field: patch.Of(trainjob.Trainer23), Cluster: expect.Must(explain.NewCluster(t.Context(), &inventory.Inventory{}))(t)},
				Job: &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid", Labels: map[string]string{kit.QueueLabel: "q"}, CreationTimestamp: metav1.Now()},
					Spec: trainjob.Spec{Suspend: ptr.To(true)}},
				Workload: &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}},
			}, tc.with...)
		}
		expect.Same(t, "Unexpected progress", tc.want, textOf(progressOf(facts)))
	})
}

// textOf has a line for each step.
func textOf(p progress) string {
	var lines []string
	for i, s := range p.steps {
		mark, detail := "-", ""
		switch {
		case i < p.reached:
			mark, detail = "+", s.detail
		case i == p.reached:
			detail = p.holds
		}
		if i == p.reached && p.waits {
			detail += " (waits)"
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s: %s", mark, s.name, detail), ": "))
	}
	return strings.TrimSpace(strings.Join(append(lines, p.failure), "\n"))
}

func TestAnotherTrainJobOfTheName(t *testing.T) {
	next := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "next"}}
	f := &follower{client: kit.Fake(kit.Scheme(trainjob.AddToScheme), next).Build(), job: client.ObjectKeyFromObject(next), uid: "uid"}
	expect.That(t, expect.Must(f.look(t.Context()))(t) == nil, "The TrainJob is there, and not deleted")
}

func TestDisplay(t *testing.T) {
	steps := func(reached int) progress {
		p := progress{steps: []step{{name: "submitted"}, {name: "queued", detail: "LocalQueue q"}, {name: "quota reserved", detail: "no quota\nat all, for a long time"}}}
		p.reached, p.holds = reached, p.steps[min(reached, 2)].detail
		return p
	}
	waiting := func(why string) progress {
		p := steps(2)
		p.holds, p.reason, p.waits = why, why, true
		return p
	}
	failed := steps(1)
	failed.reached, failed.failure = 0, "it failed"
	type row struct {
		width int
		shown []progress
		want  string
	}
	expect.Rows(t, map[string]row{
		"a line for each step as it is reached": {shown: []progress{steps(1), steps(1), steps(3)},
			want: "   0.0s  submitted\n   2.0s  queued          LocalQueue q\n   2.0s  quota reserved  no quota at all, for a long time\n"},
		"and one when it goes back": {shown: []progress{steps(2), steps(1), steps(2)},
			want: "   0.0s  submitted\n   0.0s  queued          LocalQueue q\n   1.0s  back to submitted: LocalQueue q\n   2.0s  queued          LocalQueue q\n"},
		"what the next step waits for, once": {shown: []progress{waiting("no quota\nfor it"), waiting("no quota\nfor it"), waiting("no flavor"), steps(3)},
			want: "   0.0s  submitted\n   0.0s  queued          LocalQueue q\n   0.0s                  no quota for it\n" +
				"   2.0s                  no flavor\n   3.0s  quota reserved  no quota at all, for a long time\n"},
		"a terminal's lines change in their place, and wrap as it would": {width: 48, shown: []progress{steps(1), steps(2), steps(3)},
			want: "✓ submitted          0.0s\n… queued                   LocalQueue q\n  quota reserved\n" +
				"\x1b[3A\x1b[J✓ submitted          0.0s\n✓ queued             1.0s  LocalQueue q\n… quota reserved           no quota at all, for\n                           a long time\n" +
				"\x1b[4A\x1b[J✓ submitted          0.0s\n✓ queued             1.0s  LocalQueue q\n✓ quota reserved     2.0s  no quota at all, for\n                           a long time\n"},
		"a narrow terminal": {width: 30, shown: []progress{steps(2)},
			want: "✓ submitted          0.0s\n✓ queued             0.0s\n  LocalQueue q\n… quota reserved\n  no quota at all, for a long\n  time\n"},
		"a word that is longer than the line": {width: 48, shown: []progress{waiting("no " + strings.Repeat("x", 45))},
			want: "✓ submitted          0.0s\n✓ queued             0.0s  LocalQueue q\n… quota reserved           no\n" +
				strings.Repeat("                           xxxxxxxxxxxxxxxxxxxx\n", 2) + "                           xxxxx\n"},
		"a step that is never reached": {width: 80, shown: []progress{steps(1), failed},
			want: "✓ submitted          0.0s\n… queued                   LocalQueue q\n  quota reserved\n\x1b[3A\x1b[J" +
				"✓ submitted          0.0s\n✗ queued                   LocalQueue q\n  quota reserved\n"},
	}, func(t *testing.T, tc row) {
		var out strings.Builder
		start := time.Now()
		d := newDisplay(&out, start)
		d.width = tc.width
		for i, p := range tc.shown {
			d.show(p, start.Add(time.Duration(i)*time.Second))
		}
		expect.Same(t, "Unexpected output", tc.want, out.String())
	})
}
