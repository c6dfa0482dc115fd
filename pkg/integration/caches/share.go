// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

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
