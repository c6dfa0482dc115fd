// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubeflow/trainer/v2/pkg/constants"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// podsMade counts the pods that are there, but for failed ones, and those that Jobs want by now, those to come included.
func (f *Facts) podsMade() (made, wanted int32) {
	for _, job := range f.Jobs {
		if podset.JobEnded(&job) {
			continue
		}
		wanted += max(0, podset.PodsOfJob(&job.Spec)-failedIndexes(&job))
		made += int32(len(picked(f.Pods, func(pod corev1.Pod) bool {
			return pod.Labels[batchv1.JobNameLabel] == job.Name && pod.Status.Phase != corev1.PodFailed
		})))
	}
	if f.JobSet == nil {
		return made, wanted
	}
	for _, rj := range f.JobSet.Spec.ReplicatedJobs {
		wanted += f.jobsDue(&rj) * podset.PodsPerReplica(&rj)
	}
	return made, wanted
}

// failedIndexes counts those of a Job for which it makes no pods any more, such as "1,3-5".
func failedIndexes(job *batchv1.Job) int32 {
	indexes, _ := cpuset.Parse(ptr.Deref(job.Status.FailedIndexes, "")) // Both are written alike.
	return int32(indexes.Size())
}

// jobsToCome reports whether JobSet has yet to make or resume Jobs. It makes Service and volume claims before that.
func (f *Facts) jobsToCome() bool {
	due := func(rj *jobsetapi.ReplicatedJob) bool { return f.jobsDue(rj) > 0 }
	suspended := func(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) && !podset.JobEnded(job) }
	return find(f.JobSet.Spec.ReplicatedJobs, due) != nil || !ptr.Deref(f.JobSet.Spec.Suspend, false) && find(f.Jobs, suspended) != nil
}

// jobsDue counts the Jobs of a replicated job that are not there and that wait for no other.
func (f *Facts) jobsDue(rj *jobsetapi.ReplicatedJob) int32 {
	if f.awaited(rj) != nil {
		return 0
	}
	return max(0, rj.Replicas-int32(len(f.jobsOf(rj.Name))))
}

// awaited returns what a replicated job waits for: of what it depends on or, where the JobSet starts in order, the one
// before it, which waits for those before itself; nil for nothing.
func (f *Facts) awaited(rj *jobsetapi.ReplicatedJob) *jobsetapi.DependsOn {
	all, on := f.JobSet.Spec.ReplicatedJobs, rj.DependsOn
	before := slices.IndexFunc(all, func(other jobsetapi.ReplicatedJob) bool { return other.Name == rj.Name }) - 1
	if policy := f.JobSet.Spec.StartupPolicy; policy != nil && policy.StartupPolicyOrder == jobsetapi.InOrder && before >= 0 {
		on = []jobsetapi.DependsOn{{Name: all[before].Name, Status: jobsetapi.DependencyReady}}
	}
	return find(on, func(on *jobsetapi.DependsOn) bool { return !f.reached(on) })
}

// reached reports whether the replicated job that another waits for is so far, by the rule of JobSet's
// dependencyReachedStatus. It goes by the Jobs: JobSet does not note how far they are while it cannot make the next.
func (f *Facts) reached(on *jobsetapi.DependsOn) bool {
	rj := find(f.JobSet.Spec.ReplicatedJobs, func(rj *jobsetapi.ReplicatedJob) bool { return rj.Name == on.Name })
	reached := picked(f.jobsOf(on.Name), func(job batchv1.Job) bool {
		if on.Status == jobsetapi.DependencyReady {
			return podset.JobEnded(&job) || job.Status.Succeeded+ptr.Deref(job.Status.Ready, 0) >= podset.PodsOfJob(&job.Spec)
		}
		return podset.JobHas(&job, batchv1.JobComplete)
	})
	return rj != nil && len(reached) >= int(rj.Replicas)
}

