// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// object is a Workload that a test changes.
type object struct{ *kueue.Workload }

func newObject(uid types.UID) object {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: string(uid), UID: uid, ResourceVersion: "1"}}
	wl.Spec.QueueName = "queue"
	wl.Spec.PriorityClassRef = &kueue.PriorityClassRef{Name: "low"}
	wl.Spec.PodSets = []kueue.PodSet{{Name: "node", Count: 2}}
	return object{wl}
}

func (o object) copy() object { return object{o.DeepCopy()} }

func (o object) set(condition string, is bool, reason string, seconds int) object {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	apimeta.SetStatusCondition(&o.Status.Conditions, metav1.Condition{
		Type: condition, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at(seconds)),
	})
	return o
}

// reserve reserves quota for two pods of 8 GPUs.
func (o object) reserve(seconds int) object {
	o.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "node", Count: new(int32(2)),
		Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "h100", "cpu": "default"},
		ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("16"), "cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")},
	}}}
	if apimeta.IsStatusConditionTrue(o.Status.Conditions, kueue.WorkloadEvicted) {
		o.set(kueue.WorkloadEvicted, false, "QuotaReserved", seconds)
	}
	return o.set(kueue.WorkloadQuotaReserved, true, "QuotaReserved", seconds)
}

func (o object) admit(seconds int) object {
	return o.set(kueue.WorkloadAdmitted, true, "Admitted", seconds)
}

func (o object) ready(seconds int) object {
	return o.set(kueue.WorkloadPodsReady, true, kueue.WorkloadStarted, seconds)
}

func (o object) evict(seconds int) object {
	return o.set(kueue.WorkloadEvicted, true, kueue.WorkloadEvictedByPreemption, seconds)
}

func (o object) limited(seconds int32) object {
	o.Spec.MaximumExecutionTimeSeconds = &seconds
	return o
}

func (o object) release(seconds int) object {
	if c := apimeta.FindStatusCondition(o.Status.Conditions, kueue.WorkloadAdmitted); c != nil && c.Status == metav1.ConditionTrue {
		o.Status.AccumulatedPastExecutionTimeSeconds = new(ptr.Deref(o.Status.AccumulatedPastExecutionTimeSeconds, 0) +
			int32(at(seconds).Sub(c.LastTransitionTime.Time).Seconds()))
		o.set(kueue.WorkloadAdmitted, false, "NoReservation", seconds)
	}
	o.Status.Admission = nil
	return o.set(kueue.WorkloadQuotaReserved, false, "Pending", seconds)
}

func (o object) finish(reason string, seconds int) object {
	return o.set(kueue.WorkloadFinished, true, reason, seconds)
}

func (o object) deleted(seconds int) object {
	o.DeletionTimestamp = new(metav1.NewTime(at(seconds)))
	return o
}

