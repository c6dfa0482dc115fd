// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"
)

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 3 * time.Minute

// copyRuntime gives one of Trainer's own runtimes under a name of this spec.
func (w *world) copyRuntime(ctx context.Context, name string) *trainer.ClusterTrainingRuntime {
	GinkgoHelper()
	var shipped trainer.ClusterTrainingRuntime
	Expect(w.Get(ctx, client.ObjectKey{Name: name}, &shipped)).To(Succeed())
	return &trainer.ClusterTrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Name: w.name(name), Labels: shipped.Labels},
		Spec:       *shipped.Spec.DeepCopy(),
	}
}

// makeServiceAccounts makes those that a runtime's pods run as.
func (w *world) makeServiceAccounts(ctx context.Context, runtime string) {
	GinkgoHelper()
	var r trainer.ClusterTrainingRuntime
	Expect(w.Get(ctx, client.ObjectKey{Name: runtime}, &r)).To(Succeed())
	for _, rj := range r.Spec.Template.Spec.ReplicatedJobs {
		if name := rj.Template.Spec.Template.Spec.ServiceAccountName; name != "" {
			w.make(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}})
		}
	}
}

// activate sets spec.active of a TrainJob's Workload.
func (w *world) activate(ctx context.Context, job string, active bool) {
	GinkgoHelper()
	wl := w.workload(ctx, job)
	Expect(wl).NotTo(BeNil())
	before := wl.DeepCopy()
	wl.Spec.Active = ptr.To(active)
	Expect(w.Patch(ctx, wl, client.MergeFrom(before))).To(Succeed())
}

// makeYAML creates an object from a manifest as it is, in the spec's namespace.
func (w *world) makeYAML(ctx context.Context, manifest string) {
	GinkgoHelper()
	obj := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &obj.Object)).To(Succeed())
	obj.SetNamespace(w.namespace)
	w.make(ctx, obj)
}

// raw gives a list of a TrainJob as the API server stores it, without Go types.
func (w *world) raw(ctx context.Context, job string, fields ...string) []any {
	GinkgoHelper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(trainer.GroupVersion.WithKind("TrainJob"))
	list, _, err := unstructured.NestedSlice(get(ctx, w, obj, job).Object, fields...)
	Expect(err).NotTo(HaveOccurred())
	return list
}

func jsonOf(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}

// wantedPods adds up the pods that the child Jobs of a TrainJob want at a time.
func (w *world) wantedPods(ctx context.Context, job string) int {
	GinkgoHelper()
	var jobs batchv1.JobList
	Expect(w.List(ctx, &jobs, client.InNamespace(w.namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: job})).To(Succeed())
	wanted := 0
	for _, j := range jobs.Items {
		wanted += int(*j.Spec.Parallelism)
	}
	return wanted
}

func quantity(amount string) *resource.Quantity {
	q := resource.MustParse(amount)
	return &q
}
