// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// calm is the time between two looks at the cluster at the least: pods come in crowds.
	calm = 200 * time.Millisecond
	// again is after how long a watch that ended is tried again.
	again = time.Second
)

// follower watches a TrainJob until it runs.
type follower struct {
	client client.WithWatch
	out    io.Writer
	job    client.ObjectKey
}

// follow shows how far the TrainJob comes. It ends when its pods run, with an error when
// they will not, and with another one when ctx ends.
func (f *follower) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := f.changes(ctx)
	d := newDisplay(f.out, time.Now())
	for {
		v, err := f.look(ctx)
		if err == nil {
			p := progressOf(v)
			d.show(p, time.Now())
			switch {
			case p.failure != "":
				return exit.With(exit.Findings, fmt.Errorf("TrainJob %s does not run: %s; see kubectl trainjob explain -n %s %s", f.job, p.failure, f.job.Namespace, f.job.Name))
			case p.running():
				return nil
			}
		} else if ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped watching; TrainJob %s stays and goes on: see kubectl trainjob explain -n %s %s", f.job, f.job.Namespace, f.job.Name)
		case <-changed:
		}
	}
}

// changes tells that something about the TrainJob changed, at most once every calm.
func (f *follower) changes(ctx context.Context) <-chan struct{} {
	events, changed := make(chan struct{}, 1), make(chan struct{})
	name := client.MatchingFields{metav1.ObjectNameField: f.job.Name}
	for list, options := range map[client.ObjectList][]client.ListOption{
		&trainjob.List{}:        {name},
		&kueue.WorkloadList{}:   nil,
		&jobsetapi.JobSetList{}: {name},
		&corev1.PodList{}:       {client.MatchingLabels{jobsetapi.JobSetNameKey: f.job.Name}},
	} {
		go f.watch(ctx, list, append(options, client.InNamespace(f.job.Namespace)), events)
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-events:
			}
			select {
			case <-ctx.Done():
				return
			case changed <- struct{}{}:
			}
			wait(ctx, calm)
		}
	}()
	return changed
}

// watch tells of every event, and begins again when the API server ends it. What the user
// may not watch does not count.
func (f *follower) watch(ctx context.Context, list client.ObjectList, options []client.ListOption, events chan<- struct{}) {
	for ctx.Err() == nil {
		w, err := f.client.Watch(ctx, list, options...)
		if apierrors.IsForbidden(err) {
			return
		}
		if err != nil {
			wait(ctx, again)
			continue
		}
		for range w.ResultChan() {
			select {
			case events <- struct{}{}:
			default:
				// One that nobody has looked at yet is as good as two.
			}
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// look reads what there is. What the user may not see is as if it were not there.
func (f *follower) look(ctx context.Context) (view, error) {
	v := view{job: &trainjob.TrainJob{}}
	switch err := f.client.Get(ctx, f.job, v.job); {
	case apierrors.IsNotFound(err):
		return view{}, nil
	case err != nil:
		return v, fmt.Errorf("reading TrainJob %s: %w", f.job, err)
	}
	var workloads kueue.WorkloadList
	if err := f.client.List(ctx, &workloads, client.InNamespace(f.job.Namespace)); ignore(err) != nil {
		return v, fmt.Errorf("listing Workloads: %w", err)
	}
	for i := range workloads.Items {
		if metav1.IsControlledBy(&workloads.Items[i], v.job) {
			v.workload = &workloads.Items[i]
		}
	}
	var js jobsetapi.JobSet
	if err := f.client.Get(ctx, f.job, &js); ignore(err) != nil {
		return v, fmt.Errorf("reading JobSet %s: %w", f.job, err)
	} else if err == nil {
		v.jobSet = &js
	}
	var pods corev1.PodList
	err := f.client.List(ctx, &pods, client.InNamespace(f.job.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: f.job.Name})
	if ignore(err) != nil {
		return v, fmt.Errorf("listing pods: %w", err)
	}
	v.pods = pods.Items
	return v, nil
}

// ignore leaves out that something is not there, or not for the user to see.
func ignore(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
