// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// noticed is a Workload, and what people are told of it.
type noticed struct {
	workload func(*kueue.Workload)
	want     Notice
}

// of is a Workload of which there is nothing to tell.
func of(changes ...func(*kueue.Workload)) noticed { return noticed{workload: kit.All(changes...)} }

func (n noticed) tells(reason, message string) noticed {
	return noticed{n.workload, Notice{Reason: reason, Message: message}}
}

// means tells of what somebody has meant.
func (n noticed) means(reason, message string) noticed {
	return noticed{n.workload, Notice{Reason: reason, Message: message, Meant: true}}
}

func TestNoticeOf(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) func(*kueue.Workload) {
		return kit.Says(metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
	check := func(name string, state kueue.CheckState, message string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks = append(wl.Status.AdmissionChecks, kueue.AdmissionCheckState{Name: kueue.AdmissionCheckReference(name), State: state, Message: message})
		}
	}
	is := func(kind string) func(string, string) func(*kueue.Workload) {
		return func(reason, message string) func(*kueue.Workload) {
			return condition(kind, metav1.ConditionTrue, reason, message)
		}
	}
	evicted, finished, target := is(kueue.WorkloadEvicted), is(kueue.WorkloadFinished), is(kueue.WorkloadDeactivationTarget)
	unreserved := func(reason, message string) func(*kueue.Workload) {
		return condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, reason, message)
	}
	notAdmissible := func(reason, says, remedy string) noticed {
		return of(unreserved(reason, says)).tells("NotAdmissible", "Workload wl cannot be admitted: "+says+remedy)
	}
	const startsAgain = "; it starts again with spec.stopPolicy None, if its ClusterQueue is active"
	const another = "create the TrainJob again, or have somebody with Kueue's role batch-admin delete its Workload, and it queues again"
	const rejected = "Workload wl was rejected by admission check \"site\" (no such site); when that is put right, " + another
	expect.Rows(t, map[string]noticed{
		"a new one has nothing to say":                  of(),
		"nor has one that waits for quota":              of(unreserved(kueue.WorkloadQuotaReservedReasonWaitingForQuota, "couldn't assign flavors")),
		"nor one that was waiting under the old reason": of(unreserved("Pending", "couldn't assign flavors")),
		"nor one that runs":                             of(is(kueue.WorkloadQuotaReserved)("QuotaReserved", "")),
		"nor one that was preempted":                    of(evicted(kueue.WorkloadEvictedByPreemption, "Preempted")),
		"nor one that succeeded":                        of(kit.Deactivated, finished("Succeeded", "")),
		"out of sync": of(finished(kueue.WorkloadFinishedReasonOutOfSync, "The prebuilt workload is out of sync with its user job")).
			tells("WorkloadOutOfSync", "Workload wl was finished without a run: The prebuilt workload is out of sync with its user job; delete it and create it again like the TrainJob, and the job queues"),
		"a start that was given up": of(finished("FailedToStart", "conflict for nodeSelector: zone")).
			tells("CannotStart", "Workload wl was finished because the job could not be started: conflict for nodeSelector: zone; when that is put right, delete it, and the job queues again"),
		"to be deactivated, and evicted for that": of(deactivation.Mark, evicted(kueue.WorkloadDeactivated, "The workload is deactivated")).
			means("WorkloadDeactivated", "Workload wl is being deactivated; the job's pods end, and its quota is free when the last one is gone"),
		"deactivated by hand": of(kit.Deactivated, evicted(kueue.WorkloadDeactivated, "The workload is deactivated")).
			means("WorkloadDeactivated", "Workload wl was deactivated (Deactivated: The workload is deactivated); set its spec.active to true, and the job queues again"),
		"deactivated by Kueue": of(kit.Deactivated, evicted("DeactivatedDueToRequeuingLimitExceeded", "exceeding the maximum number of re-queuing retries")).
			tells("WorkloadDeactivated", "Workload wl was deactivated by Kueue (DeactivatedDueToRequeuingLimitExceeded: exceeding the maximum number of re-queuing retries); "+another),
		"deactivated when its time was over": of(kit.Deactivated, evicted("DeactivatedDueToMaximumExecutionTimeExceeded", "exceeding the maximum execution time")).
			tells("WorkloadDeactivated", "Workload wl was deactivated by Kueue (DeactivatedDueToMaximumExecutionTimeExceeded: exceeding the maximum execution time); "+another),
		"about to be evicted when its time is over": of(kit.Deactivated, target("MaximumExecutionTimeExceeded", "exceeding the maximum execution time")).
			tells("WorkloadDeactivated", "Workload wl was deactivated by Kueue (MaximumExecutionTimeExceeded: exceeding the maximum execution time); "+another),
		"made inactive before it was admitted": of(kit.Deactivated, unreserved(kueue.WorkloadDeactivated, "The workload is deactivated")).
			means("WorkloadDeactivated", "Workload wl was deactivated; set its spec.active to true, and the job queues again"),
		"a check rejects": of(check("budget", kueue.CheckStateReady, ""), check("site", kueue.CheckStateRejected, "no such site")).tells("AdmissionCheckRejected", rejected),
		"a check rejects, which deactivates it": of(kit.Deactivated, check("budget", kueue.CheckStateReady, ""), check("site", kueue.CheckStateRejected, "no such site")).
			tells("AdmissionCheckRejected", rejected),
		"a check rejects without a word": of(check("site", kueue.CheckStateRejected, "")).
			tells("AdmissionCheckRejected", "Workload wl was rejected by admission check \"site\"; when that is put right, "+another),
		"a check rejected, and it is about to be deactivated": of(check("site", kueue.CheckStatePending, ""),
			target(kueue.WorkloadEvictedByAdmissionCheck, `AdmissionCheck in Rejected state: "site" (no such site)`)).tells("AdmissionCheckRejected", rejected),
		"a check rejected, and its state is set back": of(kit.Deactivated, check("site", kueue.CheckStatePending, "Reset to Pending after eviction. Previously: Rejected"),
			evicted("DeactivatedDueToAdmissionCheck", `The workload is deactivated due to AdmissionCheck in Rejected state: "site" (no such site)`)).tells("AdmissionCheckRejected", rejected),
		"a check rejected it once, and somebody made it active again": of(evicted("DeactivatedDueToAdmissionCheck", `The workload is deactivated due to AdmissionCheck in Rejected state: "site" (no such site)`)),
		"a check retries": of(check("site", kueue.CheckStateRetry, "site is full")).
			tells("AdmissionCheckRetries", "Workload wl has to wait for admission check site, which gave its quota back to try again: site is full"),
		"a check retried, and its state is set back": of(check("site", kueue.CheckStatePending, "Reset to Pending after eviction. Previously: Retry"), evicted(kueue.WorkloadEvictedByAdmissionCheck, "At least one admission check is false")).
			tells("AdmissionCheckRetries", "Workload wl has to wait for an admission check, which gave its quota back to try again: At least one admission check is false"),
		"a check retried long ago, and it waits for quota": of(evicted(kueue.WorkloadEvictedByAdmissionCheck, "x"), is(kueue.WorkloadRequeued)(kueue.WorkloadBackoffFinished, ""),
			unreserved(kueue.WorkloadQuotaReservedReasonWaitingForQuota, "")),
		"a check retried long ago, and its queue is gone": of(evicted(kueue.WorkloadEvictedByAdmissionCheck, "x"), is(kueue.WorkloadRequeued)(kueue.WorkloadBackoffFinished, ""),
			unreserved(kueue.WorkloadInadmissible, "LocalQueue q doesn't exist")).
			tells("NotAdmissible", "Workload wl cannot be admitted: LocalQueue q doesn't exist; create it in namespace ns, or name another in label kueue.x-k8s.io/queue-name of the TrainJob"),
		"no LocalQueue":                        notAdmissible(kueue.WorkloadInadmissible, "LocalQueue q doesn't exist", "; create it in namespace ns, or name another in label kueue.x-k8s.io/queue-name of the TrainJob"),
		"held out of its queue by its user":    of(func(wl *kueue.Workload) { wl.Spec.QueueName = "q.held" }, unreserved(kueue.WorkloadInadmissible, "LocalQueue q.held doesn't exist")),
		"held until now, as Kueue saw it last": of(unreserved(kueue.WorkloadInadmissible, "LocalQueue q.held doesn't exist")),
		"a stopped LocalQueue with the name of what is held": of(func(wl *kueue.Workload) { wl.Spec.QueueName = "q.held" },
			unreserved(kueue.WorkloadQuotaReservedReasonSuspended, "LocalQueue q.held is stopped")).tells("NotAdmissible", "Workload wl cannot be admitted: LocalQueue q.held is stopped"+startsAgain),
		"a LocalQueue that is stopped":      notAdmissible(kueue.WorkloadQuotaReservedReasonSuspended, "LocalQueue q is stopped", startsAgain),
		"no ClusterQueue":                   notAdmissible(kueue.WorkloadQuotaReservedReasonMisconfigured, "ClusterQueue c doesn't exist", "; create it, or name another in the spec.clusterQueue of a new LocalQueue"),
		"a ClusterQueue that is not active": notAdmissible(kueue.WorkloadQuotaReservedReasonSuspended, "ClusterQueue c is inactive", "; its condition Active says why, spec.stopPolicy among other things"),
		"anything else that no quota helps": notAdmissible(kueue.WorkloadQuotaReservedReasonMisconfigured, "resource limits are wrong", ""),
	}, func(t *testing.T, tc noticed) {
		wl := kit.With(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "wl"}}, tc.workload)
		expect.Same(t, "Unexpected notice", tc.want, noticeOf(wl))
	})
}

