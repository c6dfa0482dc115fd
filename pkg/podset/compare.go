// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
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
