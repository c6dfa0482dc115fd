// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"
)

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
