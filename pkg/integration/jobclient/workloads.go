// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// PatchWorkload writes what was changed of a Workload, if that is still stored as wl. An error says by format what was done to
// which one.
func PatchWorkload(ctx context.Context, c client.Client, wl, changed *kueue.Workload, format string) error {
	return of(wl, format, c.Patch(ctx, changed, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{})))
}

// PatchWorkloadStatus is PatchWorkload for the status.
func PatchWorkloadStatus(ctx context.Context, c client.Client, wl, changed *kueue.Workload, format string) error {
	return of(wl, format, c.Status().Patch(ctx, changed, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{})))
}

// DeleteWorkload deletes a Workload, unless it is gone. An error says by format which one.
func DeleteWorkload(ctx context.Context, c client.Client, wl *kueue.Workload, format string) error {
	return of(wl, format, client.IgnoreNotFound(c.Delete(ctx, wl, client.Preconditions{UID: &wl.UID})))
}

// GiveUpWorkload deletes a Workload, unless it is gone, if it is still stored as we know it.
func GiveUpWorkload(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	err := c.Delete(ctx, wl, client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
	return of(wl, "giving up Workload %s", client.IgnoreNotFound(err))
}

// of has an error say by format what was done to a Workload.
func of(wl *kueue.Workload, format string, err error) error {
	if err != nil {
		return fmt.Errorf(format+": %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}
