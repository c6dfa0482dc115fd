// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// calm is the time between two looks at the least: every look lists what jobs compete for.
const calm = time.Second

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
	err := follow.Each(watching, follow.Changes(watching, f.client, calm, f.kinds()...), f.errOut, f.look, func(facts *explain.Facts) (over bool, err error) {
		p := progressOf(facts)
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

// look reads what there is; nil where the TrainJob is gone.
func (f *follower) look(ctx context.Context) (*explain.Facts, error) {
	job, err := cluster.TrainJob(ctx, f.client, f.job.Namespace, f.job.Name)
	if errors.Is(err, cluster.ErrNoTrainJob) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return explain.Read(ctx, f.client, job)
}
