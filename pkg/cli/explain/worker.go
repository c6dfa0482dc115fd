// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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
	// Copied is set when the TrainJob is there. Before that, only its Workload waits there.
	Copied bool
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

// LookInto reads the copy of a job of MultiKueue in its worker, or in each that may admit it. What
// is wrong with a worker is part of the facts.
func LookInto(ctx context.Context, workers *cluster.Workers, renderer *trainjob.Renderer, f *Facts) {
	for _, name := range f.workerNames() {
		at, err := workers.Of(name)
		if err != nil {
			f.Workers = append(f.Workers, Worker{Cluster: name, Problem: err})
			continue
		}
		w := Worker{Cluster: name, Context: at.Context}
		w.Facts, w.Copied, w.Problem = copyIn(ctx, at, renderer, f)
		f.Workers = append(f.Workers, w)
	}
}

// copyIn reads the facts of a job's copy. While MultiKueue has made its Workload alone, they are of
// the job as it would be there.
func copyIn(ctx context.Context, at *cluster.Worker, renderer *trainjob.Renderer, f *Facts) (copied *Facts, made bool, err error) {
	c, err := at.Client()
	if err != nil {
		return nil, false, at.Problem(err)
	}
	job, err := at.Copy(ctx, c, f.Job.Namespace, f.Job.Name, f.Workload.Name)
	if made = err == nil; !made && !errors.Is(err, cluster.ErrNoCopy) {
		return nil, false, err
	}
	if !made {
		if err := workloadCopied(ctx, at, c, f.Workload, err); err != nil {
			return nil, false, err
		}
		job = standIn(f.Job)
	}
	reader, err := NewReader(ctx, c, renderer)
	if err != nil {
		return nil, false, at.Problem(err)
	}
	reader.workload = f.Workload.Name
	copied, err = reader.Facts(ctx, job)
	if err != nil {
		return nil, false, at.Problem(err)
	}
	return copied, made, nil
}

// workloadCopied returns an error unless a worker has the Workload that MultiKueue made of another
// one; where it has none, that is noCopy.
func workloadCopied(ctx context.Context, at *cluster.Worker, c client.Reader, of *kueue.Workload, noCopy error) error {
	var wl kueue.Workload
	switch err := c.Get(ctx, client.ObjectKeyFromObject(of), &wl); {
	case apierrors.IsNotFound(err), err == nil && wl.Labels[kueue.MultiKueueOriginLabel] == "":
		return noCopy
	case err != nil:
		return at.Problem(err)
	}
	return nil
}

// standIn is a job as MultiKueue would copy it.
func standIn(job *trainjob.TrainJob) *trainjob.TrainJob {
	job = job.DeepCopy()
	job.Spec.ManagedBy = nil
	job.Status = trainjob.TrainJob{}.Status
	return job
}

// LookIntoAll reads the copies of many jobs in the workers that have them, each kind once in each
// worker. Jobs that no worker has yet are not looked for.
func LookIntoAll(ctx context.Context, workers *cluster.Workers, s *Snapshot, namespace string) {
	of := map[string][]*Facts{}
	for _, f := range s.Facts {
		assigned, nominated := f.Dispatched()
		if assigned != "" {
			of[assigned] = append(of[assigned], f)
		}
		for _, name := range nominated {
			f.Workers = append(f.Workers, Worker{Cluster: name})
		}
	}
	for name, all := range of {
		at, err := workers.Of(name)
		if err != nil {
			for _, f := range all {
				f.Workers = []Worker{{Cluster: name, Problem: err}}
			}
			continue
		}
		copies, err := copiesIn(ctx, at, namespace)
		for _, f := range all {
			if f.Workers = []Worker{{Cluster: name, Context: at.Context, Problem: err}}; err == nil {
				f.Workers[0] = copied(f, copies[client.ObjectKeyFromObject(f.Job)], at)
			}
		}
	}
}

// copiesIn reads the facts of the TrainJobs that MultiKueue made in a worker.
func copiesIn(ctx context.Context, at *cluster.Worker, namespace string) (map[types.NamespacedName]*Facts, error) {
	c, err := at.Client()
	if err != nil {
		return nil, at.Problem(err)
	}
	jobs, err := cluster.TrainJobs(ctx, c, namespace)
	if err != nil {
		return nil, at.Problem(err)
	}
	snapshot, err := ReadAll(ctx, c, jobs, namespace)
	if err != nil {
		return nil, at.Problem(err)
	}
	found := map[types.NamespacedName]*Facts{}
	for _, f := range snapshot.Facts {
		found[client.ObjectKeyFromObject(f.Job)] = f
	}
	return found, nil
}

// copied is what a worker has of a job.
func copied(f, found *Facts, at *cluster.Worker) Worker {
	w := Worker{Cluster: at.Cluster, Context: at.Context}
	if found == nil {
		w.Problem = at.NoCopy(f.Job.Namespace, f.Job.Name)
	} else if w.Problem = at.Check(found.Job, f.Workload.Name); w.Problem == nil {
		w.Facts, w.Copied = found, true
	}
	return w
}

// There returns the facts of the copy that runs in a worker, and that worker; nil where there is
// none, or none that can be seen.
func (f *Facts) There() *Worker {
	if assigned, _ := f.Dispatched(); assigned == "" || len(f.Workers) == 0 || f.Workers[0].Facts == nil {
		return nil
	}
	return &f.Workers[0]
}
