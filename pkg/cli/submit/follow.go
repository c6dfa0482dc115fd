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
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// calm is the time between two looks at the cluster at the least: pods come in crowds.
const calm = 200 * time.Millisecond

// follower watches a TrainJob until it runs.
type follower struct {
	client      client.WithWatch
	out, errOut io.Writer
	job         client.ObjectKey
}

// follow shows how far the TrainJob comes. It ends when its pods run, with an error when
// they will not, and with another one when ctx ends.
func (f *follower) follow(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	d := newDisplay(f.out, time.Now())
	runs := false
	err := follow.Each(watching, follow.Changes(watching, f.client, calm, f.kinds()...), f.errOut, f.look, func(v view) (over bool, err error) {
		p := progressOf(v)
		d.show(p, time.Now())
		if p.failure != "" {
			return true, exit.With(exit.Findings, fmt.Errorf("TrainJob %s does not run: %s; see kubectl trainjob explain -n %s %s", f.job, p.failure, f.job.Namespace, f.job.Name))
		}
		runs = p.running()
		return runs, nil
	})
	if err == nil && !runs {
		return fmt.Errorf("stopped watching; TrainJob %s stays and goes on: see kubectl trainjob explain -n %s %s", f.job, f.job.Namespace, f.job.Name)
	}
	return err
}

// kinds are those whose changes move the TrainJob on.
func (f *follower) kinds() []follow.Kind {
	in, named := client.InNamespace(f.job.Namespace), client.MatchingFields{metav1.ObjectNameField: f.job.Name}
	return []follow.Kind{
		{List: &trainjob.List{}, Options: []client.ListOption{in, named}},
		{List: &kueue.WorkloadList{}, Options: []client.ListOption{in}},
		{List: &jobsetapi.JobSetList{}, Options: []client.ListOption{in, named}},
		{List: &corev1.PodList{}, Options: []client.ListOption{in, client.MatchingLabels{jobsetapi.JobSetNameKey: f.job.Name}}},
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
	} else if err != nil || !metav1.IsControlledBy(&js, v.job) {
		// What is left of a former TrainJob of this name counts for nothing.
		return v, nil
	}
	v.jobSet = &js
	var pods corev1.PodList
	err := f.client.List(ctx, &pods, client.InNamespace(f.job.Namespace),
		client.MatchingLabels{jobsetapi.JobSetNameKey: f.job.Name, jobsetapi.JobSetUIDKey: string(js.UID)})
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