func (f *Facts) jobsOf(replicatedJob string) []batchv1.Job {
	return picked(f.Jobs, func(job batchv1.Job) bool { return job.Labels[jobsetapi.ReplicatedJobNameKey] == replicatedJob })
}

// backoff is how long the Job controller may wait before it makes a pod in place of one that has failed.
const backoff = 10 * time.Minute

// podsDue returns from when on Jobs have pods: they wait for Jobs before them, and before they replace failed pods.
func (f *Facts) podsDue(since metav1.Time) metav1.Time {
	due := []time.Time{since.Time}
	for i := range f.Jobs {
		due = append(due, ptr.Deref(f.Jobs[i].Status.CompletionTime, metav1.Time{}).Time)
	}
	for _, pod := range picked(f.Pods, func(pod corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed }) {
		due = append(due, pod.CreationTimestamp.Add(backoff))
		for _, c := range pod.Status.Conditions {
			due = append(due, c.LastTransitionTime.Add(backoff))
		}
	}
	return metav1.NewTime(slices.MaxFunc(due, time.Time.Compare))
}

// refusedMaking are events of those who could not make something. The latest whose product is missing holds the job.
var refusedMaking = []refusal{
	{"TrainJobResourcesCreationFailed", "JobSetRefused", "Trainer", "JobSet"},
	{"JobCreationFailed", "JobsRefused", "JobSet", "Jobs"},
	{"HeadlessServiceCreationFailed", "ServiceRefused", "JobSet", "Service"},
	{"PVCCreationFailed", "VolumeClaimRefused", "JobSet", "volume claims"},
	{"FailedCreate", "PodsRefused", "the Job controller", "pods"},
}

type refusal struct{ event, reason, who, what string }

// unmade tells who could not make what of some kinds, and why; nil where nobody said so in the present attempt to start.
func (f *Facts) unmade(kinds ...string) *State {
	of := func(e *corev1.Event) int {
		return slices.IndexFunc(refusedMaking, func(r refusal) bool { return r.event == e.Reason && slices.Contains(kinds, r.what) })
	}
	told := find(f.Warnings, func(e *corev1.Event) bool { return of(e) >= 0 && !eventTime(e).Before(f.begun()) })
	if told == nil {
		return nil
	}
	r, does := refusedMaking[of(told)], "make"
	if r.what == "JobSet" && f.JobSet != nil {
		does = "change"
	}
	s := &State{Reason: r.reason, Stuck: true, Cause: told.Message, Message: fmt.Sprintf("%s cannot %s its %s: %s", r.who, does, r.what, told.Message)}
	set, exceeds := f.ofTrainer(told), strings.Contains(told.Message, "exceeded quota")
	switch {
	case exceeds && mayEnd(told.Message):
		s.Stuck, s.Remedy = false, "wait until others in the namespace have ended, or raise the ResourceQuota that the message names"
	case exceeds:
		s.Remedy = "raise the ResourceQuota that the message names: it has less in all than one pod asks for"
	case set != "":
		s.Remedy = fmt.Sprintf("create the job again with another %s, which the message names and nobody can change", set)
	default:
		s.Remedy = "change what the message names: the runtime or a patch of the job, or who refuses it, and it is tried again; what is in spec.trainer takes another job"
	}
	return s
}

// inJob are fields of a Job or pod that Trainer may have taken from spec.trainer.
var inJob = regexp.MustCompile(`spec\.(parallelism|completions|containers\[(\d+)\]\.(image|command|args|env|resources))`)

