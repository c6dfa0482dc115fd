// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

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
	if w := find(f.Workers, func(w *Worker) bool { return w.Cluster == name }); w != nil {
		return w
	}
	return &Worker{Cluster: name}
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
