// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Reader reads the facts of single TrainJobs.
type Reader struct {
	*Snapshot
	client   client.Client
	runtimes *trainjob.Runtimes
	renderer *trainjob.Renderer
	// workload is the name of the one that MultiKueue made for a job, before the job; empty for
	// jobs that have their own.
	workload string
}

// NewReader reads what all TrainJobs have in common. A process makes one Renderer, and
// hands it in here.
func NewReader(ctx context.Context, c client.Client, renderer *trainjob.Renderer) (*Reader, error) {
	s, err := around(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &Reader{Snapshot: s, client: c, renderer: renderer}
	r.runtimes = r.runtimesFrom(c, c)
	return r, nil
}

func (r *Reader) runtimesFrom(cached, live client.Reader) *trainjob.Runtimes {
	return trainjob.NewRuntimes(cached, live).As(r.served)
}

// Read reads the facts of one TrainJob but what it takes a rendering to know.
func Read(ctx context.Context, c client.Client, job *trainjob.TrainJob) (*Facts, error) {
	s, err := around(ctx, c)
	if err != nil {
		return nil, err
	}
	if job, err = s.readOne(ctx, c, job); err != nil {
		return nil, err
	}
	return s.Of(job), nil
}

// Facts reads all that there is about a TrainJob of the cluster.
func (r *Reader) Facts(ctx context.Context, job *trainjob.TrainJob) (*Facts, error) {
	s := *r.Snapshot
	job, err := s.readOne(ctx, r.client, job)
	if err != nil {
		return nil, err
	}
	f := s.Of(job)
	if wl := inventory.Find(s.Workloads, job.Namespace, r.workload); wl != nil {
		f.Workload, f.PodSets = wl, wl.Spec.PodSets
	}
	r.describe(ctx, f, r.runtimes)
	if queue := f.localQueue(); queue != nil && f.Workload != nil {
		pending, _ := pendingIn(ctx, r.client, client.ObjectKeyFromObject(queue)) // its API is an option: no answer is as good as none
		f.Visible = placeIn(pending, f)
	}
	return f, nil
}

// begin are the facts of a job that need not be there.
func (r *Reader) begin(ctx context.Context, job *trainjob.TrainJob) (*Facts, error) {
	s := *r.Snapshot
	if err := s.localQueues(ctx, r.client, job.Namespace); err != nil {
		return nil, err
	}
	if err := s.namespace(ctx, r.client, job.Namespace); err != nil {
		return nil, err
	}
	var err error
	if s.Cluster, err = s.Cluster.without(ctx, job); err != nil {
		return nil, err
	}
	f := s.Of(job)
	f.Replaces = s.Cluster != r.Cluster && len(s.Cluster.Workloads) < len(r.Cluster.Workloads)
	return f, nil
}

// describe renders the job: its PodSets, where no Workload has them, and who set what. What
// stands against it is part of the facts.
func (r *Reader) describe(ctx context.Context, f *Facts, runtimes *trainjob.Runtimes) {
	runtime, err := runtimes.For(ctx, f.Job)
	if err != nil {
		f.Undescribed = err
		return
	}
	if f.PodSets == nil {
		if f.PodSets, err = podset.Describe(ctx, r.renderer, f.Job, runtime, f.Field); err != nil {
			f.Undescribed = err
			return
		}
		podset.AddTolerations(f.PodSets, cluster.Rules(r.Manager))
		f.RulesUnseen = r.ManagerUnseen
	}
	patches, err := f.Field.All(&f.Job.Spec)
	if err != nil {
		f.Undescribed = err
		return
	}
	js, err := r.renderer.Render(ctx, f.Job, runtime, patches)
	if err != nil {
		f.Undescribed = err
		return
	}
	f.Fields, f.Undescribed = provenance.Explain(provenance.Input{Runtime: runtime, Job: f.Job}, js)
}

// pendingIn asks Kueue itself who waits in a LocalQueue.
func pendingIn(ctx context.Context, c client.Client, key types.NamespacedName) ([]visibility.PendingWorkload, error) {
	var summary visibility.PendingWorkloadsSummary
	of := &visibility.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.SubResource("pendingworkloads").Get(ctx, of, &summary)
	return summary.Items, err
}

// placeIn is the job's place in Kueue's answer; nil where it is not there.
func placeIn(pending []visibility.PendingWorkload, f *Facts) *Position {
	mine := find(pending, func(p *visibility.PendingWorkload) bool { return p.Name == f.Workload.Name })
	if mine == nil {
		return nil
	}
	position := &Position{Place: int(mine.PositionInClusterQueue) + 1, Source: Visibility}
	if cq := f.clusterQueue(); cq != nil {
		position.Pending = int(cq.Status.PendingWorkloads)
	}
	return position
}
