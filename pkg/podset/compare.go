// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// SameSelection reports whether two lists of PodSets ask for the same nodes, and for the same of
// them beside their containers: node selector, affinity, topology, priority, runtime class, overhead,
// resources of the pod and claims. Kueue's own comparison of a job with its Workload leaves these out,
// so a job that changed its mind while it waited would be admitted for what it said first.
func SameSelection(a, b []kueue.PodSet) bool {
	return slices.EqualFunc(a, b, func(x, y kueue.PodSet) bool {
		p, q := &x.Template.Spec, &y.Template.Spec
		return x.Name == y.Name &&
			equality.Semantic.DeepEqual(p.NodeSelector, q.NodeSelector) &&
			equality.Semantic.DeepEqual(p.Affinity, q.Affinity) &&
			differsBesideContainers(p, q) == "" &&
			p.PriorityClassName == q.PriorityClassName &&
			equality.Semantic.DeepEqual(x.TopologyRequest, y.TopologyRequest)
	})
}

// SameResources reports whether two lists of PodSets are charged alike: as many pods of the
// same names, which ask for the same resources, the overhead of their runtime class among them. What else the pods run is left out.
func SameResources(a, b []kueue.PodSet) bool {
	return slices.EqualFunc(a, b, func(x, y kueue.PodSet) bool {
		p, q := &x.Template.Spec, &y.Template.Spec
		return x.Name == y.Name && x.Count == y.Count &&
			slices.EqualFunc(p.InitContainers, q.InitContainers, asksAlike) &&
			slices.EqualFunc(p.Containers, q.Containers, asksAlike) &&
			differsBesideContainers(p, q) == ""
	})
}

// besideContainers are the fields by which pods are charged beside their containers.
var besideContainers = []struct {
	name  string
	value func(*corev1.PodSpec) any
}{
	{"runtimeClassName", func(p *corev1.PodSpec) any { return p.RuntimeClassName }},
	{"overhead", func(p *corev1.PodSpec) any { return p.Overhead }},
	{"resources", func(p *corev1.PodSpec) any { return p.Resources }},
	{"resourceClaims", func(p *corev1.PodSpec) any { return p.ResourceClaims }},
}

// differsBesideContainers returns the first of these fields in which pods differ; empty: in none.
func differsBesideContainers(a, b *corev1.PodSpec) string {
	for _, field := range besideContainers {
		if !equality.Semantic.DeepEqual(field.value(a), field.value(b)) {
			return field.name
		}
	}
	return ""
}

// asksAlike compares the restart policy as well: an init container that has one runs on
// beside the others, and is charged with them.
func asksAlike(a, b corev1.Container) bool {
	return equality.Semantic.DeepEqual(a.Resources, b.Resources) && equality.Semantic.DeepEqual(a.RestartPolicy, b.RestartPolicy)
}

// Difference says in what a prebuilt Workload's PodSets differ from those of a TrainJob, by
// what Kueue compares and by what it charges for; empty: in nothing. Tolerations that this project or the given rules
// add to pods may be missing in the Workload, since who wrote it need not know them.
func Difference(job, prebuilt []kueue.PodSet, rules []TolerationRule) string {
	if len(job) != len(prebuilt) {
		return fmt.Sprintf("the TrainJob has %d PodSets, the Workload %d", len(job), len(prebuilt))
	}
	for i := range job {
		if what := difference(&job[i], &prebuilt[i], rules); what != "" {
			return what
		}
	}
	return ""
}

func difference(job, prebuilt *kueue.PodSet, rules []TolerationRule) string {
	if job.Name != prebuilt.Name {
		return fmt.Sprintf("where the TrainJob has PodSet %q, the Workload has %q", job.Name, prebuilt.Name)
	}
	if job.Count != prebuilt.Count {
		return fmt.Sprintf("PodSet %q has %d pods in the TrainJob, %d in the Workload", job.Name, job.Count, prebuilt.Count)
	}
	a, b := &job.Template.Spec, &prebuilt.Template.Spec
	field := ""
	switch {
	case ptr.Deref(job.MinCount, -1) != ptr.Deref(prebuilt.MinCount, -1):
		field = "minCount"
	case !equality.Semantic.DeepEqual(a.InitContainers, b.InitContainers):
		field = "template.spec.initContainers"
	case !equality.Semantic.DeepEqual(a.Containers, b.Containers):
		field = "template.spec.containers"
	case differsBesideContainers(a, b) != "":
		field = "template.spec." + differsBesideContainers(a, b)
	case !toleratesAlike(a, b, rules):
		field = "template.spec.tolerations"
	default:
		return ""
	}
	return fmt.Sprintf("PodSet %q differs in %s", job.Name, field)
}

