// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// keepPriority has jobframework leave the priority of a job alone whose label names a class that is not
// there. It looks for that before it does anything else with a Workload, so that it could not even stop
// the job. Only this view of the job is changed, and not for a start, which is for what the job says:
// that fails, and the quota goes back.
func keepPriority(ctx context.Context, j *job) result {
	class := jobframework.WorkloadPriorityClassName(j.Object())
	if class == "" {
		return result{}
	}
	missing := j.deps.client.Get(ctx, client.ObjectKey{Name: class}, &kueue.WorkloadPriorityClass{})
	if !apierrors.IsNotFound(missing) {
		return ofError(missing)
	}
	wl := j.unfinishedWorkload()
	if wl == nil || starts(j, wl) {
		return result{}
	}
	delete(j.Labels, kueueconstants.WorkloadPriorityClassLabel)
	if kueuelib.HasWorkloadPriorityClass(wl) {
		j.Labels[kueueconstants.WorkloadPriorityClassLabel] = wl.Spec.PriorityClassRef.Name
	}
	if jobframework.WorkloadPriorityClassName(j.Object()) != class {
		tellClassMissing(j, missing)
		return result{again: retryClass}
	}
	return result{}
}

// tellClassMissing tells the user of a priority class that is not there.
func tellClassMissing(j *job, missing error) {
	j.warn(jobevents.ReasonNoPriority, jobevents.ActionQueue,
		"keeps the priority that it has, if any: %v; ask an admin to create it, or name another one", missing)
}

// setPodSets replaces the PodSets of a Workload that waits, and its priority where that is the one of the former pods by the
// one of these. What a WorkloadPriorityClass or an admin has said stays.
func setPodSets(ctx context.Context, j *job, wl *kueue.Workload, podSets []kueue.PodSet) error {
	former := wl.DeepCopy()
	wl.Spec.PodSets = podSets
	if jobframework.WorkloadPriorityClassName(j.Object()) != "" {
		return nil
	}
	err := jobframework.PrepareWorkloadPriority(ctx, j.deps.client, j.Object(), former, nil)
	if apierrors.IsNotFound(err) || err == nil && (!equality.Semantic.DeepEqual(former.Spec.PriorityClassRef, wl.Spec.PriorityClassRef) ||
		ptr.Deref(former.Spec.Priority, 0) != ptr.Deref(wl.Spec.Priority, 0)) {
		return nil
	}
	if err == nil {
		err = jobframework.PrepareWorkloadPriority(ctx, j.deps.client, j.Object(), wl, nil)
	}
	if err != nil {
		return fmt.Errorf("finding the priority of the pods of Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}
