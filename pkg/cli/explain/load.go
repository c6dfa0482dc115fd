// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

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
	return &Reader{Snapshot: s, client: c, renderer: renderer}, nil
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
	r.describe(ctx, f, r.runtimesFrom(r.client, r.client))
	s.Facts = []*Facts{f}
	s.visible(ctx, r.client)
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
	f.Fields, f.Undescribed = provenance.Explain(provenance.Input{Runtime: runtime, Job: f.Job, Overrides: f.Job.Spec.PodTemplateOverrides}, js)
}
