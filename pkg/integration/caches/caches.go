// SPDX-License-Identifier: Apache-2.0

// Package caches says what the manager's caches hold: of which kinds which objects, by which
// fields they are found, how a CRD is followed (this file), and what is left of an object before it
// is stored (transform.go).
package caches

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// ByObject limits the caches to what the manager looks at: Jobs of JobSets, pods with the
// gate, the one CRD whose defaults PodSets get, our own webhook configurations; of Workloads
// and JobSets, which no selector tells apart, the bare names of those that are not TrainJobs'.
func ByObject() map[client.Object]cache.ByObject {
	// The key of JobSet's is a valid one.
	ofJobSets, _ := labels.NewRequirement(jobsetapi.JobSetNameKey, selection.Exists, nil)
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	return map[client.Object]cache.ByObject{
		&batchv1.Job{}:      {Label: labels.NewSelector().Add(*ofJobSets), Transform: TrimJob},
		&jobsetapi.JobSet{}: {Transform: trimJobSet},
		&kueue.Workload{}:   {Transform: trimWorkload},
		&corev1.Pod{}:       {Label: labels.SelectorFromSet(labels.Set{patch.GatedLabel: "true"}), Transform: trimPod},

		&apiextensionsv1.CustomResourceDefinition{}:               {Field: named(podset.WorkloadCRD)},
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: named(webhookconfig.Installed.Mutating)},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: named(webhookconfig.Installed.Validating)},
	}
}

// SetupIndexes adds the field indexes, which have to be there before the caches start.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := jobframework.SetupWorkloadOwnerIndex(ctx, indexer, trainjob.GVK); err != nil {
		return fmt.Errorf("indexing Workloads by TrainJob: %w", err)
	}
	if err := indexer.IndexField(ctx, &batchv1.Job{}, JobSetIndex, jobSetOf); err != nil {
		return fmt.Errorf("indexing Jobs by JobSet: %w", err)
	}
	return nil
}

// JobSetIndex is the index of child Jobs by the name of their JobSet. Caches have none of
// labels: a list by them looks at every Job of the namespace.
const JobSetIndex = "jobSet"

func jobSetOf(child client.Object) []string {
	if name, ok := child.GetLabels()[jobsetapi.JobSetNameKey]; ok {
		return []string{name}
	}
	return nil
}

// FollowCRD calls look with the one CRD that crds has, as it is now and at every change of it, and gone when it is deleted.
// It returns when crds is in step.
func FollowCRD(ctx context.Context, crds cache.Cache, name string, look func(*apiextensionsv1.CustomResourceDefinition), gone func()) error {
	informer, err := crds.GetInformer(ctx, &apiextensionsv1.CustomResourceDefinition{})
	if err != nil {
		return fmt.Errorf("caching CRD %s: %w", name, err)
	}
	handled, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { look(obj.(*apiextensionsv1.CustomResourceDefinition)) },
		UpdateFunc: func(_, obj any) { look(obj.(*apiextensionsv1.CustomResourceDefinition)) },
		DeleteFunc: func(any) { gone() },
	})
	if err != nil {
		return fmt.Errorf("following CRD %s: %w", name, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
		return ctx.Err()
	}
	return nil
}
