// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
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
		f.Workload, f.PodSets = wl, podSetsOf(wl)
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
	f.Fields, f.Undescribed = provenance.Explain(provenance.Input{Runtime: runtime, Job: f.Job}, js)
}

// files are the TrainJobs of manifests, and the runtimes beside them.
type files struct {
	jobs []trainjob.TrainJob

	documents []manifest.File
	namespace string
	// unread is of documents that cannot be read.
	unread error
}

// readFiles takes what it knows out of the documents; the others are left alone. Objects
// without a namespace are in the one given.
func readFiles(documents []manifest.File, namespace string) (*files, error) {
	found := &files{documents: documents, namespace: namespace}
	for _, file := range documents {
		found.unread = errors.Join(found.unread, file.Err())
		for i := range file.Documents {
			if file.Documents[i].Err != nil {
				continue
			}
			objects, err := file.Documents[i].Objects(trainer.GroupVersion.Group, trainer.TrainJobKind)
			if err != nil {
				return nil, err
			}
			jobs := make([]trainjob.TrainJob, len(objects))
			for n := range objects {
				if err := objects[n].Into(&jobs[n], namespace); err != nil {
					return nil, err
				}
			}
			found.jobs = append(found.jobs, jobs...)
		}
	}
	if len(found.jobs) == 0 {
		return nil, errors.Join(errors.New("there is no TrainJob in what -f names"), found.unread)
	}
	return found, nil
}

// preview returns the facts of a TrainJob that does not exist yet: as if it had been created
// now. Runtimes come from the files that it stands in, then from the cluster.
func (r *Reader) preview(ctx context.Context, job *trainjob.TrainJob, in *files) (*Facts, error) {
	job = job.DeepCopy()
	job.UID, job.Name = "", cmp.Or(job.Name, job.GenerateName)
	s := *r.Snapshot
	around := &reading{Snapshot: &s, client: r.client, namespace: job.Namespace}
	around.localQueues(ctx)
	around.namespaces(ctx)
	if around.err != nil {
		return nil, around.err
	}
	others, err := s.Cluster.without(ctx, job)
	if err != nil {
		return nil, err
	}
	replaces := others != s.Cluster
	s.Cluster = others.undecided() // Others of these files may have the same generateName.
	f := s.Of(job)
	f.Replaces = replaces
	// What an exported TrainJob holds of its former admission is dropped when it is created.
	f.Field.Drop(&job.Spec)
	if f.queueName() == "" && f.Cluster.LocalQueue(job.Namespace, kueueconstants.DefaultLocalQueueName) != nil {
		metav1.SetMetaDataLabel(&job.ObjectMeta, kueueconstants.QueueLabel, string(kueueconstants.DefaultLocalQueueName))
	}
	schema, err := releases.NewSchema(r.served, releases.Runtime)
	if err != nil {
		return nil, err
	}
	runtimes, errs := manifest.NewRuntimes(schema, in.documents, in.namespace, r.client)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	r.describe(ctx, f, r.runtimesFrom(runtimes, nil))
	_, f.Priority, err = jobframework.ExtractPriority(ctx, r.client, job, f.PodSets, nil)
	switch {
	case apierrors.IsNotFound(err):
		f.Undescribed = fmt.Errorf("%w: %w", errNoClass, err)
	case apierrors.IsForbidden(err):
		f.PriorityUnseen = true
	case err != nil:
		return nil, fmt.Errorf("reading the priority of TrainJob %s: %w", client.ObjectKeyFromObject(job), err)
	}
	return f, nil
}
