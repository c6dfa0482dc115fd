// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func (f *Facts) selectorMismatch(flavor *kueue.ResourceFlavor, ps *kueue.PodSet) Reason {
	others := maps.Clone(ps.Template.Spec.NodeSelector)
	maps.DeleteFunc(others, func(key, value string) bool {
		has, ok := flavor.Spec.NodeLabels[key]
		return !ok || has == value
	})
	what := f.selection(ps, others)
	return Reason{Code: Selector, Lasting: true,
		Message: fmt.Sprintf("%s asks for other nodes than the flavor's (%s)", what, labels.Set(flavor.Spec.NodeLabels)),
		Remedy:  fmt.Sprintf("take %s out of replicated job %s, or name labels of this flavor", what, ps.Name),
	}
}

func (f *Facts) selectorWithoutNode(flavor string, on []*corev1.Node, ps *kueue.PodSet) Reason {
	nowhere := maps.Clone(ps.Template.Spec.NodeSelector)
	maps.DeleteFunc(nowhere, func(key, value string) bool {
		return slices.ContainsFunc(on, func(n *corev1.Node) bool { return n.Labels[key] == value })
	})
	what := f.selection(ps, nowhere)
	return Reason{Code: Selector, Lasting: true,
		Message: fmt.Sprintf("%s matches no node of the flavor", what),
		Remedy:  fmt.Sprintf("take %s out of replicated job %s, or label nodes of flavor %s so", what, ps.Name, flavor),
	}
}

// selection names what of a PodSet's node selection is to blame, and who set it: some keys
// of the node selector or, where it is none of them alone, all there is.
func (f *Facts) selection(ps *kueue.PodSet, blamed map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(blamed)) {
		part := fmt.Sprintf("node selector %s=%s", key, blamed[key])
		if by := f.ownerOf(string(ps.Name), "spec.template.spec.nodeSelector["+key+"]"); by != "" {
			part += " of " + by
		}
		parts = append(parts, part)
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, " and ")
	case requiresNodes(ps.Template.Spec.Affinity):
		return "its node affinity"
	}
	return "its node selector " + labels.Set(ps.Template.Spec.NodeSelector).String()
}

func requiresNodes(a *corev1.Affinity) bool {
	return a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// ownerOf tells who set a field of a replicated job; empty where that is not known.
func (f *Facts) ownerOf(job, path string) string {
	for _, field := range f.Fields {
		if field.Job == job && field.Path == path {
			return owner(f, field.Source)
		}
	}
	return ""
}
