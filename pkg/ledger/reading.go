// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Facts are what a Workload does not say of itself.
type Facts struct {
	// WaitsForPods is set where Kueue waits for pods, so that PodsReady tells when they are.
	WaitsForPods bool
	// Started is when the first of the child Jobs began to run, zero where none has.
	Started time.Time
	// JobEnded is when the TrainJob finished or was deleted, zero while it may run on; pods may
	// be left, and hold the quota, after it. Outcome is what its run comes to then.
	JobEnded time.Time
	Outcome  string
	// User is the value of the label of TrainJobs that says whose they are; unknown where the
	// TrainJob is gone before its Workload.
	User        string
	UserUnknown bool
}

// Reading is what one version of a Workload proves: since when it holds quota of whom, what it
// did with it and when, and when it gave it back. Times are those of the object, in seconds.
type Reading struct {
	UID types.UID
	// Name and Version are those of the object.
	Name    types.NamespacedName
	Version string
	// Reserved is when it got the quota that it holds, or held when it finished; zero: it holds
	// none, and gave back what it had at Released.
	Reserved, Released time.Time
	// Admitted and Accumulated are Kueue's count of admitted seconds: how far Accumulated grew
	// tells when a former admission ended, though another one began since.
	Admitted    time.Time
	Accumulated int32
	Shares      []Share
	userUnknown bool
	// Marks are in the order of time; the first is that of the reservation.
	Marks []Mark
	// Ended is when it finished, and Outcome what its run comes to, also if the quota is given back without.
	Ended   time.Time
	Outcome string
}

// Mark is the beginning of a phase.
type Mark struct {
	Phase string    `json:"phase"`
	At    time.Time `json:"at"`
	// Assumed is set where the object tells that there was such a phase, but not since when. It
	// counts for those who know no better.
	Assumed bool `json:"-"`
}

// Share is an amount of one resource in one flavor, in the resource's base unit.
type Share struct {
	Series
	Amount float64 `json:"amount"`
}

// Read returns what a Workload of a TrainJob proves.
func Read(wl *kueue.Workload, facts Facts) Reading {
	r := Reading{
		UID: wl.UID, Name: types.NamespacedName{Namespace: wl.Namespace, Name: wl.Name}, Version: wl.ResourceVersion,
		Outcome: metrics.OutcomeLost, userUnknown: facts.UserUnknown,
	}
	r.Accumulated = ptr.Deref(wl.Status.AccumulatedPastExecutionTimeSeconds, 0)
	r.Admitted = kueuelib.Since(wl.Status.Conditions, kueue.WorkloadAdmitted)
	reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	stopped := stoppedAt(wl, facts, &r)
	if reserved == nil || reserved.Status != metav1.ConditionTrue || wl.Status.Admission == nil {
		if reserved != nil && reserved.Status == metav1.ConditionFalse {
			r.Released = reserved.LastTransitionTime.Time
			r.Marks = until(nil, stopped)
		}
		return r
	}
	r.Reserved = reserved.LastTransitionTime.Time
	r.Shares = sharesOf(wl, facts.User)
	r.Marks = until(append([]Mark{{Phase: metrics.PhaseWaiting, At: r.Reserved}}, running(wl, r, facts)...), stopped)
	if r.Ended = kueuelib.Since(wl.Status.Conditions, kueue.WorkloadFinished); !r.Ended.IsZero() {
		r.Outcome = metrics.OutcomeFailed
		switch apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished).Reason {
		case kueue.WorkloadFinishedReasonSucceeded:
			r.Outcome = metrics.OutcomeUseful
		case kueue.WorkloadFinishedReasonOwnerNotFound:
			r.Outcome = metrics.OutcomeDeleted
		}
	}
	return r
}

// stoppedAt returns when whatever ends the run first was decided, zero for nothing, and has r
// tell what the run comes to by that.
func stoppedAt(wl *kueue.Workload, facts Facts, r *Reading) time.Time {
	var first time.Time
	note := func(at time.Time, outcome string) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first, r.Outcome = at, outcome
		}
	}
	outcome := metrics.OutcomeLost
	if kueuelib.OverTime(wl) != nil {
		outcome = metrics.OutcomeFailed // It is not done again.
	}
	note(kueuelib.Since(wl.Status.Conditions, kueue.WorkloadEvicted), outcome)
	note(facts.JobEnded, facts.Outcome)
	note(ptr.Deref(wl.DeletionTimestamp, metav1.Time{}).Time, metrics.OutcomeDeleted)
	return first
}

