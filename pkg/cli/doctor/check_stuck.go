// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
)

// leftOut are reasons that are findings of their own, about the queue, and those that a job's user has brought about: that it
// is held, which he may end, or has reached the time limit that he gave it.
var leftOut = []string{
	"ClusterQueueMissing", "ClusterQueueDeleted", "ClusterQueueStopped", "ClusterQueueInactive", "LocalQueueStopped", "Held", "DeactivatedDueToMaximumExecutionTimeExceeded",
}

// blamed are reasons for which a controller is to blame, not the job or its queue.
var blamed = []string{"NobodyReacts", "KueueSilent", jobevents.ReasonNotStarted, "PodsMissing"}

// holding are reasons for which a job has quota and no pods until others in its namespace or
// on its nodes have ended.
var holding = []string{"TooManyPods", "PodsRefused"}

// stuckTrainJobs finds TrainJobs that get nowhere until somebody acts, one case for
// those of a namespace that are stuck for the same reason.
func stuckTrainJobs(f *Facts, found func(hit)) {
	generation := f.generation()
	if generation == 0 || f.Cluster == nil {
		return // a finding of its own
	}
	snapshot := f.snapshot(patch.Of(generation))
	type alike struct{ namespace, reason, cause string }
	states, names := map[alike]explain.State{}, map[alike][]string{}
	for _, facts := range snapshot.OfAll(f.TrainJobs) {
		job, state := facts.Job, explain.StateOf(facts)
		if (state.Stuck || slices.Contains(holding, state.Reason)) && !slices.Contains(leftOut, state.Reason) {
			key := alike{job.Namespace, state.Reason, state.Cause}
			if names[key] = append(names[key], job.Name); len(names[key]) == 1 {
				states[key] = state
			}
		}
	}
	for key, state := range states {
		found(stuck(key.namespace, names[key], state))
	}
}

// stuck is about the first of jobs that are stuck for the same reason, whose state is given.
func stuck(namespace string, names []string, state explain.State) hit {
	message := sentence(state.Message)
	if others := names[1:]; len(others) > 0 {
		message += fmt.Sprintf(" The same holds for %d more in the namespace: %s.", len(others), few(others))
	}
	h := about("TrainJob", namespace, names[0], "message", message, "phase", state.Phase, "reason", state.Reason)
	if !state.Stuck {
		h.Effect = fmt.Sprintf("It holds quota and does not run until others have ended (%s, %s).", state.Phase, state.Reason)
	}
	if state.Phase == explain.Starting || slices.Contains(blamed, state.Reason) {
		h = h.as("TrainJobStuck", Error)
	}
	switch {
	case strings.HasPrefix(state.Remedy, "kubectl "):
		h.Commands = []string{state.Remedy}
	case state.Remedy != "":
		h.Advice = sentence(strings.ToUpper(state.Remedy[:1]) + state.Remedy[1:])
	}
	return h
}

// snapshot is what explain tells the state of TrainJobs by.
func (f *Facts) snapshot(field patch.Field) *explain.Snapshot {
	s := &explain.Snapshot{
		Around:     explain.Around{Now: f.Now, Cluster: f.Cluster, Field: field, Manager: cluster.ManagerConfigurationIn(f.configMap(managerPart))},
		Namespaces: f.Namespaces, Workloads: f.Workloads, JobSets: f.JobSets, Jobs: f.Jobs, Pods: f.Pods, Events: f.Events,
	}
	var unread error
	if s.Kueue, unread = f.kueueSettings(); unread != nil {
		s.KueueUnseen = unread.Error()
	}
	if f.Unread[classes] == nil {
		s.Classes = &kueue.WorkloadPriorityClassList{Items: f.PriorityClasses}
	}
	if f.Unread[events] != nil {
		s.Unseen = []string{string(events)}
	}
	return s
}
