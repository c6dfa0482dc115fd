// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
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

// ownedDomains are the domains of the labels and annotations that an admission puts on
// pods: Kueue's, and the autoscaler's, which Kueue's provisioning check adds. None
// outlives the admission it came with.
var ownedDomains = []string{"kueue.x-k8s.io", "autoscaling.x-k8s.io"}

// PlaceTemplate brings the pod template of a suspended child Job to the one that the
// JobSet is going to have, in the fields that the Job API lets change while it is
// suspended. What JobSet and the Job controller put there themselves stays; so do
// labels and annotations of others.
func PlaceTemplate(child, want *corev1.PodTemplateSpec) {
	child.Labels = placeMetadata(child.Labels, want.Labels)
	child.Annotations = placeMetadata(child.Annotations, want.Annotations)
	child.Spec.NodeSelector = placeSelector(child.Spec.NodeSelector, want.Spec.NodeSelector)
	child.Spec.Tolerations = placeTolerations(child.Spec.Tolerations, want.Spec.Tolerations)
	child.Spec.SchedulingGates = placeGates(child.Spec.SchedulingGates, want.Spec.SchedulingGates)
}

// WriteTemplate writes the difference between a suspended Job as it is known and as it is placed. It does not guard with a
// resourceVersion: the values it sets are right whatever else changed, and the Job controller writes the status all the time.
func WriteTemplate(ctx context.Context, c client.Client, known, placed *batchv1.Job) error {
	err := c.Patch(ctx, placed, client.MergeFrom(known))
	if apierrors.IsInvalid(err) && known.Status.StartTime != nil {
		// Before Kubernetes 1.36 a suspended Job takes another template only while its status does not say that it ran.
		// JobSet takes that away, too, when it resumes a Job.
		forget := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"startTime":null}}`, known.UID)
		if err = c.Status().Patch(ctx, known.DeepCopy(), client.RawPatch(types.MergePatchType, forget)); err == nil {
			err = c.Patch(ctx, placed, client.MergeFrom(known))
		}
	}
	return err
}

// placeGates takes our gate and outdated ones of Kueue away; those of others stay.
func placeGates(have, want []corev1.PodSchedulingGate) []corev1.PodSchedulingGate {
	out := slices.Clone(want)
	for _, g := range have {
		if g.Name != patch.AdmissionGate && !Owned(g.Name) && !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

func placeMetadata(have, want map[string]string) map[string]string {
	out := maps.Clone(have)
	maps.DeleteFunc(out, func(key, _ string) bool { return Owned(key) })
	return merged(out, want)
}

// Owned reports whether an admission puts a label, annotation or gate on pods, or we do. None outlives the admission.
func Owned(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return key == patch.GatedLabel || key == patch.ManagerAnnotation || slices.ContainsFunc(ownedDomains, func(domain string) bool {
		return prefix == domain || strings.HasSuffix(prefix, "."+domain)
	})
}

// placeSelector keeps the one key that JobSet adds on its own, for exclusive
// placement by node selector.
func placeSelector(have, want map[string]string) map[string]string {
	out := map[string]string{}
	if value, ok := have[jobsetapi.NamespacedJobKey]; ok {
		out[jobsetapi.NamespacedJobKey] = value
	}
	return merged(out, want)
}

func merged(into, from map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	if len(into) == 0 {
		return nil
	}
	return into
}

// placeTolerations keeps the one toleration that JobSet adds on its own, for the
// same strategy.
func placeTolerations(have, want []corev1.Toleration) []corev1.Toleration {
	out := slices.Clone(want)
	for _, t := range have {
		if t.Key == jobsetapi.NoScheduleTaintKey && !slices.ContainsFunc(out, func(o corev1.Toleration) bool { return o.Key == t.Key }) {
			out = append(out, t)
		}
	}
	return out
}

// PlacePod brings a gated pod, made from the pod template of its Job, to its placement:
// the node selector is completed, tolerations are added, our gate and outdated ones of
// Kueue go. The API allows a gated pod no more than that, so it fails, naming key or
// gate, when the template held node selector keys that want does not, or the pod was made
// without a gate of Kueue's that want has. What pod admission added beyond the template is others' and stays.
func PlacePod(pod *corev1.Pod, made, want *corev1.PodTemplateSpec) error {
	for key, value := range pod.Spec.NodeSelector {
		wanted, ok := want.Spec.NodeSelector[key]
		_, stale := made.Spec.NodeSelector[key]
		if (ok && wanted != value) || (!ok && stale && key != jobsetapi.NamespacedJobKey) {
			return fmt.Errorf("its node selector %s=%s is not part of the current admission", key, value)
		}
	}
	var ahead []corev1.PodSchedulingGate
	for _, gate := range want.Spec.SchedulingGates {
		switch {
		case slices.Contains(pod.Spec.SchedulingGates, gate):
			ahead = append(ahead, gate)
		case Owned(gate.Name) && (!madeFor(pod, want) || !slices.Contains(made.Spec.SchedulingGates, gate)):
			return fmt.Errorf("it lacks the scheduling gate %s of the current admission", gate.Name)
		}
	}
	pod.Labels = placeMetadata(pod.Labels, want.Labels)
	pod.Annotations = placeMetadata(pod.Annotations, want.Annotations)
	pod.Spec.NodeSelector = merged(maps.Clone(pod.Spec.NodeSelector), want.Spec.NodeSelector)
	pod.Spec.Tolerations = union(pod.Spec.Tolerations, want.Spec.Tolerations)
	pod.Spec.SchedulingGates = placeGates(pod.Spec.SchedulingGates, ahead)
	return nil
}

// madeFor reports whether a pod was made for the Workload of want, and so by a template that has not
// changed since, which a Job's does only while it is suspended and without pods: a gate of it
// that the pod lacks was taken off, as Kueue does with that of a topology beside ours.
func madeFor(pod *corev1.Pod, want *corev1.PodTemplateSpec) bool {
	name := want.Annotations[kueue.WorkloadAnnotation]
	return name != "" && pod.Annotations[kueue.WorkloadAnnotation] == name
}

// Placed reports whether the pods that a JobSet makes belong to an admission: all carry
// Kueue's label, none our gate.
func Placed(js *jobsetapi.JobSet) bool {
	return !slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		template := &rj.Template.Spec.Template
		_, labeled := template.Labels[kueueconstants.PodSetLabel]
		return !labeled || patch.HasAdmissionGate(template.Spec.SchedulingGates)
	})
}

// FreedIn returns the placements without gates of what a JobSet, if there is one, keeps of an entry of ours: the gate, or
// what an admission added.
func FreedIn(js *jobsetapi.JobSet) (placements []patch.Placement) {
	if js == nil {
		return nil
	}
	for _, rj := range js.Spec.ReplicatedJobs {
		template := rj.Template.Spec.Template
		if _, placed := template.Labels[kueueconstants.PodSetLabel]; placed || patch.HasAdmissionGate(template.Spec.SchedulingGates) {
			placements = append(placements, patch.Freed(rj.Name))
		}
	}
	return placements
}

// FieldOf returns the field of the TrainJob out of which Trainer brought our part into a
// JobSet: the gate, or what an admission adds. Empty where nothing in it is ours.
func FieldOf(js *jobsetapi.JobSet) patch.Field {
	for _, rj := range js.Spec.ReplicatedJobs {
		template := rj.Template.Spec.Template
		_, marked := template.Labels[patch.GatedLabel]
		_, placed := template.Labels[kueueconstants.PodSetLabel]
		switch {
		case template.Annotations[patch.ManagerAnnotation] == patch.Manager:
			return patch.Of(trainjob.Trainer21)
		case marked || placed:
			return patch.Of(trainjob.Trainer23)
		}
	}
	return ""
}
