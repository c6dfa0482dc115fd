// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// translating lets specs speak of runtimePatches whatever Trainer the cluster runs: on one with Trainer 2.1, TrainJobs
// that are created and updated have podTemplateOverrides, and those that are read have their overrides as patches, the
// manager's as the entry of the manager.
func translating(c client.WithWatch, overrides *atomic.Bool) client.WithWatch {
	written := func(obj client.Object, write func(client.Object) error) error {
		job, ok := obj.(*trainer.TrainJob)
		if !ok || !overrides.Load() {
			return write(obj)
		}
		older, err := toOlder(job)
		if err != nil {
			return err
		}
		if err := write(older); err != nil {
			return err
		}
		return fromOlder(older, job)
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return written(obj, func(obj client.Object) error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return written(obj, func(obj client.Object) error { return c.Update(ctx, obj, opts...) })
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			job, ok := obj.(*trainer.TrainJob)
			if !ok || !overrides.Load() {
				return c.Get(ctx, key, obj, opts...)
			}
			older := NewTrainJob()
			if err := c.Get(ctx, key, older, opts...); err != nil {
				return err
			}
			return fromOlder(older, job)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			jobs, ok := list.(*trainer.TrainJobList)
			if !ok || !overrides.Load() {
				return c.List(ctx, list, opts...)
			}
			older := &unstructured.UnstructuredList{}
			older.SetGroupVersionKind(trainer.GroupVersion.WithKind("TrainJobList"))
			if err := c.List(ctx, older, opts...); err != nil {
				return err
			}
			jobs.Items = make([]trainer.TrainJob, len(older.Items))
			for i := range older.Items {
				if err := fromOlder(&older.Items[i], &jobs.Items[i]); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// userAnnotation holds the manager of a patch that became an override, which has none.
const userAnnotation = "example.com/patch-manager"

// override is an entry of spec.podTemplateOverrides.
type override struct {
	TargetJobs []targetJob           `json:"targetJobs"`
	Metadata   *metav1.ObjectMeta    `json:"metadata,omitempty"`
	Spec       *trainer.PodSpecPatch `json:"spec,omitempty"`
}

type targetJob struct {
	Name string `json:"name"`
}

// NewTrainJob returns an empty one without Go types, which could lose a field.
func NewTrainJob() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(trainer.GroupVersion.WithKind("TrainJob"))
	return obj
}

// toOlder returns a TrainJob with overrides in place of its patches.
func toOlder(job *trainer.TrainJob) (*unstructured.Unstructured, error) {
	var overrides []override
	for _, entry := range job.Spec.RuntimePatches {
		for _, rj := range entry.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs {
			overrides = append(overrides, toOverride(entry.Manager, rj))
		}
	}
	older := NewTrainJob()
	typed := job.DeepCopy()
	typed.Spec.RuntimePatches = nil
	typed.SetGroupVersionKind(older.GroupVersionKind())
	var list any
	if err := errors.Join(recode(typed, &older.Object), recode(overrides, &list)); err != nil || list == nil {
		return older, err
	}
	return older, unstructured.SetNestedField(older.Object, list, "spec", "podTemplateOverrides")
}

func toOverride(manager string, rj trainer.ReplicatedJobPatch) override {
	pod := rj.Template.Spec.Template.DeepCopy()
	if pod.Metadata == nil {
		pod.Metadata = &metav1.ObjectMeta{}
	}
	if manager != patch.Manager {
		metav1.SetMetaDataAnnotation(pod.Metadata, userAnnotation, manager)
	}
	return override{TargetJobs: []targetJob{{rj.Name}}, Metadata: pod.Metadata, Spec: pod.Spec}
}

// fromOlder reads a TrainJob with patches in place of its overrides.
func fromOlder(older *unstructured.Unstructured, job *trainer.TrainJob) error {
	var read struct {
		Spec struct {
			PodTemplateOverrides []override `json:"podTemplateOverrides"`
		} `json:"spec"`
	}
	*job = trainer.TrainJob{}
	if err := errors.Join(recode(older.Object, job), recode(older.Object, &read)); err != nil {
		return err
	}
	patches := kit.TrainJob("", "")
	for _, o := range read.Spec.PodTemplateOverrides {
		for _, target := range o.TargetJobs {
			addOverride(patches, target.Name, o)
		}
	}
	job.Spec.RuntimePatches = patches.Spec.RuntimePatches
	return nil
}

// addOverride adds an override as a patch: to the last entry where that is of the same manager.
func addOverride(t *kit.TrainJobBuilder, replicatedJob string, o override) {
	manager := patch.Manager
	if o.Metadata == nil || o.Metadata.Annotations[patch.ManagerAnnotation] != patch.Manager {
		manager = "example.com/unknown"
		if o.Metadata != nil && o.Metadata.Annotations[userAnnotation] != "" {
			manager = o.Metadata.Annotations[userAnnotation]
		}
	}
	t.PodPatch(manager, replicatedJob, trainer.PodTemplatePatch{Metadata: o.Metadata, Spec: o.Spec})
	entries := t.Spec.RuntimePatches
	if n := len(entries); n > 1 && entries[n-2].Manager == manager {
		before, last := entries[n-2].TrainingRuntimeSpec.Template.Spec, entries[n-1].TrainingRuntimeSpec.Template.Spec
		before.ReplicatedJobs = append(before.ReplicatedJobs, last.ReplicatedJobs...)
		t.Spec.RuntimePatches = entries[:n-1]
	}
}

// recode turns one Go type into another by way of JSON.
func recode(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("translating a TrainJob: %w", err)
	}
	return nil
}
