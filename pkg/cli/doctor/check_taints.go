// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// taints finds taints on the GPU nodes of a flavor that nothing tolerates for a TrainJob
// and that Kueue does not know of. kueue-trainer adds NVIDIA's tolerations by itself.
func taints(f *Facts, found func(hit)) {
	for i := range f.Flavors {
		flavor := &f.Flavors[i]
		if len(f.grantsOf(flavor.Name)) == 0 {
			continue
		}
		untolerated, nodes := f.untolerated(flavor)
		for _, taint := range untolerated {
			found(taintHit(flavor, taint, nodes[taint]))
		}
	}
}

// untolerated returns the taints of a flavor's GPU nodes that keep pods out, in their
// order, and how many nodes have each.
func (f *Facts) untolerated(flavor *kueue.ResourceFlavor) ([]corev1.Taint, map[corev1.Taint]int64) {
	var found []corev1.Taint
	nodes := map[corev1.Taint]int64{}
	for _, node := range f.NodesOf(flavor) {
		names := gpu.Allocatable(node)
		if len(names) == 0 {
			continue
		}
		tolerations := slices.Concat(flavor.Spec.Tolerations, f.added(names))
		for _, taint := range gpu.Lasting(node) {
			if declared(flavor, taint) || corev1helpers.TolerationsTolerateTaint(klog.Background(), tolerations, &taint, true) {
				continue
			}
			if nodes[taint]++; nodes[taint] == 1 {
				found = append(found, taint)
			}
		}
	}
	return found, nodes
}

// added returns the tolerations that kueue-trainer adds to pods that ask for the resources.
// The in-tree integration adds none.
func (f *Facts) added(names []corev1.ResourceName) []corev1.Toleration {
	if !f.managerInstalled() && f.integrates() == inTree {
		return nil
	}
	requests := corev1.ResourceList{}
	for _, name := range names {
		requests[name] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}
	pod.Tolerations = gpu.Tolerations(&pod)
	podSets := []kueue.PodSet{{Template: corev1.PodTemplateSpec{Spec: pod}}}
	podset.AddTolerations(podSets, cluster.Rules(f.managerConfiguration()))
	return podSets[0].Template.Spec.Tolerations
}

// declared reports whether Kueue knows of a taint: it then admits only who tolerates it.
func declared(flavor *kueue.ResourceFlavor, taint corev1.Taint) bool {
	return slices.ContainsFunc(flavor.Spec.NodeTaints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value })
}

func taintHit(flavor *kueue.ResourceFlavor, taint corev1.Taint, nodes int64) hit {
	toleration := corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect}
	h := about("ResourceFlavor", "", flavor.Name, "nodes", show.Count(nodes, "GPU node"), "taint", taint.ToString(),
		"tolerate", patchCommand("resourceflavor", flavor.Name, "add", "/spec/tolerations", append(slices.Clone(flavor.Spec.Tolerations), toleration)))
	if flavor.Spec.TopologyName != nil {
		h.Effect = "Kueue finds no place in the flavor's topology, so no TrainJob is admitted to it."
		h.Advice = "A flavor with a topology cannot change its tolerations: make a new one, or take the taint off the nodes:"
		h.Commands = []string{fmt.Sprintf("kubectl taint nodes -l '%s' %s:%s-", labels.Set(flavor.Spec.NodeLabels), taint.Key, taint.Effect)}
	}
	return h
}