// Whatever else is told of a TrainJob meanwhile, a notice is told once while it holds.
func TestNoticeIsToldOncePerChange(t *testing.T) {
	job, recorder := inttest.Job("uid"), events.NewFakeRecorder(10)
	r := New(recorder)
	stopped, missing := Notice{Reason: "NotAdmissible", Message: "stopped"}, Notice{Reason: "NotAdmissible", Message: "missing"}
	const told, isStopped, isMissing = "Normal Else something else", "Warning NotAdmissible stopped", "Warning NotAdmissible missing"
	for _, n := range []Notice{stopped, stopped, {}, stopped, missing, missing} {
		r.WarnOfState(job, n)
		r.Eventf(job, nil, "Normal", "Else", "Else", "something else")
	}
	expect.Same(t, "Unexpected events", []string{isStopped, told, isStopped, isMissing}, toldBy(recorder))
}

func TestPlacedMessage(t *testing.T) {
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "dataset-initializer", Count: new(int32(1))},
		{Name: "node", Count: new(int32(2)), ResourceUsage: kit.Amounts("cpu", "8", "memory", "64Gi", "nvidia.com/gpu", "16"),
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "cpus", "memory": "cpus", "nvidia.com/gpu": "h100"}},
	}}
	want := "Admitted from queue team by ClusterQueue gpus: dataset-initializer 1 pod on no flavor, it requests nothing; " +
		"node 2 pods on flavor cpus (64Gi memory, 8 cpu), flavor h100 (16 nvidia.com/gpu)"
	expect.Same(t, "Unexpected message", want, Placed(wl))
}

func TestDispatchIsTold(t *testing.T) {
	for where, cluster := range map[string]*string{"cluster west": new("west"), "another cluster": nil} {
		wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"},
			Status: kueue.WorkloadStatus{ClusterName: cluster, Admission: &kueue.Admission{ClusterQueue: "gpus"}}}
		expect.Same(t, "Unexpected message", "Admitted from queue team by ClusterQueue gpus, and runs in "+where, Dispatched(wl))
	}
}
