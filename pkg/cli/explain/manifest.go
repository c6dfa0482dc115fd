// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
			if err := found.add(&file.Documents[i]); err != nil {
				return nil, err
			}
		}
	}
	if len(found.jobs) == 0 {
		return nil, errors.Join(errors.New("there is no TrainJob in what -f names"), found.unread)
	}
	return found, nil
}

func (f *files) add(doc *manifest.Document) error {
	if doc.Err != nil {
		return nil
	}
	objects, err := doc.Objects(trainer.GroupVersion.Group, trainer.TrainJobKind)
	if err != nil {
		return err
	}
	for i := range objects {
		var job trainjob.TrainJob
		if err := objects[i].Into(&job, f.namespace); err != nil {
			return err
		}
		f.jobs = append(f.jobs, job)
	}
	return nil
}

// preview returns the facts of a TrainJob that does not exist yet: as if it had been created
// now. Runtimes come from the files that it stands in, then from the cluster.
func (r *Reader) preview(ctx context.Context, job *trainjob.TrainJob, in *files) (*Facts, error) {
	job = job.DeepCopy()
	job.UID = ""
	f, err := r.begin(ctx, job)
	if err != nil {
		return nil, err
	}
	// What an exported TrainJob holds of its former admission is dropped when it is created.
	f.Field.Drop(&job.Spec)
	if queue := string(kueueconstants.DefaultLocalQueueName); f.queueName() == "" && f.Cluster.LocalQueue(job.Namespace, kueueconstants.DefaultLocalQueueName) != nil {
		if job.Labels == nil {
			job.Labels = map[string]string{}
		}
		job.Labels[kueueconstants.QueueLabel] = queue
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