// running returns since when pods run, and when they did not meanwhile.
func running(wl *kueue.Workload, r Reading, facts Facts) []Mark {
	if r.Admitted.IsZero() {
		return nil
	}
	ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	if ready == nil || ready.LastTransitionTime.Time.Before(r.Admitted) {
		// Nobody said so of this admission.
		if facts.WaitsForPods || facts.Started.Before(r.Reserved) {
			return nil
		}
		return []Mark{{Phase: metrics.PhaseRunning, At: facts.Started}}
	}
	at, before := ready.LastTransitionTime.Time, Mark{Phase: metrics.PhaseRunning, At: r.Admitted, Assumed: true}
	switch {
	case ready.Status == metav1.ConditionTrue && ready.Reason == kueue.WorkloadRecovered:
		return []Mark{before, {Phase: metrics.PhaseRunning, At: at}}
	case ready.Status == metav1.ConditionTrue:
		return []Mark{{Phase: metrics.PhaseRunning, At: at}}
	case ready.Reason == kueue.WorkloadWaitForRecovery:
		return []Mark{before, {Phase: metrics.PhaseWaiting, At: at}}
	case kueuelib.IsEvicted(wl):
		// The condition is reset at a stop; only one that was true is.
		return []Mark{before}
	}
	return nil
}

func until(marks []Mark, stopped time.Time) []Mark {
	if stopped.IsZero() {
		return marks
	}
	if len(marks) > 0 && stopped.Before(marks[0].At) {
		stopped = marks[0].At
	}
	marks = slices.DeleteFunc(marks, func(m Mark) bool { return m.At.After(stopped) })
	return append(marks, Mark{Phase: metrics.PhaseStopping, At: stopped})
}

// sharesOf returns what a Workload holds as Kueue counts it, without pods that it reclaimed.
func sharesOf(wl *kueue.Workload, user string) []Share {
	class := ptr.Deref(wl.Spec.PriorityClassRef, kueue.PriorityClassRef{}).Name
	var shares []Share
	for of, amount := range kueuelib.Holds(wl) {
		shares = append(shares, Share{Amount: amount.AsApproximateFloat64(of.Resource), Series: Series{
			ClusterQueue: string(wl.Status.Admission.ClusterQueue), Namespace: wl.Namespace, LocalQueue: string(wl.Spec.QueueName),
			Flavor: string(of.Flavor), Resource: string(of.Resource), PriorityClass: class, User: user,
		}})
	}
	slices.SortFunc(shares, func(a, b Share) int { return a.compare(b.Series) })
	return shares
}

// FactsOf returns what a TrainJob tells: whether it ended by itself or was deleted, what that makes of its run, and whose it
// is by a label, if one is named. nil is one that is gone.
func FactsOf(job *trainjob.TrainJob, userLabel string) Facts {
	if job == nil {
		return Facts{UserUnknown: true}
	}
	facts := Facts{User: job.Labels[userLabel]}
	if job.DeletionTimestamp != nil {
		facts.JobEnded, facts.Outcome = job.DeletionTimestamp.Time, metrics.OutcomeDeleted
	}
	for condition, outcome := range map[string]string{trainer.TrainJobComplete: metrics.OutcomeUseful, trainer.TrainJobFailed: metrics.OutcomeFailed} {
		if at := kueuelib.Since(job.Status.Conditions, condition); !at.IsZero() {
			facts.JobEnded, facts.Outcome = at, outcome
		}
	}
	return facts
}

// StartOf returns when pods of a TrainJob with this Workload began to run, zero where none has: with the
// first of its Jobs or, where these are in another cluster, with the admission.
func StartOf(job *trainjob.TrainJob, wl *kueue.Workload, jobs []batchv1.Job) time.Time {
	if job.ManagedExternally() {
		return kueuelib.Since(wl.Status.Conditions, kueue.WorkloadAdmitted)
	}
	var first time.Time
	for i := range jobs {
		if at := jobs[i].Status.StartTime; at != nil && (first.IsZero() || at.Time.Before(first)) {
			first = at.Time
		}
	}
	return first
}
