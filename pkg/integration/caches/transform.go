// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// The Trim functions are transforms: they drop what the manager does not look
// at before it is stored. Of JobSets and Jobs the manager only writes differences, in which
// a part that is missing on both sides is left alone; jobframework writes Workloads whole.

// trimWorkload empties the Workloads that belong to other kinds of jobs. One without a
// controller stays whole: it may be a TrainJob's soon. So does one with a TrainJob among its
// owners: jobframework finds a TrainJob's Workloads by any of them. And so does a remainder: whether
// it is charged decides over it.
func trimWorkload(in any) (any, error) {
	wl, ok := in.(*kueue.Workload)
	if ok && ofAnother(wl) && wl.Labels[placeholder.Label] == "" &&
		!slices.ContainsFunc(wl.OwnerReferences, isTrainJob) {
		wl.Spec, wl.Status = kueue.WorkloadSpec{}, kueue.WorkloadStatus{}
		untag(wl)
	}
	return Compact(in)
}

// trimJobSet empties the JobSets that no TrainJob controls, and drops of those that one does annotations, and what their
// pods run, but not what they ask for.
func trimJobSet(in any) (any, error) {
	js, ok := in.(*jobsetapi.JobSet)
	if !ok {
		return Compact(in)
	}
	if owner := metav1.GetControllerOfNoCopy(js); owner == nil || ofAnother(js) {
		js.Spec, js.Status = jobsetapi.JobSetSpec{}, jobsetapi.JobSetStatus{}
		untag(js)
	}
	js.Annotations = nil
	for i := range js.Spec.ReplicatedJobs {
		pods := &js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		*pods = askedOf(pods)
	}
	return Compact(in)
}

// TrimJob drops what the pods of a Job run, and what JobSet and the Job controller write on
// them, and on the Job itself all but whose it is: these are most of its bytes. Of a Job that no TrainJob has queued, as
// anybody may make with a megabyte of tolerations, it drops a large rest, too.
func TrimJob(in any) (any, error) {
	if job, ok := in.(*batchv1.Job); ok {
		job.Annotations, job.Spec.Selector = nil, nil
		maps.DeleteFunc(job.Labels, func(key, _ string) bool {
			return key != jobsetapi.JobSetNameKey && key != jobsetapi.ReplicatedJobNameKey
		})
		template := &job.Spec.Template
		trimTemplate(template)
		maps.DeleteFunc(template.Labels, ofControllers)
		maps.DeleteFunc(template.Annotations, ofControllers)
		if !queued(job) && template.Size() > maxUnqueued {
			*template = corev1.PodTemplateSpec{}
		}
	}
	return Compact(in)
}

// maxUnqueued is how many bytes are kept of the pods of a Job that may queue yet: a placement has to leave what others, as
// JobSet, have written there.
const maxUnqueued = 4 << 10

// queued reports whether a Job may be a queued TrainJob's: JobSet made it, and an admission placed its pods or may yet.
func queued(job *batchv1.Job) bool {
	owner, template := metav1.GetControllerOfNoCopy(job), &job.Spec.Template
	if owner == nil || owner.Kind != "JobSet" {
		return false
	}
	_, marked := template.Labels[patch.GatedLabel]
	_, placed := template.Labels[kueueconstants.PodSetLabel]
	_, overridden := template.Annotations[patch.ManagerAnnotation]
	return marked || placed || overridden || patch.HasAdmissionGate(template.Spec.SchedulingGates)
}

// trimPod keeps of a pod behind the gate what PlacePod of pkg/podset brings to an admission, and of any other pod that
// has the label, as anybody may make with a megabyte in it, that it is there.
func trimPod(in any) (any, error) {
	if pod, ok := in.(*corev1.Pod); ok {
		_, ofJobSet := pod.Labels[jobsetapi.JobSetNameKey]
		spec := pod.Spec
		pod.Spec, pod.Status = corev1.PodSpec{}, corev1.PodStatus{}
		if ofJobSet && patch.HasAdmissionGate(spec.SchedulingGates) {
			pod.Spec = corev1.PodSpec{NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, SchedulingGates: spec.SchedulingGates}
			// JobSet's name stays, as on a Job.
			maps.DeleteFunc(pod.Annotations, func(key, _ string) bool { return key != jobsetapi.JobSetNameKey && !podset.Owned(key) })
		} else {
			maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return key != jobsetapi.JobSetNameKey && key != patch.GatedLabel })
			pod.Annotations, pod.Finalizers = nil, nil
		}
	}
	return Compact(in)
}

