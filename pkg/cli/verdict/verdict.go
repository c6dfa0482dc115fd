// SPDX-License-Identifier: Apache-2.0

// Package verdict says, without a cluster, what JobSet's webhook says of a JobSet, and the
// API server of the Jobs and pods that come of it.
//
// The rules for Jobs and pods are the API server's own, out of k8s.io/kubernetes, which has
// no smaller module with them and promises nobody a stable API: no copy of them would stay
// right. Only the plugin may link it. The manager does without, since there the API server
// itself is asked.
//
// verdict.go says what is refused of one JobSet and all that comes of it, jobset.go judges
// JobSets, job.go Jobs and their pods, path.go follows paths in objects.
package verdict

import (
	"context"

	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Refusal is something that is refused for good, or waits for ever: nobody but a person can
// change it.
type Refusal struct {
	// Kind is what is refused: a JobSet, a Job or a Pod.
	Kind string
	// ReplicatedJob is the one that is refused; empty for the JobSet as a whole.
	ReplicatedJob string
	// Path goes on from the JobSet or, with a ReplicatedJob, from its template, with names of
	// keyed lists in brackets as in package provenance.
	Path string
	// Message says what is wrong.
	Message string
	// Waits is set for what is accepted, and then waits for itself.
	Waits bool
}

// Of returns what is refused of a JobSet as Trainer renders it, and of what JobSet makes of
// it. Of each replicated job the first Job and its first pod are looked at: the others
// differ from them by numbers in names alone.
func Of(ctx context.Context, js *jobsetapi.JobSet) []Refusal {
	js = withDefaults(js)
	refusals := ofJobSet(js)
	for i := range js.Spec.ReplicatedJobs {
		refusals = append(refusals, ofJob(ctx, js, &js.Spec.ReplicatedJobs[i])...)
	}
	return refusals
}
