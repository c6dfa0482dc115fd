// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// explained are reasons that are findings of their own, about the queue.
var explained = []string{"ClusterQueueMissing", "ClusterQueueStopped", "ClusterQueueInactive", "LocalQueueStopped"}

// meant are reasons that a job's user has brought about, and may end.
var meant = []string{"Held"}

// blamed are reasons for which a controller is to blame, not the job or its queue.
var blamed = []string{"NobodyReacts", "KueueSilent", "NotStarted", "PodsMissing"}

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
	read := f.byOwner(patch.Of(generation))
	type alike struct{ namespace, reason, cause string }
	others := map[alike][]string{}
	first := map[alike]hit{}
	for i := range f.TrainJobs {
		job := &f.TrainJobs[i]
		state := explain.StateOf(read(job))
		key := alike{job.Namespace, state.Reason, state.Cause}
		if !state.Stuck && !slices.Contains(holding, state.Reason) || slices.Contains(slices.Concat(explained, meant), state.Reason) {
			continue
		}
		if _, known := first[key]; known {
			others[key] = append(others[key], job.Name)
			continue
		}
		first[key] = stuck(job, state)
	}
	for key, h := range first {
		if names := others[key]; len(names) > 0 {
			h.values[1] = fmt.Sprintf("%s %s in the namespace for the same reason: %s.", h.values[1], areStuck(len(names)), few(names))
		}
		found(h)
	}
}

func stuck(job *trainjob.TrainJob, state explain.State) hit {
	h := about("TrainJob", job.Namespace, job.Name, "message", sentence(state.Message), "phase", state.Phase, "reason", state.Reason)
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

// areStuck is "So is 1 more" or "So are 3 more".
func areStuck(n int) string {
	if n == 1 {
		return "So is 1 more"
	}
	return fmt.Sprintf("So are %d more", n)
}

// byOwner sorts what was read by the TrainJob that it belongs to.
func (f *Facts) byOwner(field patch.Field) func(*trainjob.TrainJob) *explain.Facts {
	workloads, jobSets := controlled(f.Workloads), controlled(f.JobSets)
	jobs := grouped(f.Jobs, func(job *batchv1.Job) types.NamespacedName { return jobSetOf(job) })
	pods := grouped(f.Pods, func(pod *corev1.Pod) types.NamespacedName { return jobSetOf(pod) })
	// Whoever may create events in a namespace of his own may name any UID.
	type regarding struct {
		namespace string
		uid       types.UID
	}
	all := grouped(f.Events, func(event *corev1.Event) regarding { return regarding{event.Namespace, event.InvolvedObject.UID} })
	manager := cluster.ManagerConfigurationIn(f.configMap(managerPart))
	namespaces := grouped(f.Namespaces, func(namespace *corev1.Namespace) string { return namespace.Name })
	return func(job *trainjob.TrainJob) *explain.Facts {
		told := func(uid types.UID) []corev1.Event { return all[regarding{job.Namespace, uid}] }
		facts := &explain.Facts{
			Now: f.Now, Field: field, Manager: manager, Classes: f.PriorityClasses, Cluster: f.Cluster, Job: job,
			Workload: workloads[job.UID], JobSet: jobSets[job.UID], Warnings: slices.Clone(told(job.UID)), WarningsUnseen: f.Unread[events] != nil,
		}
		if found := namespaces[job.Namespace]; len(found) > 0 {
			facts.Namespace = &found[0]
		}
		if facts.Workload != nil {
			facts.PodSets = facts.Workload.Spec.PodSets
		}
		if facts.JobSet != nil {
			key := types.NamespacedName{Namespace: job.Namespace, Name: facts.JobSet.Name}
			facts.Jobs, facts.Pods = jobs[key], pods[key]
			facts.Warnings = append(facts.Warnings, told(facts.JobSet.UID)...)
			for i := range facts.Jobs {
				facts.Warnings = append(facts.Warnings, told(facts.Jobs[i].UID)...)
			}
			for i := range facts.Pods {
				facts.PodEvents = append(facts.PodEvents, told(facts.Pods[i].UID)...)
			}
		}
		latestFirst(facts.Warnings)
		latestFirst(facts.PodEvents)
		return facts
	}
}

// controlled returns objects by the UID of their controller.
func controlled[T any, P interface {
	*T
	metav1.Object
}](items []T) map[types.UID]*T {
	found := map[types.UID]*T{}
	for i := range items {
		if owner := metav1.GetControllerOfNoCopy(P(&items[i])); owner != nil {
			found[owner.UID] = &items[i]
		}
	}
	return found
}

// grouped returns objects by a key.
func grouped[T any, K comparable](items []T, key func(*T) K) map[K][]T {
	groups := map[K][]T{}
	for i := range items {
		k := key(&items[i])
		groups[k] = append(groups[k], items[i])
	}
	return groups
}

// jobSetOf names the JobSet that a Job or pod was made for.
func jobSetOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[jobsetapi.JobSetNameKey]}
}

func latestFirst(events []corev1.Event) {
	slices.SortStableFunc(events, func(a, b corev1.Event) int {
		return cmp.Or(b.LastTimestamp.Compare(a.LastTimestamp.Time), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
}
