// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

var datasetPath = field.NewPath("spec", "initializer", "dataset")

// storageURI is the variable by which Trainer's initializers are told what to load.
const storageURI = "STORAGE_URI"

// validateCache refuses datasets at cache://. Of one, Trainer's initializer makes a LeaderWorkerSet beside the JobSet, as large
// as variables say: it is in no PodSet, Kueue takes it for a part of the TrainJob, and no preemption stops it.
func validateCache(js *jobsetapi.JobSet, b *blame) field.ErrorList {
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		pod := &rj.Template.Spec.Template.Spec
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			if slices.ContainsFunc(container.Env, asksForCache) {
				return field.ErrorList{b.refuseCache(rj.Name, container.Name)}
			}
		}
	}
	return nil
}

// asksForCache reports whether a variable has an initializer make a cache. It reads the scheme in small letters.
func asksForCache(v corev1.EnvVar) bool {
	return v.Name == storageURI && isCache(v.Value)
}

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
	return b.refuse(fmt.Sprintf("in replicated job %s, container %s has variable %s: %s", replicatedJob, container, storageURI, why))
}
