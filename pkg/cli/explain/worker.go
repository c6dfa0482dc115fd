// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Worker is a cluster that MultiKueue gave a job to, or may.
type Worker struct {
	// Cluster is the name of the MultiKueueCluster.
	Cluster string
	// Context of the kubeconfig leads there; empty where none is known to.
	Context string
	// Facts are those of the job's copy there; nil where nothing is known of one.
	Facts *Facts
	// Problem is why nothing is known.
	Problem error
}

// Dispatched names the workers of a job of MultiKueue: the one that has it, or those that may
// admit it.
func (f *Facts) Dispatched() (assigned string, nominated []string) {
	if !cluster.ForMultiKueue(f.Job) || f.Workload == nil || f.Job.Finished() || kueuelib.IsFinished(f.Workload) ||
		!kueuelib.IsActive(f.Workload) || !kueuelib.HasQuotaReservation(f.Workload) || f.condition(kueue.WorkloadEvicted) != nil {
		return "", nil
	}
	if assigned = cluster.Assigned(f.Workload); assigned != "" {
		return assigned, nil
	}
	return "", f.Workload.Status.NominatedClusterNames
}

// workerNames are the worker that has the job, or those that may admit it.
func (f *Facts) workerNames() []string {
	assigned, nominated := f.Dispatched()
	if assigned != "" {
		return []string{assigned}
	}
	return nominated
}

// lookInto reads the copy of a job of MultiKueue in its worker, or in each that may admit it. What
// is wrong with a worker is part of the facts.
func lookInto(ctx context.Context, workers *cluster.Workers, renderer *trainjob.Renderer, f *Facts) {
	for _, name := range f.workerNames() {
		w := Worker{Cluster: name}
		at, err := workers.Of(name)
		if err == nil {
			w.Context = at.Context
			err = w.read(ctx, at, renderer, f)
		}
		w.Problem = err
		f.Workers = append(f.Workers, w)
	}
}

// read reads the facts of a job's copy. While MultiKueue has made its Workload alone, they are of
// the job as it would be there.
func (w *Worker) read(ctx context.Context, at *cluster.Worker, renderer *trainjob.Renderer, f *Facts) error {
	c, err := at.Client()
	if err != nil {
		return at.Problem(err)
	}
	job, err := at.Copy(ctx, c, f.Job.Namespace, f.Job.Name, f.Workload.Name)
	uncopied := errors.Is(err, cluster.ErrNoCopy)
	if uncopied {
		job, err = standIn(ctx, at, c, f, err)
	}
	if err != nil {
		return err
	}
	if w.Facts, err = readRendered(ctx, c, renderer, job); err != nil {
		return at.Problem(err)
	}
	w.Facts.Uncopied = uncopied
	return nil
}

// standIn is a job as MultiKueue would copy it to a worker that has the Workload made of the job's; the error is noCopy
// where there is none.
func standIn(ctx context.Context, at *cluster.Worker, c client.Reader, f *Facts, noCopy error) (*trainjob.TrainJob, error) {
	var wl kueue.Workload
	switch err := c.Get(ctx, client.ObjectKeyFromObject(f.Workload), &wl); {
	case apierrors.IsNotFound(err), err == nil && wl.Labels[kueue.MultiKueueOriginLabel] == "":
		return nil, noCopy
	case err != nil:
		return nil, at.Problem(err)
	}
	job := f.Job.DeepCopy()
	job.Spec.ManagedBy, job.Status = nil, trainjob.TrainJob{}.Status
	metav1.SetMetaDataLabel(&job.ObjectMeta, kueueconstants.PrebuiltWorkloadLabel, wl.Name)
	return job, nil
}

// LookIntoAll reads the copies of many jobs in the workers that have them, each kind once in each
// worker. Jobs that no worker has yet are not looked for.
func LookIntoAll(ctx context.Context, workers *cluster.Workers, s *Snapshot, namespace string) {
	copies := map[string]func(*Facts) Worker{}
	for _, f := range s.Facts {
		assigned, nominated := f.Dispatched()
		for _, name := range nominated {
			f.Workers = append(f.Workers, Worker{Cluster: name})
		}
		if assigned == "" {
			continue
		}
		if copies[assigned] == nil {
			copies[assigned] = copiesIn(ctx, workers, assigned, namespace)
		}
		f.Workers = []Worker{copies[assigned](f)}
	}
}

// copiesIn reads the TrainJobs that MultiKueue made in a worker. It returns what the worker has of a job.
func copiesIn(ctx context.Context, workers *cluster.Workers, name, namespace string) func(*Facts) Worker {
	at, err := workers.Of(name)
	if err != nil {
		return func(*Facts) Worker { return Worker{Cluster: name, Problem: err} }
	}
	found, err := allIn(ctx, at, namespace)
	return func(f *Facts) Worker {
		w := Worker{Cluster: name, Context: at.Context}
		switch copied := found[client.ObjectKeyFromObject(f.Job)]; {
		case err != nil:
			w.Problem = at.Problem(err)
		case copied == nil:
			w.Problem = at.NoCopy(f.Job.Namespace, f.Job.Name)
		default:
			if w.Problem = at.Check(copied.Job, f.Workload.Name); w.Problem == nil {
				w.Facts = copied
			}
		}
		return w
	}
}

func allIn(ctx context.Context, at *cluster.Worker, namespace string) (map[client.ObjectKey]*Facts, error) {
	c, err := at.Client()
	if err != nil {
		return nil, err
	}
	snapshot, err := ReadAll(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	found := map[client.ObjectKey]*Facts{}
	for _, f := range snapshot.Facts {
		found[client.ObjectKeyFromObject(f.Job)] = f
	}
	return found, nil
}

// There returns the facts of the copy that runs in a worker, and that worker; nil where there is
// none, or none that can be seen.
func (f *Facts) There() *Worker {
	if assigned, _ := f.Dispatched(); assigned == "" || len(f.Workers) == 0 || f.Workers[0].Facts == nil {
		return nil
	}
	return &f.Workers[0]
}
