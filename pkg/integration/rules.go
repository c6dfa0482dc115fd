// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
)

// phase is where a TrainJob is in its life, for a reconcile.
type phase string

const (
	phaseGone      phase = "Gone"
	phaseDeleting  phase = "Deleting"
	phaseFinished  phase = "Finished"
	phaseSuspended phase = "Suspended"
	phaseRunning   phase = "Running"
)

// phase returns the one that the job is in.
func (o *observed) phase() phase {
	switch {
	case o.UID == "":
		return phaseGone
	case !o.DeletionTimestamp.IsZero():
		return phaseDeleting
	case o.TrainJob.Finished():
		return phaseFinished
	case o.Suspended():
		return phaseSuspended
	}
	return phaseRunning
}

// alive reports whether the job was found, and is neither finished nor about to be gone.
func (o *observed) alive() bool {
	return o.phase() == phaseSuspended || o.phase() == phaseRunning
}

// rule ensures one thing of a TrainJob.
type rule func(context.Context, *job) result

// ruleSet is what is ensured of a TrainJob in a phase.
type ruleSet struct {
	// before come before jobframework looks at the job. The first that ends the reconcile is the last.
	before []rule
	// always come after that, whatever it came to. Each is followed.
	always []rule
	// settled come last, where nothing ended the reconcile and jobframework did what it had to. One that brings the job into
	// another phase is the last.
	settled []rule
}

// rulesOf returns those of a phase. jobframework may bring a job into another one: what comes after it goes by that.
func rulesOf(p phase) ruleSet {
	switch p {
	case phaseGone:
		return ruleSet{
			before: []rule{deleteCopies, awaitPodsOfDeleted},
			always: []rule{followUp, finishDeletedWorkloads},
		}
	case phaseDeleting:
		return ruleSet{
			before: []rule{suspendDeleted, deleteCopies, awaitPodsOfDeleted},
			always: []rule{followUp, finishDeletedWorkloads, correctDrift},
		}
	case phaseFinished:
		return ruleSet{
			before: []rule{awaitOwnWrite, measureStopped, awaitPodsOfFormer, noteResumed, alignWithWorkload, finish},
			always: []rule{followUp, finishDeletedWorkloads, correctDrift},
		}
	case phaseSuspended:
		return ruleSet{
			before: []rule{
				awaitOwnWrite, measureStopped, awaitPodsOfFormer, noteResumed, noteFormerCluster, ensureHeldBeforeStart,
				startDeactivation, takeOverlooked, alignWithWorkload, follow,
			},
			always:  []rule{tellNotice, followUp, finishDeletedWorkloads, awaitTrainer, correctDrift, ensureStarted},
			settled: []rule{ensureHeld, ensureGate, ensureDispatched, watchStop, reportPodsReady},
		}
	default:
		return ruleSet{
			before:  []rule{awaitOwnWrite, awaitPodsOfFormer, noteResumed, startDeactivation, takeOverlooked, alignWithWorkload},
			always:  []rule{tellNotice, followUp, awaitTrainer, correctDrift, ensureStarted},
			settled: []rule{ensureHeld, ensureEnded, ensurePlaced, ensureWithinQuota, ensureDispatched, reportPodsReady},
		}
	}
}

// result is what a rule comes to, and what a reconcile comes to by its rules. The zero value leaves the rest to those
// that follow.
type result struct {
	// done is set when there is nothing for jobframework to do, or not yet. An error ends the reconcile too: ask ends.
	done bool
	// unqueued is set when that is because the job does not queue: what is made of it meanwhile needs the gate.
	unqueued bool
	// stale is set when our view of the job is older than our last write of it.
	stale bool
	// again is when to look again, 0 is never.
	again time.Duration
	err   error
}

// The results of rules: done ends the reconcile, with an error or without, lookAgain does so for some time, unqueued for a job
// that does not queue for some time; ofError is of one that came to an error, or to none.
func done(err error) result               { return result{done: true, err: err} }
func lookAgain(in time.Duration) result   { return result{done: true, again: in} }
func unqueued(again time.Duration) result { return result{done: true, unqueued: true, again: again} }
func ofError(err error) result            { return result{err: err} }

// ends reports whether the reconcile ends before jobframework looks.
func (r result) ends() bool { return r.done || r.err != nil }

// add adds what another rule comes to: the earliest time to look again, and the first error. Reconcile goes by one
// error: one of quota comes before one of a JobSet that drifted.
func (r *result) add(other result) {
	r.done, r.unqueued, r.stale = r.done || other.done, r.unqueued || other.unqueued, r.stale || other.stale
	if other.again > 0 && (r.again == 0 || other.again < r.again) {
		r.again = other.again
	}
	r.err = cmp.Or(r.err, other.err)
}

// asResult returns the result for the controller.
func (r result) asResult() (ctrl.Result, error) { return ctrl.Result{RequeueAfter: r.again}, r.err }

// untilEnd adds up rules to the first that ends the reconcile.
func untilEnd(ctx context.Context, j *job, rules []rule) result {
	var sum result
	for _, of := range rules {
		if sum.add(of(ctx, j)); sum.ends() {
			break
		}
	}
	return sum
}

// all adds up rules as long as the job stays in its phase.
func all(ctx context.Context, j *job, rules []rule) result {
	var sum result
	for in, i := j.phase(), 0; i < len(rules) && j.phase() == in; i++ {
		sum.add(rules[i](ctx, j))
	}
	return sum
}

// awaitOwnWrite ends a reconcile whose view of the job is older than our last write: the newer one comes as an event, or
// the write was lost.
func awaitOwnWrite(_ context.Context, j *job) result {
	if j.deps.expectations.Satisfied(&j.TrainJob) {
		return result{}
	}
	return result{done: true, stale: true, again: jobclient.OverdueAfter}
}

// noteResumed takes note of a job that runs by our view, whoever resumed it.
func noteResumed(_ context.Context, j *job) result {
	j.pods().NoteResumed(&j.TrainJob)
	return result{}
}

// measureStopped records a stop that somebody else made.
func measureStopped(_ context.Context, j *job) result {
	j.record.run.FoundSuspended(j.deps.metrics, &j.TrainJob, j.holdingQuota())
	return result{}
}