// ofControllers reports whether a label or annotation is JobSet's or the Job controller's.
// No admission has one. JobSet's name stays: a merge patch made of an empty map would take
// the whole map from the Job.
func ofControllers(key, _ string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return key != jobsetapi.JobSetNameKey &&
		(domain == "jobset.sigs.k8s.io" || domain == "batch.kubernetes.io" || key == "controller-uid" || key == "job-name")
}

// untag drops what its users write into the metadata of an object: it may be a megabyte.
func untag(obj client.Object) {
	obj.SetLabels(nil)
	obj.SetAnnotations(nil)
	obj.SetFinalizers(nil)
}

func ofAnother(obj client.Object) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && !isTrainJob(*owner)
}

// isTrainJob goes by the group, too: anybody may name a kind that there is not.
func isTrainJob(owner metav1.OwnerReference) bool {
	return owner.Kind == trainjob.GVK.Kind && strings.HasPrefix(owner.APIVersion, trainjob.GVK.Group+"/")
}

// askedOf keeps what Excess of pkg/podset compares, and what PlaceTemplate there brings to an admission.
func askedOf(spec *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		InitContainers: common(resourcesOf(spec.InitContainers)), Containers: common(resourcesOf(spec.Containers)),
		Resources: spec.Resources, Overhead: spec.Overhead, ResourceClaims: spec.ResourceClaims, NodeName: spec.NodeName, RuntimeClassName: spec.RuntimeClassName,
		NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, SchedulingGates: spec.SchedulingGates,
	}
}

func resourcesOf(containers []corev1.Container) []corev1.Container {
	return kueuelib.Map(containers, func(c *corev1.Container) corev1.Container {
		return corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	})
}

// trimTemplate keeps what PlaceTemplate of pkg/podset brings to an admission.
func trimTemplate(template *corev1.PodTemplateSpec) {
	template.Spec = corev1.PodSpec{
		NodeSelector:    template.Spec.NodeSelector,
		Tolerations:     template.Spec.Tolerations,
		SchedulingGates: template.Spec.SchedulingGates,
	}
}

// Compact is the transform of all that no other is for. It drops managed fields, and shares strings and parts that are
// equal: objects in caches are only read.
func Compact(in any) (any, error) {
	switch obj := in.(type) {
	case *trainjob.TrainJob:
		shareMeta(&obj.ObjectMeta)
		shareConditions(obj.Status.Conditions)
		if obj.Spec.Trainer != nil {
			obj.Spec.Trainer.ResourcesPerNode = common(obj.Spec.Trainer.ResourcesPerNode)
		}
	case *kueue.Workload:
		shareMeta(&obj.ObjectMeta)
		shareConditions(obj.Status.Conditions)
		obj.Spec.PodSets = common(obj.Spec.PodSets)
	case *jobsetapi.JobSet:
		shareMeta(&obj.ObjectMeta)
		shareConditions(obj.Status.Conditions)
		obj.Spec.ReplicatedJobs = common(obj.Spec.ReplicatedJobs)
	case *batchv1.Job:
		shareMeta(&obj.ObjectMeta)
		shareMeta(&obj.Spec.Template.ObjectMeta)
		obj.Spec.Template.Spec.NodeSelector = sharedMap(obj.Spec.Template.Spec.NodeSelector)
	}
	return cache.TransformStripManagedFields()(in)
}

func shareMeta(meta *metav1.ObjectMeta) {
	meta.Namespace = shared(meta.Namespace)
	meta.Labels, meta.Annotations = sharedMap(meta.Labels), sharedMap(meta.Annotations)
}

func shareConditions(conditions []metav1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		c.Type, c.Reason, c.Message = shared(c.Type), shared(c.Reason), shared(c.Message)
	}
}

// sharedMap returns a copy of the right size: a map keeps the memory of what was deleted from it.
func sharedMap(of map[string]string) map[string]string {
	if of == nil {
		return nil
	}
	out := make(map[string]string, len(of))
	for key, value := range of {
		out[shared(key)] = shared(value)
	}
	return out
}

// longest is the length, in bytes, of the strings that many objects may have.
const longest = 256

func shared(text string) string {
	if len(text) > longest {
		return text
	}
	return unique.Make(text).Value()
}

// parts are those that many objects have alike, as TrainJobs of one team do, by a hash of what they say.
var parts = lru.New(1024)

// largest is the length in JSON, in bytes, of the parts that are kept to be shared: what a tenant makes large stays his.
const largest = 4 << 10

type part struct {
	kind reflect.Type
	says [sha256.Size]byte
}

// common returns one part for all objects of late that have one alike.
func common[T any](of T) T {
	text, err := json.Marshal(of)
	if err != nil || len(text) > largest {
		return of
	}
	key := part{reflect.TypeFor[T](), sha256.Sum256(text)}
	if known, ok := parts.Get(key); ok {
		return known.(T)
	}
	parts.Add(key, of)
	return of
}
