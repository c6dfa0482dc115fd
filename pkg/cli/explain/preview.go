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
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// readRendered reads all that there is about a TrainJob of the cluster.
func readRendered(ctx context.Context, c client.Client, renderer *trainjob.Renderer, job *trainjob.TrainJob) (*Facts, error) {
	f, err := Read(ctx, c, job)
	if err != nil {
		return nil, err
	}
	f.Undescribed = f.render(ctx, renderer, trainjob.NewRuntimes(c, c))
	askPlaces(ctx, c, f)
	return f, nil
}

// render finds the job's PodSets, where no Workload has them, and who set what. The error is what stands against it.
func (f *Facts) render(ctx context.Context, renderer *trainjob.Renderer, runtimes *trainjob.Runtimes) error {
	runtime, err := runtimes.As(f.served).For(ctx, f.Job)
	if err != nil {
		return err
	}
	if f.PodSets == nil {
		if f.PodSets, err = podset.Describe(ctx, renderer, f.Job, runtime, f.Field); err != nil {
			return err
		}
		podset.AddTolerations(f.PodSets, cluster.WithDefaults(f.Manager).TolerationRules)
		f.Cluster.SetOverhead(f.PodSets)
	}
	patches, err := f.Field.All(&f.Job.Spec)
	if err != nil {
		return err
	}
	js, err := renderer.Render(ctx, f.Job, runtime, patches)
	if err != nil {
		return err
	}
	f.Fields, err = provenance.Explain(provenance.Input{Runtime: runtime, Job: f.Job}, js)
	return err
}

// readFiles takes the TrainJobs out of documents, those without a namespace in one; unread is of what cannot be read.
func readFiles(documents []manifest.File, namespace string) (jobs []trainjob.TrainJob, unread, err error) {
	for i := range documents {
		unread = errors.Join(unread, documents[i].Err())
	}
	if err := manifest.Collect(documents, trainer.GroupVersion.Group, trainer.TrainJobKind, namespace, &jobs); err != nil {
		return nil, nil, err
	}
	if len(jobs) == 0 {
		return nil, nil, errors.Join(errors.New("there is no TrainJob in what -f names"), unread)
	}
	return jobs, unread, nil
}

// previews are of TrainJobs that do not exist yet: as if one had been created now, alone.
type previews struct {
	*reading
	renderer  *trainjob.Renderer
	documents []manifest.File // they may have runtimes
	within    string          // the namespace of what names none there
}

func newPreviews(ctx context.Context, c client.Client, renderer *trainjob.Renderer, documents []manifest.File, within string) (*previews, error) {
	r := newReading(c, "", "")
	r.around(ctx)
	return &previews{r, renderer, documents, within}, r.err
}

// of returns the facts of a TrainJob. Runtimes come from the files that it stands in, then from the cluster.
func (p *previews) of(ctx context.Context, job *trainjob.TrainJob) (*Facts, error) {
	job = job.DeepCopy()
	job.UID, job.Name = "", cmp.Or(job.Name, job.GenerateName)
	around, s := *p.reading, *p.Snapshot
	around.Snapshot, around.namespace = &s, job.Namespace
	around.localQueues(ctx)
	around.namespaces(ctx)
	replaces := around.without(job)
	around.compete(ctx)
	if around.err != nil {
		return nil, around.err
	}
	f := s.Of(job)
	f.Replaces = replaces
	// What an exported TrainJob holds of its former admission is dropped when it is created.
	f.Field.Drop(&job.Spec)
	if f.queueName() == "" && f.Cluster.LocalQueue(job.Namespace, kueueconstants.DefaultLocalQueueName) != nil {
		metav1.SetMetaDataLabel(&job.ObjectMeta, kueueconstants.QueueLabel, string(kueueconstants.DefaultLocalQueueName))
	}
	schema, err := releases.NewSchema(f.served, releases.Runtime)
	if err != nil {
		return nil, err
	}
	runtimes, err := manifest.NewRuntimes(schema, p.documents, p.within, p.client)
	if err != nil {
		return nil, err
	}
	f.Undescribed = f.render(ctx, p.renderer, trainjob.NewRuntimes(runtimes, nil))
	_, f.Priority, err = jobframework.ExtractPriority(ctx, p.client, job, f.PodSets, nil)
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

// without leaves out the Workloads that a TrainJob of this name has, if any: a manifest does not compete with itself.
func (r *reading) without(job *trainjob.TrainJob) bool {
	others := picked(r.inventory.Workloads, func(wl kueue.Workload) bool {
		owner := metav1.GetControllerOfNoCopy(&wl)
		return wl.Namespace != job.Namespace || owner == nil || owner.Kind != trainjob.GVK.Kind || owner.Name != job.Name
	})
	replaces := len(others) < len(r.inventory.Workloads)
	r.inventory.Workloads = others
	return replaces
}
