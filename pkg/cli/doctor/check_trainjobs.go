// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// settle is how long the garbage collector and Kueue may take for what they do anyway.
const settle = 10 * time.Second

var trainJobChecks = []check{{
	inOrder: "no TrainJob is stuck",
	looksAt: slices.Concat(pools, []Kind{trainJobs, workloads, jobSets, jobs, pods, localQueues, topologies, admissionChecks, schedulerView, crds}), wrong: stuckTrainJobs,
	ID: "TrainJobStuck", Severity: Warning, When: "it gets nowhere by itself, such as one whose priority class does not exist; an error where a controller is to blame, or quota is held meanwhile: JobSet, Jobs or pods are refused, a volume claim is missing, nodes are too small or full of pods. [explain](plugin.md#explain) tells more",
	problem: "The TrainJob {message}", effect: "It gets nowhere by itself ({phase}, {reason}).",
	commands: []string{"kubectl trainjob explain -n {namespace} {name}"},
}, {
	inOrder: "every TrainJob is one that Trainer since 2.2 can read", looksAt: []Kind{trainJobs, crds},
	wrong: func(f *Facts, found func(hit)) {
		for _, namespace := range slices.Sorted(maps.Keys(f.ProcessesByName)) {
			h := about("Namespace", "", namespace, "trainjobs", few(f.ProcessesByName[namespace]))
			if f.generation() >= trainjob.Trainer22 {
				h = h.as("ProcessesByName", Error)
				h.Effect = "Trainer can read no list of TrainJobs: none of the whole cluster starts, stops or ends."
			}
			found(h)
		}
	},
	ID: "ProcessesByName", Severity: Warning, When: "`numProcPerNode` of a TrainJob is a text, such as `auto`, which Trainer 2.1 alone can read; an error with a newer one, which then reads no TrainJob of the cluster",
	problem:  "spec.trainer.numProcPerNode is a text in {trainjobs}.",
	effect:   "Trainer since 2.2 takes a number: after an upgrade it could read no list of TrainJobs, and none of the whole cluster would start, stop or end.",
	advice:   "Delete these when they have ended, or create them again with a number, or without the field, which means auto:",
	commands: []string{"kubectl -n {name} get trainjobs -o custom-columns=NAME:.metadata.name,PROCESSES:.spec.trainer.numProcPerNode"},
}, {
	inOrder: "nothing holds an admission gate that nobody takes away", looksAt: []Kind{trainJobs, jobSets, jobs, pods, mutating, validating, deployments, trainJobProbe}, wrong: leftGates,
	ID: "GatesLeft", Severity: Error, When: "kueue-trainer is not installed, and its admission gate is still on TrainJobs, JobSets, Jobs or Pods",
	problem: "kueue-trainer is not installed, and its admission gate is still on {counts}.",
	effect:  "Their pods are never scheduled, also when they are admitted.", commands: []string{"kubectl trainjob hand-back -n {name}"},
}, {
	inOrder: "every Workload of a TrainJob has its TrainJob", looksAt: []Kind{trainJobs, workloads}, wrong: orphans,
	ID: "WorkloadOrphaned", Severity: Warning, When: "the Workload of a TrainJob has no TrainJob; an error where it holds quota",
	problem: "{problem}", effect: "Nobody looks after it; it stays in its queue.",
}, {
	inOrder: "the quota of pods that MultiKueue left goes with them", looksAt: []Kind{workloads, pods, deployments, configMaps, leases, mutating, validating}, wrong: keptQuota,
	ID: "WorkloadOrphaned", Severity: Error, When: "it keeps the quota of pods in a [worker](multikueue.md#what-to-expect), where no kueue-trainer runs that would let it go",
	problem: "No pod is left of TrainJob {trainjob}, and kueue-trainer, which would delete its Workload, is not running.",
	effect:  "It holds quota that no pod uses.",
}, {
	inOrder: "no JobSet of a TrainJob is queued a second time", looksAt: []Kind{jobSets, workloads},
	wrong: func(f *Facts, found func(hit)) {
		ofTrainJobs := sets.New[types.UID]()
		for i := range f.JobSets {
			if controllerOf(&f.JobSets[i]).Kind == trainjob.GVK.Kind {
				ofTrainJobs.Insert(f.JobSets[i].UID)
			}
		}
		for _, wl := range f.Workloads {
			if owner := controllerOf(&wl); ofTrainJobs.Has(owner.UID) && !kueuelib.IsFinished(&wl) {
				found(about("Workload", wl.Namespace, wl.Name, "jobset", owner.Name))
			}
		}
	},
	ID: "CountedTwice", Severity: Error, When: "a TrainJob's JobSet has a Workload too",
	problem:  "JobSet {jobset} has a Workload of its own, beside that of its TrainJob.",
	effect:   "Its pods are counted twice, and wait for two admissions.",
	advice:   "Let Kueue know first that TrainJobs are managed outside, if its configuration does not list them.",
	commands: []string{"kubectl -n {namespace} delete workload {name}"},
}}

