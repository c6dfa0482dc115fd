// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var (
	trainerPath   = field.NewPath("spec", "trainer")
	resourcesPath = trainerPath.Child("resourcesPerNode")
)

// blame tells where people can change what is wrong with the pods of a TrainJob: in the
// TrainJob, or in the runtime, which may be somebody else's.
type blame struct {
	job     *trainjob.TrainJob
	runtime *trainer.TrainingRuntimeSpec
}

// InRuntime is about what can be changed in the runtime of a TrainJob alone, which may be somebody else's.
func InRuntime(job *trainjob.TrainJob, why string) *field.Error {
	ref := job.Spec.RuntimeRef
	kind := ptr.Deref(ref.Kind, trainer.ClusterTrainingRuntimeKind)
	return field.Invalid(runtimeRefPath, ref.Name, fmt.Sprintf("%s; change %s %s, or use another runtime", why, kind, ref.Name))
}

func (b *blame) refuse(format string, args ...any) *field.Error {
	return InRuntime(b.job, fmt.Sprintf(format, args...))
}

// refuseAmount names where the amount of a container comes from: no patch has resources.
func (b *blame) refuseAmount(rj *jobsetapi.ReplicatedJob, container string, w quantity.Wrong) *field.Error {
	if b.asked(rj, container, w) {
		return field.Invalid(resourcesPath.Child(w.List).Key(string(w.Name)), w.Quantity.String(), w.Why)
	}
	return b.refuse("in replicated job %s, container %s, resources.%s[%s] is %s: %s", rj.Name, container, w.List, w.Name, w.Quantity.String(), w.Why)
}

// asked reports whether the TrainJob itself asks for the resource of a container.
func (b *blame) asked(rj *jobsetapi.ReplicatedJob, container string, w quantity.Wrong) bool {
	if b.job.Spec.Trainer == nil || b.job.Spec.Trainer.ResourcesPerNode == nil || container != constants.Node || !trainjob.RunsNodes(b.runtime.MLPolicy, rj) {
		return false
	}
	_, limited := b.job.Spec.Trainer.ResourcesPerNode.Limits[w.Name]
	_, requested := b.job.Spec.Trainer.ResourcesPerNode.Requests[w.Name]
	return limited || requested
}

// patched is where a patch sets a field of the pods of a replicated job, or a key of it, or nil. Later ones win.
func (b *blame) patched(replicatedJob, part, of string, key ...string) (last *field.Path) {
	pod := append([]string{part, of}, key...)
	at := func(path *field.Path) *field.Path {
		path = path.Child(part, of)
		for _, k := range key {
			path = path.Key(k)
		}
		return path
	}
	for _, p := range b.job.Spec.RuntimePatches {
		jobs, _, _ := unstructured.NestedSlice(p.Fields(), "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
		for i := range jobs {
			job, _ := jobs[i].(map[string]any)
			template, _, _ := unstructured.NestedMap(job, "template", "spec", "template")
			if _, ok, _ := unstructured.NestedFieldNoCopy(template, pod...); ok && job["name"] == replicatedJob && !p.Ours() {
				last = at(field.NewPath("spec", "runtimePatches").Key(p.Manager).Child("trainingRuntimeSpec", "template", "spec", "replicatedJobs").Index(i).
					Child("template", "spec", "template"))
			}
		}
	}
	for i, p := range b.job.Spec.PodTemplateOverrides {
		if _, ok, _ := unstructured.NestedFieldNoCopy(p.Fields(), pod...); ok && slices.Contains(p.TargetJobs, replicatedJob) && !p.Ours() {
			last = at(field.NewPath("spec", "podTemplateOverrides").Index(i))
		}
	}
	return last
}

var datasetPath = field.NewPath("spec", "initializer", "dataset")

// storageURI is the variable by which Trainer's initializers are told what to load.
const storageURI = "STORAGE_URI"

// validateCache refuses datasets at cache://. Of one, Trainer's initializer makes a LeaderWorkerSet beside the JobSet, as large
// as variables say: it is in no PodSet, Kueue takes it for a part of the TrainJob, and no preemption stops it.
func validateCache(js *jobsetapi.JobSet, b *blame) field.ErrorList {
	for _, rj := range js.Spec.ReplicatedJobs {
		pod := rj.Template.Spec.Template.Spec
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			if slices.ContainsFunc(container.Env, asksForCache) {
				return field.ErrorList{b.refuseCache(rj.Name, container.Name)}
			}
		}
	}
	return nil
}

// asksForCache reports whether a variable has an initializer make a cache. It reads the scheme in small letters.
func asksForCache(v corev1.EnvVar) bool { return v.Name == storageURI && isCache(v.Value) }

func isCache(uri string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(uri)), "cache:")
}

// refuseCache names where the address comes from: the TrainJob's initializer, or the runtime.
func (b *blame) refuseCache(replicatedJob, container string) *field.Error {
	const why = "from cache:// the initializer makes a LeaderWorkerSet that no quota is charged for and that a preemption leaves running; " +
		"load the dataset from elsewhere, such as hf:// or s3://, or leave the queue out"
	var dataset trainer.DatasetInitializer
	if b.job.Spec.Initializer != nil {
		dataset = ptr.Deref(b.job.Spec.Initializer.Dataset, dataset)
	}
	if i := slices.IndexFunc(dataset.Env, asksForCache); i >= 0 {
		return field.Invalid(datasetPath.Child("env").Index(i).Child("value"), dataset.Env[i].Value, why)
	}
	if uri := ptr.Deref(dataset.StorageUri, ""); isCache(uri) {
		return field.Invalid(datasetPath.Child("storageUri"), uri, why)
	}
	return b.refuse("in replicated job %s, container %s has variable %s: %s", replicatedJob, container, storageURI, why)
}
