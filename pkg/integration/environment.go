// SPDX-License-Identifier: Apache-2.0

// Package integration makes TrainJobs a kind that Kueue manages: the adapter for Kueue's
// jobframework (job.go), the reconciler around it (reconciler.go, and a file for each thing that
// it ensures), and the set-up of these and of the packages below (setup.go).
// docs/architecture.md says what is where.
package integration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// environment is what adapter and reconciler go by.
type environment struct {
	// Describer is for the Trainer that is served; see now.
	*podsets.Describer

	client client.Client
	// state reads what there is of a TrainJob; for a reconcile each kind once.
	state state.Reader
	// live asks the API server itself.
	live client.Reader

	expectations *jobclient.Expectations
	memory       *memory
	backoff      *jobclient.Backoff
	starts       *starts
	inTree       *serving.InTree
	trainer      *serving.Trainer
	all          *serving.TrainJobs

	// kueue has the settings that are Kueue's.
	kueue  *kueueconfig.Follower
	queues *queues.Queues
}

// now returns the environment of the generation of Trainer that the cluster serves now, or
// an error where that is unknown. One reconcile uses one environment, so that
// it sees the same generation from its beginning to its end.
func (e *environment) now() (*environment, error) {
	served, err := e.trainer.Served()
	if err != nil {
		return nil, err
	}
	env := *e
	env.state = state.Once(e.state)
	env.Describer = e.Describer.For(served)
	return &env, nil
}

// stillAdmitted asks the API server whether job may run, whatever the cache says.
func (e *environment) stillAdmitted(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	var wl kueue.Workload
	if err := e.live.Get(ctx, workloadKey(job), &wl); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading Workload %s: %w", workloadKey(job), err)
	}
	return metav1.IsControlledBy(&wl, job) && wl.DeletionTimestamp.IsZero() && state.MayRun(&wl) && sameTimeLimit(&wl, job), nil
}

// sameTimeLimit reports whether a Workload has the time limit that the job asks for. With
// another one jobframework takes it for another job's, and that is no view of the past.
func sameTimeLimit(wl *kueue.Workload, job *trainjob.TrainJob) bool {
	return ptr.Equal(wl.Spec.MaximumExecutionTimeSeconds, jobframework.MaximumExecutionTimeSecondsForObject(job))
}

// workloadKey names the Workload of job: the one that MultiKueue made for it, or the one
// that jobframework makes.
func workloadKey(job *trainjob.TrainJob) client.ObjectKey {
	name := jobframework.PrebuiltWorkloadNameFor(job)
	if name == "" {
		name = jobframework.GetWorkloadNameForOwnerWithGVK(job.Name, job.UID, trainjob.GVK)
	}
	return client.ObjectKey{Namespace: job.Namespace, Name: name}
}

// confirm asks the API server whether the admission that the cache knows still stands.
func (e *environment) confirm(ctx context.Context, cached *kueue.Workload) error {
	var wl kueue.Workload
	err := e.live.Get(ctx, client.ObjectKeyFromObject(cached), &wl)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Workload %s: %w", client.ObjectKeyFromObject(cached), err)
	}
	if err != nil || wl.UID != cached.UID || !state.MayRun(&wl) || !equality.Semantic.DeepEqual(wl.Status.Admission, cached.Status.Admission) {
		return errOutdated
	}
	return nil
}