// controllerOf is empty for an object that nothing controls.
func controllerOf(obj metav1.Object) metav1.OwnerReference {
	return ptr.Deref(metav1.GetControllerOfNoCopy(obj), metav1.OwnerReference{})
}

// leftGates finds what kueue-trainer gated and, being uninstalled, does not free.
func leftGates(f *Facts, found func(hit)) {
	if f.managerInstalled() || f.integrates() == external {
		return
	}
	counts := map[string][]string{}
	holds := func(pods *corev1.PodSpec) bool { return patch.HasAdmissionGate(pods.SchedulingGates) }
	count(counts, "TrainJob", f.TrainJobs, func(job *trainjob.TrainJob) bool { return !job.Finished() && patch.HoldsGate(&job.Spec) })
	count(counts, "JobSet", f.JobSets, func(js *jobsetapi.JobSet) bool {
		return slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool { return holds(&rj.Template.Spec.Template.Spec) })
	})
	count(counts, "Job", f.Jobs, func(job *batchv1.Job) bool { return holds(&job.Spec.Template.Spec) && !podset.JobEnded(job) })
	count(counts, "Pod", f.Pods, func(pod *corev1.Pod) bool { return holds(&pod.Spec) })
	for namespace, held := range counts {
		h := about("Namespace", "", namespace, "counts", strings.Join(held, ", "))
		if f.generation() == trainjob.Trainer21 {
			h.Advice = "hand-back is for a change to the in-tree integration, which Trainer 2.1 has none of; kueue-trainer frees them:"
			h.Commands = []string{f.apply("default")}
		}
		found(h)
	}
}

// count adds, by namespace, how many of the items are meant.
func count[T any, P inventory.Object[T]](counts map[string][]string, kind string, items []T, meant func(*T) bool) {
	in := map[string]int{}
	for i := range items {
		if meant(&items[i]) {
			in[P(&items[i]).GetNamespace()]++
		}
	}
	for namespace, n := range in {
		counts[namespace] = append(counts[namespace], show.Count(n, kind))
	}
}

// orphans finds Workloads of TrainJobs that do not exist any more, or that lost their owner, as in a restored backup.
func orphans(f *Facts, found func(hit)) {
	there := sets.New[types.UID]()
	for i := range f.TrainJobs {
		there.Insert(f.TrainJobs[i].UID)
	}
	for _, wl := range f.Workloads {
		problem := orphaned(&wl, there)
		if problem == "" || f.settling(&wl) || wl.DeletionTimestamp.IsZero() && kueuelib.IsFinished(&wl) {
			continue
		}
		h := abandoned(&wl, "problem", problem)
		if kueuelib.HasQuotaReservation(&wl) {
			h.Severity, h.Effect = Error, "It holds quota that no pod uses, for ever."
		}
		if heldForPods(&wl) {
			h.Effect = keepsFromAdmission
		}
		found(h)
	}
}

