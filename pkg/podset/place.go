// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
)

// Place returns the placement of every replicated job from the PodSets of the
// effective TrainJob and what the admission says of each: the flavors' node labels
// and tolerations, admission checks' updates, Kueue's labels and annotations, gates.
//
// infos come in the order of the Workload's PodSets and must match podSets one by
// one. A contradiction is a permanent error in the sense of kueue's podset.IsPermanent
// and names the PodSet and the key: the user asked for one thing, the admission is
// for another, and neither may win silently.
func Place(podSets []kueue.PodSet, infos []kueuelib.PodSetInfo) ([]patch.Placement, error) {
	if len(podSets) != len(infos) {
		return nil, kueuelib.WrongPodSetCount(len(podSets), len(infos))
	}
	placements := make([]patch.Placement, 0, len(podSets))
	for i := range podSets {
		p, err := place(&podSets[i], infos[i])
		if err != nil {
			return nil, err
		}
		placements = append(placements, p)
	}
	return placements, nil
}

func place(ps *kueue.PodSet, info kueuelib.PodSetInfo) (patch.Placement, error) {
	if ps.Name != info.Name {
		return patch.Placement{}, fmt.Errorf("%w: the admission is for PodSet %q where the TrainJob has %q",
			kueuelib.ErrInvalidPodSetInfo, info.Name, ps.Name)
	}
	meta, pod := &ps.Template.ObjectMeta, &ps.Template.Spec
	for _, c := range []struct {
		field       string
		have, given map[string]string
	}{
		{"nodeSelector", pod.NodeSelector, info.NodeSelector},
		{"labels", meta.Labels, info.Labels},
		{"annotations", meta.Annotations, info.Annotations},
	} {
		if err := conflict(ps.Name, c.field, c.have, c.given); err != nil {
			return patch.Placement{}, err
		}
	}
	// An entry's list of tolerations replaces the pod's, so it is all of them: the GPU tolerations are in
	// the base.
	return patch.Placement{
		Name:            string(ps.Name),
		Labels:          info.Labels,
		Annotations:     info.Annotations,
		NodeSelector:    info.NodeSelector,
		Tolerations:     union(union(nil, pod.Tolerations), info.Tolerations),
		SchedulingGates: info.SchedulingGates,
	}, nil
}

func conflict(name kueue.PodSetReference, field string, have, given map[string]string) error {
	var keys []string
	for key, value := range given {
		if old, ok := have[key]; ok && old != value {
			keys = append(keys, fmt.Sprintf("%s is %q, the admission wants %q", key, old, value))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	return kueuelib.ConflictingPodSet(
		fmt.Sprintf("%s of replicated job %q", field, name), fmt.Errorf("%s; take it out of the runtime or of spec.runtimePatches (Trainer 2.1: spec.podTemplateOverrides) and create the TrainJob again", strings.Join(keys, ", ")))
}

// TolerationRule adds to pods that ask for some resources what they need to reach the nodes
// of these, as pkg/gpu does for NVIDIA's.
type TolerationRule struct {
	// Resources are names (amd.com/gpu), or beginnings of names that end in "*"
	// (gpu.intel.com/*). At least one.
	Resources []string `json:"resources"`
	// Tolerations are added where pods do not have the same already. At least one, each
	// with a key.
	Tolerations []corev1.Toleration `json:"tolerations"`
}

// AddTolerations applies rules to PodSets, in place. It has to be done wherever PodSets are
// described, before Kueue sees them, and the same way every time: Kueue compares them.
func AddTolerations(podSets []kueue.PodSet, rules []TolerationRule) {
	for i := range podSets {
		pod := &podSets[i].Template.Spec
		for _, rule := range rules {
			if rule.appliesTo(pod) {
				pod.Tolerations = union(pod.Tolerations, rule.Tolerations)
			}
		}
	}
}

func (r TolerationRule) appliesTo(pod *corev1.PodSpec) bool {
	for name := range quantity.Asked(pod) {
		if slices.ContainsFunc(r.Resources, func(pattern string) bool { return matches(pattern, string(name)) }) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
