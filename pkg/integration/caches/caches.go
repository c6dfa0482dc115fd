// SPDX-License-Identifier: Apache-2.0

// Package caches says what the manager's caches hold: of which kinds which objects (this
// file), by which fields they are found (index.go), and what is left of an object before it
// is stored (transform.go).
package caches

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// ByObject limits the caches to what the manager looks at: Jobs of JobSets, pods with the
// gate, the one CRD whose defaults PodSets get, our own webhook configurations; of Workloads
// and JobSets, which no selector tells apart, the bare names of those that are not TrainJobs'.
func ByObject() (map[client.Object]cache.ByObject, error) {
	ofJobSets, err := labels.NewRequirement(jobsetapi.JobSetNameKey, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	return map[client.Object]cache.ByObject{
		&batchv1.Job{}:      {Label: labels.NewSelector().Add(*ofJobSets), Transform: TrimJob},
		&jobsetapi.JobSet{}: {Transform: trimJobSet},
		&kueue.Workload{}:   {Transform: trimWorkload},
		&corev1.Pod{}:       {Label: labels.SelectorFromSet(labels.Set{patch.GatedLabel: "true"}), Transform: trimPod},

		&apiextensionsv1.CustomResourceDefinition{}:               {Field: named(podset.WorkloadCRD)},
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: named(webhookconfig.Installed.Mutating)},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: named(webhookconfig.Installed.Validating)},
	}, nil
}
