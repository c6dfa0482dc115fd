// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// podsByPhase selects pods by their phase as the API server does; the fake one cannot.
func podsByPhase(c client.Client) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			pods, ok := list.(*corev1.PodList)
			if !ok {
				return c.List(ctx, list, opts...)
			}
			var asked client.ListOptions
			asked.ApplyOptions(opts)
			selector := asked.FieldSelector
			asked.FieldSelector = nil
			err := c.List(ctx, pods, &asked)
			pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
				return selector != nil && !selector.Matches(fields.Set{"status.phase": string(pod.Status.Phase)})
			})
			return err
		},
	})
}

func TestPodsLeft(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "pod", Labels: map[string]string{jobsetapi.JobSetNameKey: "job"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job-node-0", UID: "j", Controller: new(true)}},
			},
			Spec:   corev1.PodSpec{NodeName: "node"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		change(p)
		return p
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want int
	}{
		"a pod that runs": {pod: pod(func(*corev1.Pod) {}), want: 1},
		"a pod on its way out": {pod: pod(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"test/hold"}
		}), want: 1},
		"a pod that may be bound at any moment": {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }), want: 1},
		"a pod at a gate": {pod: pod(func(p *corev1.Pod) {
			p.Spec.NodeName, p.Spec.SchedulingGates = "", []corev1.PodSchedulingGate{{Name: "any"}}
		})},
		"a pod that has succeeded":   {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
		"a pod that has failed":      {pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
		"a pod of another JobSet":    {pod: pod(func(p *corev1.Pod) { p.Labels[jobsetapi.JobSetNameKey] = "other" })},
		"a pod that somebody labels": {pod: pod(func(p *corev1.Pod) { p.OwnerReferences = nil })},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, tc.pod)
			pods, err := r.env.podsLeft(t.Context(), types.NamespacedName{Namespace: "ns", Name: "job"})
			if err != nil || len(pods) != tc.want {
				t.Errorf("podsLeft returns %d pods, %v, want %d", len(pods), err, tc.want)
			}
		})
	}
}
