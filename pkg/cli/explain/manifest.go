// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"encoding/json"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// files are the TrainJobs of manifests, and the runtimes beside them.
type files struct {
	jobs []trainjob.TrainJob
	// runtimes are looked at before the cluster's.
	runtimes []client.Object
}

// readFiles takes what it knows out of the documents; the others are left alone. Objects
// without a namespace are in the one given.
func readFiles(documents []manifest.File, namespace string) (*files, error) {
	found := &files{}
	for _, file := range documents {
		for i := range file.Documents {
			if err := found.add(&file.Documents[i], namespace); err != nil {
				return nil, err
			}
		}
	}
	if len(found.jobs) == 0 {
		return nil, fmt.Errorf("there is no TrainJob in what -f names")
	}
	return found, nil
}

func (f *files) add(doc *manifest.Document, namespace string) error {
	group := trainer.GroupVersion.Group
	var object client.Object
	switch {
	case doc.Of(group, "TrainJob"):
		f.jobs = append(f.jobs, trainjob.TrainJob{})
		object = &f.jobs[len(f.jobs)-1]
	case doc.Of(group, trainer.ClusterTrainingRuntimeKind):
		object = &trainer.ClusterTrainingRuntime{}
		f.runtimes = append(f.runtimes, object)
		namespace = ""
	case doc.Of(group, trainer.TrainingRuntimeKind):
		object = &trainer.TrainingRuntime{}
		f.runtimes = append(f.runtimes, object)
	default:
		return nil
	}
	data, err := doc.JSON()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, object); err != nil {
		return fmt.Errorf("%s:%d: reading the %s: %w", doc.Path, doc.Line, object.GetObjectKind().GroupVersionKind().Kind, err)
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	return nil
}

// reader reads runtimes from the files first.
func (f *files) reader(cluster client.Reader) client.Reader {
	return filesFirst{Reader: cluster, objects: f.runtimes}
}

type filesFirst struct {
	client.Reader
	objects []client.Object
}

// Get implements client.Reader.
func (r filesFirst) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	for _, object := range r.objects {
		if client.ObjectKeyFromObject(object) != key {
			continue
		}
		switch into := into.(type) {
		case *trainer.ClusterTrainingRuntime:
			if from, ok := object.(*trainer.ClusterTrainingRuntime); ok {
				from.DeepCopyInto(into)
				return nil
			}
		case *trainer.TrainingRuntime:
			if from, ok := object.(*trainer.TrainingRuntime); ok {
				from.DeepCopyInto(into)
				return nil
			}
		}
	}
	return r.Reader.Get(ctx, key, into, opts...)
}

// preview gives the facts of a TrainJob that does not exist yet: as if it had been created
// now. Runtimes come from the files that it stands in, then from the cluster.
func (r *Reader) preview(ctx context.Context, job *trainjob.TrainJob, in *files) (*Facts, error) {
	job = job.DeepCopy()
	job.UID = ""
	f, err := r.facts(ctx, job)
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
	r.describe(ctx, f, r.runtimesFrom(in.reader(r.client), nil))
	return f, nil
}
