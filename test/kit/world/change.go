// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Finish ends all pods of a TrainJob, or of one of its replicated jobs: "succeeded" or "failed".
func (w *World) Finish(ctx context.Context, job, how string, replicatedJob ...string) {
	types.MarkAsHelper()
	for _, pod := range w.Pods(ctx, job) {
		if len(replicatedJob) > 0 && pod.Labels[jobsetapi.ReplicatedJobNameKey] != replicatedJob[0] {
			continue
		}
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "localcluster/finish", how)
		w.g.Expect(client.IgnoreNotFound(w.Patch(ctx, &pod, client.MergeFrom(before)))).To(gomega.Succeed())
	}
}

// Edit changes a TrainJob as the admin.
func (w *World) Edit(ctx context.Context, name string, change func(*trainer.TrainJob)) {
	types.MarkAsHelper()
	w.g.Expect(w.TryEdit(ctx, name, change)).To(gomega.Succeed())
}

// TryEdit changes a TrainJob as the admin, again when somebody else was faster, and
// gives the API server's answer.
func (w *World) TryEdit(ctx context.Context, name string, change func(*trainer.TrainJob)) error {
	return tryEdit(ctx, w, &trainer.TrainJob{}, client.ObjectKey{Namespace: w.Namespace, Name: name}, change)
}

// EditRuntime changes a ClusterTrainingRuntime, again when somebody else was faster.
func (w *World) EditRuntime(ctx context.Context, name string, change func(*trainer.ClusterTrainingRuntime)) {
	types.MarkAsHelper()
	w.g.Expect(tryEdit(ctx, w, &trainer.ClusterTrainingRuntime{}, client.ObjectKey{Name: name}, change)).To(gomega.Succeed())
}

// EditQueue changes a ClusterQueue, again when somebody else was faster.
func (w *World) EditQueue(ctx context.Context, name string, change func(*kueue.ClusterQueue)) {
	types.MarkAsHelper()
	w.g.Expect(tryEdit(ctx, w, &kueue.ClusterQueue{}, client.ObjectKey{Name: name}, change)).To(gomega.Succeed())
}

func tryEdit[T client.Object](ctx context.Context, c client.Client, obj T, key client.ObjectKey, change func(T)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(ctx, key, obj); err != nil {
			return err
		}
		change(obj)
		return c.Update(ctx, obj)
	})
}

// SetQuota sets the GPUs of a ClusterQueue's first flavor.
func (w *World) SetQuota(ctx context.Context, clusterQueue, gpus string) {
	types.MarkAsHelper()
	w.EditQueue(ctx, clusterQueue, func(cq *kueue.ClusterQueue) {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse(gpus)
	})
}

// SetStopPolicy sets whether a ClusterQueue admits, holds, or drains.
func (w *World) SetStopPolicy(ctx context.Context, clusterQueue string, policy kueue.StopPolicy) {
	types.MarkAsHelper()
	w.EditQueue(ctx, clusterQueue, func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = &policy })
}

// Activate sets spec.active of a TrainJob's Workload.
func (w *World) Activate(ctx context.Context, job string, active bool) {
	types.MarkAsHelper()
	wl := w.Workload(ctx, job)
	w.g.Expect(wl).NotTo(gomega.BeNil())
	before := wl.DeepCopy()
	wl.Spec.Active = ptr.To(active)
	w.g.Expect(w.Patch(ctx, wl, client.MergeFrom(before))).To(gomega.Succeed())
}

// Touch makes an event on a TrainJob that changes nothing.
func (w *World) Touch(ctx context.Context, name string) {
	types.MarkAsHelper()
	w.Edit(ctx, name, func(t *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.com/touched", rand.String(5))
	})
}

// TouchPods makes an event on the child Jobs of a TrainJob that changes nothing.
func (w *World) TouchPods(ctx context.Context, job string) {
	types.MarkAsHelper()
	for _, j := range w.ChildJobs(ctx, job) {
		before := j.DeepCopy()
		metav1.SetMetaDataAnnotation(&j.ObjectMeta, "example.com/touched", rand.String(5))
		w.g.Expect(w.Patch(ctx, &j, client.MergeFrom(before))).To(gomega.Succeed())
	}
}