func TestRead(t *testing.T) {
	waiting := func(s int) Mark { return Mark{Phase: metrics.PhaseWaiting, At: at(s)} }
	running := func(s int) Mark { return Mark{Phase: metrics.PhaseRunning, At: at(s)} }
	assumed := func(s int) Mark { return Mark{Phase: metrics.PhaseRunning, At: at(s), Assumed: true} }
	stopping := func(s int) Mark { return Mark{Phase: metrics.PhaseStopping, At: at(s)} }
	type want struct {
		Reserved, Released, Ended time.Time
		Marks                     []Mark
		Outcome                   string
	}
	// lost has its quota since, and is not over.
	lost := func(since int, marks ...Mark) want {
		return want{Reserved: at(since), Marks: marks, Outcome: metrics.OutcomeLost}
	}
	pods := Facts{WaitsForPods: true}
	type row struct {
		wl    object
		facts Facts
		want  want
	}
	expect.Rows(t, map[string]row{
		"it never had quota":                                        {wl: newObject("a"), want: want{Outcome: metrics.OutcomeLost}},
		"it waits for checks":                                       {wl: newObject("a").reserve(10), facts: Facts{Started: at(5)}, want: lost(10, waiting(10))},
		"it waits for pods":                                         {wl: newObject("a").reserve(10).admit(12), facts: Facts{WaitsForPods: true, Started: at(14)}, want: lost(10, waiting(10))},
		"its pods are ready":                                        {wl: newObject("a").reserve(10).admit(12).ready(20), facts: pods, want: lost(10, waiting(10), running(20))},
		"its pods were ready before this admission":                 {wl: newObject("a").ready(5).reserve(10).admit(12), facts: pods, want: lost(10, waiting(10))},
		"nobody waits for pods, and Jobs run":                       {wl: newObject("a").reserve(10).admit(12), facts: Facts{Started: at(14)}, want: lost(10, waiting(10), running(14))},
		"nobody waits for pods, and Jobs have not been stopped yet": {wl: newObject("a").reserve(10).admit(12), facts: Facts{Started: at(4)}, want: lost(10, waiting(10))},
		"nobody waits for pods any more, but somebody did when they were ready": {wl: newObject("a").reserve(10).admit(12).ready(20),
			facts: Facts{Started: at(14)}, want: lost(10, waiting(10), running(20))},
		"a pod is lost": {wl: newObject("a").reserve(10).admit(12).ready(20).set(kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForRecovery, 30), facts: pods,
			want: lost(10, waiting(10), assumed(12), waiting(30))},
		"it has recovered": {wl: newObject("a").reserve(10).admit(12).set(kueue.WorkloadPodsReady, true, kueue.WorkloadRecovered, 40), facts: pods,
			want: lost(10, waiting(10), assumed(12), running(40))},
		"it is evicted": {wl: newObject("a").reserve(10).admit(12).ready(20).evict(50), facts: pods, want: lost(10, waiting(10), running(20), stopping(50))},
		"it has reached its time limit": {wl: newObject("a").limited(38).reserve(10).admit(12).ready(20).set(kueue.WorkloadEvicted, true, "DeactivatedDueToMaximumExecutionTimeExceeded", 50), facts: pods,
			want: want{Reserved: at(10), Marks: []Mark{waiting(10), running(20), stopping(50)}, Outcome: metrics.OutcomeFailed}},
		"it is evicted, and its readiness reset": {wl: newObject("a").reserve(10).admit(12).ready(20).evict(50).set(kueue.WorkloadPodsReady, false, kueue.WorkloadWaitForStart, 51), facts: pods,
			want: lost(10, waiting(10), assumed(12), stopping(50))},
		"it got ready while it was evicted": {wl: newObject("a").reserve(10).admit(12).evict(50).ready(52), facts: pods, want: lost(10, waiting(10), stopping(50))},
		"it has given its quota back": {wl: newObject("a").reserve(10).admit(12).ready(20).evict(50).release(55), facts: pods,
			want: want{Released: at(55), Marks: []Mark{stopping(50)}, Outcome: metrics.OutcomeLost}},
		"it has quota again": {wl: newObject("a").reserve(10).admit(12).ready(20).evict(50).release(55).reserve(60).admit(60), facts: pods, want: lost(60, waiting(60))},
		"it is deleted": {wl: newObject("a").reserve(10).admit(12).ready(20).deleted(30), facts: pods,
			want: want{Reserved: at(10), Marks: []Mark{waiting(10), running(20), stopping(30)}, Outcome: metrics.OutcomeDeleted}},
		"it is deleted after it was evicted": {wl: newObject("a").reserve(10).admit(12).ready(20).evict(25).deleted(30), facts: pods,
			want: lost(10, waiting(10), running(20), stopping(25))},
		"its TrainJob is done, pods are left": {wl: newObject("a").reserve(10).admit(12).ready(20),
			facts: Facts{WaitsForPods: true, JobEnded: at(40), Outcome: metrics.OutcomeUseful},
			want:  want{Reserved: at(10), Marks: []Mark{waiting(10), running(20), stopping(40)}, Outcome: metrics.OutcomeUseful}},
		"it has succeeded": {wl: newObject("a").reserve(10).admit(12).ready(20).finish(kueue.WorkloadFinishedReasonSucceeded, 45),
			facts: Facts{WaitsForPods: true, JobEnded: at(40), Outcome: metrics.OutcomeUseful},
			want:  want{Reserved: at(10), Ended: at(45), Marks: []Mark{waiting(10), running(20), stopping(40)}, Outcome: metrics.OutcomeUseful}},
		"it has failed": {wl: newObject("a").reserve(10).admit(12).ready(20).finish(kueue.WorkloadFinishedReasonFailed, 45), facts: pods,
			want: want{Reserved: at(10), Ended: at(45), Marks: []Mark{waiting(10), running(20)}, Outcome: metrics.OutcomeFailed}},
		"it finished without quota": {wl: newObject("a").finish(kueue.WorkloadFinishedReasonFailed, 45), want: want{Outcome: metrics.OutcomeLost}},
	}, func(t *testing.T, tc row) {
		r := Read(tc.wl.Workload, tc.facts)
		got := want{Reserved: r.Reserved, Released: r.Released, Ended: r.Ended, Marks: r.Marks, Outcome: r.Outcome}
		expect.Same(t, "Unexpected reading", tc.want, got)
	})
}

func TestReadShares(t *testing.T) {
	series := func(resource, flavor string) Series {
		return Series{ClusterQueue: "gpus", Namespace: "team", LocalQueue: "queue", Flavor: flavor, Resource: resource, PriorityClass: "low", User: "ann"}
	}
	wl := newObject("a").reserve(10).admit(12)
	want := []Share{{series("cpu", "default"), 0.5}, {series("nvidia.com/gpu", "h100"), 16}}
	expect.Same(t, "Unexpected shares", want, Read(wl.Workload, Facts{User: "ann"}).Shares)
	wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "node", Count: 1}}
	want[0].Amount, want[1].Amount = 0.25, 8
	expect.Same(t, "Unexpected shares after a pod was reclaimed", want, Read(wl.Workload, Facts{User: "ann"}).Shares)
}
