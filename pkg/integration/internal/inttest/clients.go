// SPDX-License-Identifier: Apache-2.0

package inttest

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// PodsByPhase selects pods by their phase as the API server does; the fake one cannot.
func PodsByPhase(c client.Client) client.Client {
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
