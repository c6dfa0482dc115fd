// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

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
	job.UID = ""
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
	s.Cluster = others
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
	runtimes, err := manifest.NewRuntimes(schema, in.documents, in.namespace, r.client)
	if err != nil {
		return nil, err
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
