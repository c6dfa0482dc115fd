// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Worker is a cluster that MultiKueue gave a job to, or may.
type Worker struct {
	Cluster string // the name of the MultiKueueCluster
	Context string // of the kubeconfig, that leads there; empty where none is known to
	Facts   *Facts // those of the job's copy there; nil where nothing is known of one
	Problem error  // why nothing is known
}

// Dispatched names the workers of a job of MultiKueue: the one that has it, or those that may admit it.
func (f *Facts) Dispatched() (assigned string, nominated []string) {
	if !f.Job.ForMultiKueue() || f.Workload == nil || f.Job.Finished() || kueuelib.IsFinished(f.Workload) ||
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

// lookInto reads the copy of a job of MultiKueue in its worker, or in each that may admit it. Problems are facts, too.
func lookInto(ctx context.Context, workers *cluster.Workers, renderer *trainjob.Renderer, f *Facts) {
	for _, name := range f.workerNames() {
		at, c, err := workers.Enter(name)
		w := Worker{Cluster: name, Context: at.Context, Problem: err}
		if err == nil {
			w.Problem = w.read(ctx, at, c, renderer, f)
		}
		f.Workers = append(f.Workers, w)
	}
}

// read reads the facts of a job's copy; while there is only its Workload, of the job as it would be there.
func (w *Worker) read(ctx context.Context, at *cluster.Worker, c client.Client, renderer *trainjob.Renderer, f *Facts) error {
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

// standIn is a job as MultiKueue would copy it to a worker that has its Workload; the error is noCopy where there is none.
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

// LookIntoAll reads the copies of many jobs in the workers that have them, each kind once in each worker.
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
	at, c, err := workers.Enter(name)
	there := &Snapshot{}
	if err == nil {
		if there, err = ReadAll(ctx, c, namespace); err != nil {
			err = at.Problem(err)
		}
	}
	found := map[client.ObjectKey]*Facts{}
	if err == nil {
		for _, f := range there.Facts {
			found[client.ObjectKeyFromObject(f.Job)] = f
		}
	}
	return func(f *Facts) Worker {
		w := Worker{Cluster: name, Context: at.Context, Problem: err}
		switch copied := found[client.ObjectKeyFromObject(f.Job)]; {
		case err != nil:
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

// There returns the worker that a job runs in, with the facts of the copy; nil where that cannot be seen.
func (f *Facts) There() *Worker {
	if assigned, _ := f.Dispatched(); assigned == "" || len(f.Workers) == 0 || f.Workers[0].Facts == nil {
		return nil
	}
	return &f.Workers[0]
}

// inWorker is for a job that MultiKueue has in a worker: the state is the one that it has there.
func inWorker(f *Facts) *State {
	name, _ := f.Dispatched()
	if name == "" {
		return nil
	}
	w := f.worker(name)
	if w.Facts == nil {
		s := &State{Phase: Elsewhere, Reason: "InWorker", Message: "is in worker cluster " + name, Since: f.conditionSince(kueue.WorkloadAdmitted)}
		if w.Problem != nil {
			s.Message += "; " + w.Problem.Error()
		}
		if exit.Code(w.Problem) == exit.Unseen {
			s.Reason = Unseen
		}
		return s
	}
	s := StateOf(w.Facts)
	if s.Hidden != "" {
		s.Hidden += " in cluster " + name
	}
	s.Message, s.Remedy = fmt.Sprintf("is in worker cluster %s, where it %s", name, s.Message), w.there(s.Remedy)
	return &s
}

// worker returns what is known of a worker, which may not have been looked into.
func (f *Facts) worker(name string) *Worker {
	return cmp.Or(find(f.Workers, func(w *Worker) bool { return w.Cluster == name }), &Worker{Cluster: name})
}

// there says of a remedy where it helps.
func (w *Worker) there(remedy string) string {
	if remedy == "" {
		return ""
	}
	return fmt.Sprintf("in cluster %s (--context %s): %s", w.Cluster, w.Context, remedy)
}

// uncopied is for a job that a worker has admitted, and that MultiKueue has not copied there.
func uncopied(f *Facts) *State {
	if !f.Uncopied || f.Workload == nil || !kueuelib.IsAdmitted(f.Workload) {
		return nil
	}
	admitted := f.condition(kueue.WorkloadAdmitted)
	s := &State{Phase: Starting, Reason: "CopyMissing", Since: since(admitted.LastTransitionTime),
		Message: fmt.Sprintf("is admitted (%s) and about to be copied", f.assignment())}
	switch {
	case runtimeMissing(f.Undescribed):
		s.Reason, s.Stuck, s.Remedy = "RuntimeMissing", true, "create the runtime as it is in the manager cluster"
		s.Message = fmt.Sprintf("is admitted (%s) and cannot be copied: %s", f.assignment(), f.Undescribed)
	case f.overdue(admitted.LastTransitionTime):
		s.Stuck = true
		s.Message = fmt.Sprintf("was admitted (%s) %s ago and is not copied: the log of Kueue in the manager cluster says why",
			f.assignment(), show.Age(f.Now, admitted.LastTransitionTime.Time))
	}
	return s
}

// dispatching is for a job that has quota here, and for which MultiKueue asks workers.
func dispatching(f *Facts) *State {
	_, nominated := f.Dispatched()
	if len(nominated) == 0 {
		return nil
	}
	s := &State{Phase: Reserved, Reason: "Dispatching", Stuck: true, Since: f.conditionSince(kueue.WorkloadQuotaReserved)}
	var told []string
	for _, name := range nominated {
		text, there := f.worker(name).asked()
		told = append(told, text)
		s.Stuck = s.Stuck && there.Stuck
		if s.Remedy == "" {
			s.Remedy = f.worker(name).there(there.Remedy)
		}
	}
	s.Message = fmt.Sprintf("has quota in %s and waits for a worker cluster to admit it: %s", f.queueText(), strings.Join(told, "; "))
	return s
}

// asked tells what has become of a job in a worker that may admit it.
func (w *Worker) asked() (string, State) {
	switch {
	case w.Facts != nil:
		s := StateOf(w.Facts)
		return fmt.Sprintf("in %s it %s", w.Cluster, s.Message), s
	case errors.Is(w.Problem, cluster.ErrNoCopy):
		return fmt.Sprintf("%s has not been asked yet", w.Cluster), State{}
	case w.Problem != nil:
		return fmt.Sprintf("%s (%s)", w.Cluster, w.Problem), State{}
	}
	return w.Cluster, State{}
}
