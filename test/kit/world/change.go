// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// Finish ends all pods of a TrainJob, or of one of its replicated jobs: "succeeded" or "failed".
func (w *World) Finish(ctx context.Context, job, how string, replicatedJob ...string) {
	pods := w.Pods(ctx, job)
	if len(replicatedJob) > 0 {
		pods = OfReplicatedJob(pods, replicatedJob[0])
	}
	w.g.Expect(EndPods(ctx, w, pods, how)).To(gomega.Succeed())
}

// EndPods ends pods, some at a time: "succeeded" or "failed". Those that are gone by then are left out.
func EndPods(ctx context.Context, c client.Client, pods []corev1.Pod, how string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(10)
	for _, pod := range pods {
		group.Go(func() error {
			patch := client.RawPatch(apitypes.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"localcluster/finish":%q}}}`, how))
			return client.IgnoreNotFound(c.Patch(ctx, &pod, patch))
		})
	}
	return group.Wait()
}

// Succeed ends all pods of a TrainJob, and waits until its Workload is finished.
func (w *World) Succeed(ctx context.Context, job string) {
	w.Finish(ctx, job, "succeeded")
	w.EventuallyCondition(ctx, job, kueue.WorkloadFinished)
}

// Edit changes a TrainJob as the admin.
func (w *World) Edit(ctx context.Context, name string, change func(*trainer.TrainJob)) {
	w.g.Expect(w.TryEdit(ctx, name, change)).To(gomega.Succeed())
}

// TryEdit changes a TrainJob as the admin, again when somebody else was faster, and gives the API server's answer.
func (w *World) TryEdit(ctx context.Context, name string, change func(*trainer.TrainJob)) error {
	job := kit.TrainJob(w.Namespace, name).Obj()
	return TryChange(ctx, w, job, func() { change(job) })
}

// EditRuntime changes a ClusterTrainingRuntime.
func (w *World) EditRuntime(ctx context.Context, name string, change kit.RuntimeChange) {
	runtime := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.Change(ctx, runtime, func() { change(&runtime.Spec) })
}

// EditQueue changes a ClusterQueue.
func (w *World) EditQueue(ctx context.Context, name string, change func(*kueue.ClusterQueue)) {
	queue := kit.ClusterQueue(name)
	w.Change(ctx, queue, func() { change(queue) })
}

// Change changes an object, which is read for that, as the admin.
func (w *World) Change(ctx context.Context, obj client.Object, change func()) {
	w.g.Expect(TryChange(ctx, w, obj, change)).To(gomega.Succeed())
}

// TryChange reads an object, changes it, and writes it, again when somebody else was faster.
func TryChange(ctx context.Context, c client.Client, obj client.Object, change func()) error {
	key := client.ObjectKeyFromObject(obj)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := readAgain(ctx, c, key, obj); err != nil {
			return err
		}
		change()
		return c.Update(ctx, obj)
	})
}

// ChangeStatus changes the status of an object, as its controller.
func (w *World) ChangeStatus(ctx context.Context, obj client.Object, change func()) {
	before := obj.DeepCopyObject().(client.Object)
	change()
	w.g.Expect(w.Status().Patch(ctx, obj, client.MergeFrom(before))).To(gomega.Succeed())
}

// PatchJSON sends a merge patch of an object.
func (w *World) PatchJSON(ctx context.Context, obj client.Object, patch string) {
	w.g.Expect(w.Patch(ctx, obj, client.RawPatch(apitypes.MergePatchType, []byte(patch)))).To(gomega.Succeed())
}

// SetQuota sets the GPUs of a ClusterQueue's first flavor.
func (w *World) SetQuota(ctx context.Context, clusterQueue, gpus string) {
	w.EditQueue(ctx, clusterQueue, func(cq *kueue.ClusterQueue) {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse(gpus)
	})
}

// SetStopPolicy sets whether a ClusterQueue or a LocalQueue admits, holds, or drains.
func (w *World) SetStopPolicy(ctx context.Context, queue client.Object, policy kueue.StopPolicy) {
	w.PatchJSON(ctx, queue, fmt.Sprintf(`{"spec":{"stopPolicy":%q}}`, policy))
}

// Activate sets spec.active of a TrainJob's Workload. It is set to true when a deactivation that is pending is done,
// and to false when the manager, which may be away, can be asked.
func (w *World) Activate(ctx context.Context, job string, active bool) {
	w.g.Eventually(ctx, func(g gomega.Gomega) {
		wl := w.Workload(ctx, job)
		g.Expect(wl).NotTo(gomega.BeNil())
		g.Expect(active && deactivation.Pending(wl)).To(gomega.BeFalse(), "the Workload is yet to be deactivated")
		g.Expect(w.Patch(ctx, wl, client.RawPatch(apitypes.MergePatchType, fmt.Appendf(nil, `{"spec":{"active":%t}}`, active)))).To(gomega.Succeed())
	}).Should(gomega.Succeed())
}

// Touch makes an event on a TrainJob that changes nothing.
func (w *World) Touch(ctx context.Context, name string) {
	w.Edit(ctx, name, func(t *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "example.com/touched", rand.String(5))
	})
}

// TouchPods makes an event on the child Jobs of a TrainJob that changes nothing.
func (w *World) TouchPods(ctx context.Context, job string) {
	for _, j := range w.ChildJobs(ctx, job) {
		w.PatchJSON(ctx, &j, fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":%q}}}`, rand.String(5)))
	}
}

// ControlledCheck adds an admission check, whose controller the test is, to the world's ClusterQueue, and names it.
func (w *World) ControlledCheck(ctx context.Context) string {
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.Name("site")}}
	check.Spec.ControllerName = "example.com/site"
	w.Make(ctx, check)
	w.ChangeStatus(ctx, check, func() {
		check.Status.Conditions = []metav1.Condition{
			{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.Now()}}
	})
	w.DemandCheck(ctx, check.Name)
	return check.Name
}

// DemandCheck has the world's ClusterQueue admit nothing without an admission check.
func (w *World) DemandCheck(ctx context.Context, check string) {
	w.EditQueue(ctx, w.Name("gpus"), func(cq *kueue.ClusterQueue) { cq.Spec.AdmissionChecksStrategy = kit.Checks(check) })
}

// SetCheck says what an admission check says of a TrainJob's Workload that holds quota.
func (w *World) SetCheck(ctx context.Context, job, check string, state kueue.CheckState, message string, updates ...kueue.PodSetUpdate) {
	w.g.Eventually(ctx, func(g gomega.Gomega) {
		wl := w.Workload(ctx, job)
		g.Expect(wl).NotTo(gomega.BeNil())
		g.Expect(wl.Status.Admission).NotTo(gomega.BeNil())
		g.Expect(wl.Status.AdmissionChecks).To(gomega.ConsistOf(gomega.HaveField("State", kueue.CheckStatePending)))
		answer := &wl.Status.AdmissionChecks[0]
		answer.State, answer.Message, answer.PodSetUpdates = state, message, updates
		g.Expect(w.Status().Update(ctx, wl)).To(gomega.Succeed())
	}).Should(gomega.Succeed())
}
