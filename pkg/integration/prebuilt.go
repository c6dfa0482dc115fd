// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// retryPrebuilt is how often a TrainJob is looked at that waits for its prebuilt Workload.
// No event of that tells whose it is before it has an owner.
const retryPrebuilt = 5 * time.Second

// prebuiltOf returns the Workload that somebody made for job, or nil where job names none or
// it is missing.
func prebuiltOf(ctx context.Context, cached client.Reader, job *trainjob.TrainJob) (*kueue.Workload, error) {
	name := jobframework.PrebuiltWorkloadNameFor(job)
	if name == "" {
		return nil, nil
	}
	wl := &kueue.Workload{}
	err := cached.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: name}, wl)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading prebuilt Workload %s/%s: %w", job.Namespace, name, err)
	}
	return wl, nil
}

// asPrebuilt returns the PodSets of job's prebuilt Workload in place of its own where these
// differ only in tolerations that are added to its pods: jobframework would finish the
// Workload. The pods get them at the start all the same.
func asPrebuilt(ctx context.Context, j *job, own []kueue.PodSet) ([]kueue.PodSet, error) {
	wl, err := prebuiltOf(ctx, j.env.client, &j.TrainJob)
	if err != nil || wl == nil {
		return own, err
	}
	jobframework.SanitizePodSets(own)
	if podset.Difference(own, wl.Spec.PodSets, j.env.TolerationRules) != "" {
		return own, nil
	}
	return wl.DeepCopy().Spec.PodSets, nil
}

// tellPrebuilt says why a job cannot use the prebuilt Workload that it names.
func tellPrebuilt(ctx context.Context, j *job) error {
	wl, err := prebuiltOf(ctx, j.env.client, &j.TrainJob)
	if err != nil {
		return err
	}
	if why := unusable(ctx, j, wl); why != "" {
		j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonPrebuilt, jobevents.ActionDescribe, fmt.Errorf("prebuilt Workload %s %s", jobframework.PrebuiltWorkloadNameFor(j), why))
	}
	return nil
}

// unusable says what is wrong with a prebuilt Workload, nil for a missing one, and what to do.
func unusable(ctx context.Context, j *job, wl *kueue.Workload) string {
	if wl == nil {
		return fmt.Sprintf("is not there; create it in namespace %s, and the job queues", j.Namespace)
	}
	if owner := metav1.GetControllerOfNoCopy(wl); owner != nil && owner.UID != j.UID {
		return fmt.Sprintf("belongs to %s %s; create another, and the TrainJob again with its name", owner.Kind, owner.Name)
	}
	own, err := j.describe(ctx)
	if err != nil {
		// PodSets tells why.
		return ""
	}
	jobframework.SanitizePodSets(own)
	difference := podset.Difference(own, wl.Spec.PodSets, j.env.TolerationRules)
	if difference == "" && ptr.Deref(wl.Spec.MaximumExecutionTimeSeconds, -1) != ptr.Deref(jobframework.MaximumExecutionTimeSeconds(j), -1) {
		difference = "spec.maximumExecutionTimeSeconds is not what the TrainJob's label says"
	}
	switch {
	case difference != "":
		return fmt.Sprintf("is not what this TrainJob is: %s; delete the Workload and create it like the TrainJob", difference)
	case kueuelib.IsFinished(wl):
		return "is finished; create another, and the TrainJob again with its name"
	}
	return ""
}
