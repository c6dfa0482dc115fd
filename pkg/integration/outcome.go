// SPDX-License-Identifier: Apache-2.0

package integration

import "time"

// outcome is what the look at a TrainJob before jobframework's comes to. The zero value
// leaves the rest to jobframework.
type outcome struct {
	// done is set when there is nothing for jobframework to do, or not yet. An error ends the
	// reconcile too: ask ends.
	done bool
	// unqueued is set when that is because the job does not queue: what is made of it
	// meanwhile needs the gate.
	unqueued bool
	// stale is set when our view of the job is older than our last write of it.
	stale bool
	// again is when to look again at a job that jobframework does not look at; 0 is never.
	again time.Duration
	err   error
}

// done returns the outcome of a look that ends the reconcile, with an error or without.
func done(err error) outcome { return outcome{done: true, err: err} }

// lookAgain returns the outcome of a look that ends the reconcile for some time.
func lookAgain(in time.Duration) outcome { return outcome{done: true, again: in} }

// unqueued returns the outcome for a job that does not queue for some time.
func unqueued(again time.Duration) outcome {
	return outcome{done: true, unqueued: true, again: again}
}

// ends reports whether the reconcile ends before jobframework's look.
func (o outcome) ends() bool { return o.done || o.err != nil }

// start is what a reconcile made of an admission.
type start struct {
	// message says where the job was sent, if it was started.
	message string
	// rollingOut is set when it was not because Trainer may not read where to.
	rollingOut bool
	// excess is in what the JobSet asks for more than Trainer would make of the job now; the
	// job did not start for it.
	excess string
}