// ofTrainer names the field of spec.trainer that was refused in a Job or pod of the nodes; empty where the job has none.
func (f *Facts) ofTrainer(told *corev1.Event) string {
	found, of := inJob.FindStringSubmatch(told.Message), f.Job.Spec.Trainer
	if found == nil || of == nil || f.JobSet == nil {
		return ""
	}
	containers := f.nodesNamedIn(told.InvolvedObject.Name + " " + told.Message)
	at, _ := strconv.Atoi(found[2]) // The expression takes digits alone.
	if found[2] == "" && containers != nil && of.NumNodes != nil {
		return "spec.trainer.numNodes"
	}
	sets := map[string]bool{
		"image": of.Image != nil, "command": of.Command != nil, "args": of.Args != nil, "env": of.Env != nil, "resources": of.ResourcesPerNode != nil,
	}
	if !sets[found[3]] || at >= len(containers) || containers[at].Name != constants.Node {
		return ""
	}
	return "spec.trainer." + strings.Replace(found[3], "resources", "resourcesPerNode", 1)
}

// nodesNamedIn returns the containers of the nodes' replicated job, where a text names one of its Jobs.
func (f *Facts) nodesNamedIn(text string) []corev1.Container {
	of := find(f.JobSet.Spec.ReplicatedJobs, func(rj *jobsetapi.ReplicatedJob) bool {
		node := find(rj.Template.Spec.Template.Spec.Containers, func(c *corev1.Container) bool { return c.Name == constants.Node })
		return node != nil && strings.Contains(text, f.JobSet.Name+"-"+rj.Name+"-")
	})
	return ptr.Deref(of, jobsetapi.ReplicatedJob{}).Template.Spec.Template.Spec.Containers
}

// unschedulable names what the scheduler says in a word of its own, where there is one.
func (f *Facts) unschedulable(pod *corev1.Pod, message string) (reason, remedy string) {
	switch {
	case strings.Contains(message, "persistentvolumeclaim") && strings.Contains(message, "not found"):
		return "VolumeClaimMissing", "create the PersistentVolumeClaim that the message names in the namespace of the job, or create the job again without the volume"
	case strings.Contains(message, "unbound immediate PersistentVolumeClaims"):
		return "VolumeClaimUnbound", "see why the PersistentVolumeClaims of the namespace are not bound: kubectl describe pvc"
	case strings.Contains(message, "Too many pods"):
		return tooManyPods, "wait until pods on these nodes have ended, or raise maxPods of their kubelets; pods in coveredResources of the ClusterQueue has Kueue count them"
	}
	for _, flavor := range f.flavorsOf(pod) {
		if remedy := cmp.Or(f.outdated(pod, flavor), f.noRoom(pod, flavor, message)); remedy != "" {
			return corev1.PodReasonUnschedulable, remedy
		}
	}
	// Several of what the scheduler says may be about nodes of other flavors.
	if unseen := picked([]string{inventory.Flavors, inventory.Nodes}, func(kind string) bool { return !f.Cluster.Saw(kind) }); len(unseen) > 0 {
		return corev1.PodReasonUnschedulable, fmt.Sprintf("ask an admin which of this it is, or for ClusterRole kueue-trainer-queues-viewer: you may not see %s", strings.Join(unseen, " and "))
	}
	return corev1.PodReasonUnschedulable, "the quota is more than the nodes have room for: kubectl trainjob pools shows both"
}

// flavorsOf are those that a pod was admitted to, as they are now.
func (f *Facts) flavorsOf(pod *corev1.Pod) (all []*kueue.ResourceFlavor) {
	for _, assigned := range f.assignments() {
		if string(assigned.Name) != pod.Labels[jobsetapi.ReplicatedJobNameKey] {
			continue
		}
		for _, name := range slices.Compact(slices.Sorted(maps.Values(assigned.Flavors))) {
			if flavor := f.Cluster.Flavor(name); flavor != nil {
				all = append(all, flavor)
			}
		}
	}
	return all
}

// outdated is for a flavor whose nodeLabels were changed after the admission.
func (f *Facts) outdated(pod *corev1.Pod, flavor *kueue.ResourceFlavor) string {
	if labels.SelectorFromSet(flavor.Spec.NodeLabels).Matches(labels.Set(pod.Spec.NodeSelector)) {
		return ""
	}
	return fmt.Sprintf("ResourceFlavor %s was changed since, and the pods keep its old node selector: kubectl trainjob requeue -n %s %s",
		flavor.Name, f.Job.Namespace, f.Job.Name)
}

