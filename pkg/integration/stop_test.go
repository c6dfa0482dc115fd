// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestLongStopIsTold(t *testing.T) {
	evicted := func(ago time.Duration) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			inttest.Is(kueue.WorkloadEvicted, "")(wl)
			since(wl, ago)
		}
	}
	cases := map[string]struct {
		stop func(*kueue.Workload)
		// deleted has the Workload deleted by a user, active is what JobSet reports, pods what its Job has.
		deleted      bool
		active, pods int32
		want         string
	}{
		"an evicted job with a pod":               {stop: evicted(time.Minute), active: 1, pods: 1, want: "Normal StillStopping Pods of the stopped run are still terminating"},
		"an evicted job that JobSet holds up":     {stop: evicted(time.Minute), active: 1, want: "Warning StillStopping no pod of the stopped run is left, but JobSet job"},
		"one that was evicted just now":           {stop: evicted(0), active: 1},
		"a deleted Workload that JobSet holds up": {deleted: true, active: 1, want: "Warning StillStopping no pod of the stopped run is left, but JobSet job"},
		"a deleted Workload with pods":            {deleted: true, active: 1, pods: 2, want: "Normal StillStopping Pods of the stopped run are still terminating"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(true, true, true, time.Now().Add(-time.Minute))
			js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: tc.active}}
			child := doneJob(js)
			child.Status.Active = tc.pods
			wl := inttest.WorkloadOf(stored, inttest.Admitted)
			wl.Finalizers = []string{kueue.ResourceInUseFinalizerName}
			kit.With(wl, tc.stop)
			r, recorder := newReconciler(t, stored, js, child, wl)
			if tc.deleted {
				deletedLongAgo(t, r, wl)
			}
			result, err := (&reconciler{env: r.env}).Reconcile(t.Context(), jobRequest)
			expect.That(t, err == nil && (!tc.deleted && tc.want != "" || result.RequeueAfter != 0), "Reconcile returned %v, %v", result, err)
			wantTold(t, eventsSoFar(recorder, ""), tc.want)
		})
	}
}

// deletedLongAgo shows a Workload as one that was deleted a minute ago; the fake API
// server would stamp it with the time of now.
func deletedLongAgo(t *testing.T, r *attempt, wl *kueue.Workload) {
	t.Helper()
	ago := metav1.NewTime(time.Now().Add(-time.Minute))
	r.env.client = interceptor.NewClient(r.env.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if workloads, ok := list.(*kueue.WorkloadList); ok {
				for i := range workloads.Items {
					workloads.Items[i].DeletionTimestamp = &ago
				}
			}
			return err
		},
	})
	r.framework = frameworkOf(r)
	r.env.state = state.FromCache(r.env.client)
}

// Trainer's refusals for the pods of before are silent for a while only.
func TestLagOfTrainerIsToldInTheEnd(t *testing.T) {
	cases := map[string]struct {
		began    time.Time
		wantTold bool
	}{
		"it may just not have heard of the last pod": {began: time.Now().Add(-10 * time.Second)},
		"it goes on for a minute":                    {began: time.Now().Add(-time.Minute), wantTold: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(true, true, true, time.Now().Add(-time.Minute))
			r, recorder := newReconciler(t, stored, inttest.WorkloadOf(stored))
			r.env.expectations = jobclient.NewExpectations(clocktesting.NewFakePassiveClock(tc.began))
			r.env.client = interceptor.NewClient(r.env.client.(client.WithWatch), interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return apierrors.NewForbidden(jobclient.Resource, "job", errors.New("the JobSet's ReplicatedJob node is still active"))
				},
			})
			result, err := (&reconciler{env: r.env}).Reconcile(t.Context(), jobRequest)
			expect.That(t, (err != nil) == tc.wantTold && (result.RequeueAfter == retrySlowly) != tc.wantTold,
				"Reconcile returned %v, %v", result, err)
			told := eventsSoFar(recorder, jobevents.ReasonRefused)
			expect.That(t, (len(told) > 0) == tc.wantTold, "The user is told %q, want to be told: %t", told, tc.wantTold)
		})
	}
}