// abandoned is about a Workload that nobody looks after.
func abandoned(wl *kueue.Workload, values ...any) hit {
	h := about("Workload", wl.Namespace, wl.Name, values...)
	h.Commands = []string{fmt.Sprintf("kubectl -n %s delete workload %s --wait=false", wl.Namespace, wl.Name)}
	if len(wl.Finalizers) > 0 {
		h.Commands = append(h.Commands, fmt.Sprintf(`kubectl -n %s patch workload %s --type=merge -p '{"metadata":{"finalizers":null}}'`, wl.Namespace, wl.Name))
	}
	return h
}

const keepsFromAdmission = "MultiKueue takes the TrainJob for admitted here. The command gives the quota away, though pods may still use it."

// heldForPods reports whether kueue-trainer keeps a Workload that MultiKueue has deleted.
func heldForPods(wl *kueue.Workload) bool {
	return !wl.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(wl, placeholder.Finalizer)
}

// keptQuota finds Workloads that keep quota of pods which MultiKueue left, where no kueue-trainer would let it go.
func keptQuota(f *Facts, found func(hit)) {
	if problem, _ := f.notRunning(); f.managerInstalled() && problem == "" {
		return
	}
	for _, wl := range f.Workloads {
		h := abandoned(&wl, "trainjob", wl.Labels[placeholder.Label])
		switch owner := controllerOf(&wl); {
		case f.settling(&wl):
			continue
		case heldForPods(&wl) && owner.Name != "":
			h.Problem = fmt.Sprintf("MultiKueue deleted the Workload of TrainJob %s, and kueue-trainer, which would let it go, is not running.", owner.Name)
			h.Effect = keepsFromAdmission
		case len(placeholder.Runs(&wl)) > 0 && len(placeholder.PodsOf(&wl, f.running(&wl))) == 0:
		default:
			continue
		}
		found(h)
	}
}

// running returns the pods in a Workload's namespace that have not ended.
func (f *Facts) running(wl *kueue.Workload) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(f.Pods), func(pod corev1.Pod) bool { return pod.Namespace != wl.Namespace || podset.PodEnded(&pod) })
}

// orphaned tells what a TrainJob's Workload lacks, or is empty. One that MultiKueue makes in a worker comes before its job.
func orphaned(wl *kueue.Workload, there sets.Set[types.UID]) string {
	owner := metav1.GetControllerOfNoCopy(wl)
	switch {
	case owner == nil && heldForPods(wl):
		return fmt.Sprintf("The Workload is deleted, and has no owner by which kueue-trainer would find it to take finalizer %s off.", placeholder.Finalizer)
	case owner == nil && !placeholder.IsCopy(wl) && len(wl.OwnerReferences) == 0 && strings.HasPrefix(wl.Name, "trainjob-"):
		return "The Workload has no owner, and its name is one of a TrainJob's."
	case ledger.OfTrainJob(wl) && !heldForPods(wl) && !there.Has(owner.UID):
		return fmt.Sprintf("The Workload's TrainJob %s does not exist any more.", owner.Name)
	}
	return ""
}

// settling reports whether a Workload was made, or is deleted, just now.
func (f *Facts) settling(wl *kueue.Workload) bool {
	return f.Now.Sub(ptr.Deref(wl.DeletionTimestamp, wl.CreationTimestamp).Time) < settle
}

// leftOut are reasons that are findings of their own, about the queue, and what a job's user has brought about.
var leftOut = []string{
	"ClusterQueueMissing", "ClusterQueueDeleted", "ClusterQueueStopped", "ClusterQueueInactive", "LocalQueueStopped", "Held", "DeactivatedDueToMaximumExecutionTimeExceeded",
}

// blamed are reasons for which a controller is to blame, not the job or its queue.
var blamed = []string{"NobodyReacts", "KueueSilent", jobevents.ReasonNotStarted, "PodsMissing"}

// holding are reasons for which a job has quota and no pods until others in its namespace or on its nodes have ended.
var holding = []string{"TooManyPods", "PodsRefused"}

// stuckTrainJobs finds TrainJobs that get nowhere until somebody acts, one case for all alike in a namespace.
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