// TopologyDifference says in what topology a prebuilt Workload's PodSets ask for another one than those of a TrainJob;
// empty: in none, or Kueue goes by none. Ranks do not count: who wrote it need not know them. Where the Workload
// alone asks for one, Kueue gates the pods and never takes the gate off; where the TrainJob alone does, it gets none.
func TopologyDifference(job, prebuilt []kueue.PodSet) string {
	if !kueuelib.TopologyAwareSchedulingEnabled() || len(job) != len(prebuilt) {
		return ""
	}
	for i := range job {
		if !equality.Semantic.DeepEqual(topologyOf(&job[i]), topologyOf(&prebuilt[i])) {
			return fmt.Sprintf("PodSet %q differs in topologyRequest", job[i].Name)
		}
	}
	return ""
}

func topologyOf(ps *kueue.PodSet) kueue.PodSetTopologyRequest {
	request := ptr.Deref(ps.TopologyRequest, kueue.PodSetTopologyRequest{})
	return kueue.PodSetTopologyRequest{
		Required: request.Required, Preferred: request.Preferred, Unconstrained: ptr.To(ptr.Deref(request.Unconstrained, false)),
		PodSetGroupName: request.PodSetGroupName, PodsetSliceRequiredTopologyConstraints: kueuelib.SliceTopologies(&request),
	}
}

// toleratesAlike reports whether the pods of a TrainJob tolerate what those of a prebuilt
// Workload do and, beyond that, only what is added to them.
func toleratesAlike(job, prebuilt *corev1.PodSpec, rules []TolerationRule) bool {
	added := gpu.Tolerations(job)
	for _, rule := range rules {
		if rule.appliesTo(job) {
			added = append(added, rule.Tolerations...)
		}
	}
	return !slices.ContainsFunc(prebuilt.Tolerations, func(t corev1.Toleration) bool { return !has(job.Tolerations, t) }) &&
		!slices.ContainsFunc(job.Tolerations, func(t corev1.Toleration) bool { return !has(prebuilt.Tolerations, t) && !has(added, t) })
}

func has(all []corev1.Toleration, t corev1.Toleration) bool {
	return slices.ContainsFunc(all, func(other corev1.Toleration) bool { return kueuelib.SameToleration(other, t) })
}

// Excess says in what a JobSet or its Jobs ask for more than the PodSets that quota is held
// for; empty: in nothing. Asking for less is no excess. jobs are the child Jobs that were
// made; reclaimed are the pods whose quota was given back already, which must not run again.
//
// A JobSet may have been made of another runtime than the PodSets, and a Job may be scaled:
// Kubernetes lets people change the parallelism of a Job that runs.
func Excess(js *jobsetapi.JobSet, jobs []batchv1.Job, podSets []kueue.PodSet, reclaimed []kueue.ReclaimablePod) string {
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		ps := Of(rj.Name, podSets)
		if ps == nil {
			return fmt.Sprintf("replicated job %s is not among those that the job was admitted with", rj.Name)
		}
		if excess := cmp.Or(tooManyPods(rj, jobs, ps, reclaimed), tooMuchPerPod(&rj.Template.Spec.Template.Spec, &ps.Template.Spec)); excess != "" {
			return fmt.Sprintf("replicated job %s %s", rj.Name, excess)
		}
	}
	return ""
}

// ExcessOfJob says in what one pod of a child Job asks for more than its PodSet; empty: in nothing.
func ExcessOfJob(child *batchv1.Job, podSets []kueue.PodSet) string {
	ps := Of(child.Labels[jobsetapi.ReplicatedJobNameKey], podSets)
	if ps == nil {
		return ""
	}
	if excess := tooMuchPerPod(&child.Spec.Template.Spec, &ps.Template.Spec); excess != "" {
		return fmt.Sprintf("child Job %s %s", child.Name, excess)
	}
	return ""
}