// full reports whether nodes of a flavor have fewer GPUs than there is quota given of it, of a kind that the scheduler lacks.
func (f *Facts) full(flavor *kueue.ResourceFlavor, message string, nodes []*corev1.Node) bool {
	for _, name := range gpu.Allocatable(nodes...) {
		if !strings.Contains(message, "Insufficient "+string(name)) {
			continue
		}
		var given kueuelib.Amount
		for n := range f.Cluster.Workloads {
			if wl := &f.Cluster.Workloads[n]; kueuelib.HasQuotaReservation(wl) && !kueuelib.IsFinished(wl) {
				given = given.Add(kueuelib.Holds(wl)[kueuelib.FlavorResource{Flavor: kueue.ResourceFlavorReference(flavor.Name), Resource: name}])
			}
		}
		has := inventory.Allocatable(nodes, name)
		return given.CmpInt64(kueuelib.ResourceValue(name, has)) > 0
	}
	return true
}

// untolerated is how the scheduler names a taint.
var untolerated = regexp.MustCompile(`untolerated taint (\{[^}]+\})`)

// noRoom is for pods that would have room if nodes had no taint, or for which no node has GPUs although all together have
// those that were given. For who may not see nodes, the scheduler's words tell of taints, unless other nodes are full:
// nodes of other flavors have taints, too.
func (f *Facts) noRoom(pod *corev1.Pod, flavor *kueue.ResourceFlavor, message string) string {
	var usable, tainted []*corev1.Node
	for _, node := range f.Cluster.NodesOf(flavor) {
		switch {
		case !matches(&pod.Spec, node) || !inventory.Ready(node):
		case inventory.Untolerated(gpu.Lasting(node), pod.Spec.Tolerations) == nil:
			usable = append(usable, node)
		default:
			tainted = append(tainted, node)
		}
	}
	enough, full, said := !strings.Contains(message, "Insufficient "), f.full(flavor, message, usable), untolerated.FindStringSubmatch(message)
	switch {
	case len(tainted) > 0 && (enough || full && !f.full(flavor, message, slices.Concat(usable, tainted))):
		taint := inventory.Untolerated(gpu.Lasting(tainted[0]), pod.Spec.Tolerations)
		return fmt.Sprintf("ask who set taint %s on node %s to take it off", taint.ToString(), tainted[0].Name)
	case !f.Cluster.Saw(inventory.Nodes) && enough && said != nil:
		return fmt.Sprintf("ask an admin who set taint %s, to take it off", said[1])
	case flavor.Spec.TopologyName == nil && f.Cluster.Saw(inventory.Workloads) && !full:
		return fmt.Sprintf("free GPUs of flavor %s are spread over nodes, or pods without a queue have them: requeue a small job there (kubectl trainjob requeue), or give the flavor a topology (kubectl trainjob pools generate --topology)",
			flavor.Name)
	}
	return ""
}

// exceeded are the three lists of what a ResourceQuota says.
var exceeded = regexp.MustCompile(`requested: (.*), used: .*, limited: ([^ ]*)`)

// mayEnd reports whether what exceeds a ResourceQuota would fit when others have ended.
func mayEnd(message string) bool {
	lists := exceeded.FindStringSubmatch(message)
	if lists == nil {
		return true
	}
	// Both are written like labels: pods=1,requests.cpu=2.
	limits, _ := labels.ConvertSelectorToLabelsMap(lists[2])
	asked, _ := labels.ConvertSelectorToLabelsMap(lists[1])
	for name := range asked {
		limit, unlimited := resource.ParseQuantity(limits[name])
		amount, err := resource.ParseQuantity(asked[name])
		if unlimited == nil && err == nil && amount.Cmp(limit) > 0 {
			return false
		}
	}
	return true
}
