// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// ControlledCheck adds an admission check to the world's ClusterQueue, whose controller the test is, and
// returns its name.
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
	w.EditQueue(ctx, w.Name("gpus"), func(cq *kueue.ClusterQueue) {
		cq.Spec.AdmissionChecksStrategy = kit.Checks(check)
	})
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

// Names returns the names of the objects of a kind.
func (w *World) Names(ctx context.Context, list client.ObjectList) ([]string, error) {
	var names []string
	err := w.List(ctx, list, client.InNamespace(w.Namespace))
	_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
		names = append(names, obj.(client.Object).GetName())
		return nil
	})
	return names, err
}

// Dump prints what a person would look at first.
func (w *World) Dump(ctx context.Context) {
	for _, list := range []client.ObjectList{
		&trainer.TrainJobList{}, &kueue.WorkloadList{}, &jobsetapi.JobSetList{}, &batchv1.JobList{}, &corev1.PodList{},
	} {
		if err := w.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			fmt.Fprintln(w.log, "dump:", err)
			continue
		}
		_ = apimeta.EachListItem(list, func(obj runtime.Object) error {
			obj.(client.Object).SetManagedFields(nil)
			return nil
		})
		data, err := yaml.Marshal(list)
		fmt.Fprintf(w.log, "---- %s %T\n%s%v\n", w.Cluster.Name, list, data, err)
	}
	w.dumpEvents(ctx)
}

func (w *World) dumpEvents(ctx context.Context) {
	var list eventsv1.EventList
	if err := w.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
		fmt.Fprintln(w.log, "dump:", err)
		return
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, e := range list.Items[max(0, len(list.Items)-40):] {
		fmt.Fprintf(w.log, "%s %s %s %s/%s %s: %s\n",
			w.Cluster.Name, e.CreationTimestamp.Format("15:04:05"), e.Type, e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
	}
}