// Unstartable is Excess of a JobSet that does not run yet, or why it must not for another reason.
func Unstartable(js *jobsetapi.JobSet, jobs []batchv1.Job, podSets []kueue.PodSet, reclaimed []kueue.ReclaimablePod) string {
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		if selects := selectsPods(rj); selects != "" {
			return fmt.Sprintf("replicated job %s %s", rj.Name, selects)
		}
		if tells := tellsWhose(&rj.Template.Spec.Template.ObjectMeta); tells != "" {
			return fmt.Sprintf("replicated job %s has %s, which tells whose pods they are", rj.Name, tells)
		}
	}
	return Excess(js, jobs, podSets, reclaimed)
}

// selectsPods: a Job whose selector somebody wrote takes any pod of these labels for its own, deletes others in
// their place, and lets go of its own.
func selectsPods(rj *jobsetapi.ReplicatedJob) string {
	if rj.Template.Spec.Selector != nil || ptr.Deref(rj.Template.Spec.ManualSelector, false) {
		return "selects its pods by a selector of its own"
	}
	return ""
}

// Of returns the PodSet of a replicated job, or nil. Kueue's FindPodSetByName copies each PodSet that it looks at.
func Of(replicatedJob string, podSets []kueue.PodSet) *kueue.PodSet {
	name := kueue.NewPodSetReference(replicatedJob)
	for i := range podSets {
		if podSets[i].Name == name {
			return &podSets[i]
		}
	}
	return nil
}

func tooManyPods(rj *jobsetapi.ReplicatedJob, jobs []batchv1.Job, ps *kueue.PodSet, reclaimed []kueue.ReclaimablePod) string {
	count := int64(ps.Count)
	if want := int64(rj.Replicas) * int64(PodsPerReplica(rj)); want > count {
		return fmt.Sprintf("has %d pods instead of %d", want, ps.Count)
	}
	made, running := podsOfJobs(rj.Name, jobs)
	if made > count {
		return fmt.Sprintf("has child Jobs with %d pods instead of %d", made, ps.Count)
	}
	for _, r := range reclaimed {
		if r.Name == ps.Name && running > count-int64(r.Count) {
			return fmt.Sprintf("runs %d pods again whose quota was given back when they had succeeded", running-(count-int64(r.Count)))
		}
	}
	return ""
}

// podsOfJobs adds up the pods that the child Jobs of a replicated job run at a time, in all
// and without the Jobs that have ended.
func podsOfJobs(replicatedJob string, jobs []batchv1.Job) (made, running int64) {
	for i := range jobs {
		if jobs[i].Labels[jobsetapi.ReplicatedJobNameKey] != replicatedJob {
			continue
		}
		pods := int64(PodsOfJob(&jobs[i].Spec))
		made += pods
		if !JobEnded(&jobs[i]) {
			running += pods
		}
	}
	return made, running
}

func tooMuchPerPod(has, admitted *corev1.PodSpec) string {
	asks, quota := requestsOf(has), requestsOf(admitted)
	for _, name := range slices.Sorted(maps.Keys(asks)) {
		if amount, held := asks[name], quota[name]; amount.Cmp(held) > 0 {
			return fmt.Sprintf("asks for %s of %s per pod instead of %s", amount.String(), name, held.String())
		}
	}
	if len(has.ResourceClaims) > 0 && !equality.Semantic.DeepEqual(has.ResourceClaims, admitted.ResourceClaims) {
		return "has other resource claims"
	}
	if has.RuntimeClassName != nil && !ptr.Equal(has.RuntimeClassName, admitted.RuntimeClassName) {
		// Its overhead is another one.
		return "has another runtime class"
	}
	if has.NodeName != "" {
		return "names node " + has.NodeName + " itself, whatever flavor the job was admitted to"
	}
	return ""
}

func requestsOf(spec *corev1.PodSpec) corev1.ResourceList {
	pod := &corev1.Pod{Spec: *spec.DeepCopy()}
	defaultRequests(&pod.Spec)
	return resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
}
