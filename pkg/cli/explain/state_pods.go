// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// reserving is for a job that has quota and is not admitted.
func reserving(f *Facts) *State {
	s := &State{Phase: Reserved, Reason: "AdmissionCheckPending", Since: f.conditionSince(kueue.WorkloadQuotaReserved)}
	var waits []string
	refused, ready := false, []time.Time{{}}
	for _, check := range f.Workload.Status.AdmissionChecks {
		ready = append(ready, check.LastTransitionTime.Time)
		if check.State == kueue.CheckStateReady {
			continue
		}
		refused = refused || check.State != kueue.CheckStatePending
		text := fmt.Sprintf("admission check %s", check.Name)
		if by := inventory.Find(f.Cluster.AdmissionChecks, "", string(check.Name)); by != nil && by.Spec.ControllerName != "" {
			text += " of controller " + by.Spec.ControllerName
		}
		text += fmt.Sprintf(" is %s", check.State)
		if check.Message != "" {
			text += " (" + check.Message + ")"
		}
		if r := f.Cluster.checkInactive(check.Name); r != nil {
			s.because(r.state(), "")
			text += ": " + r.Message
		}
		waits = append(waits, text)
	}
	if len(waits) == 1 && !refused && s.Remedy == "" && f.Job.ForMultiKueue() && s.Since != nil && f.overdue(*s.Since) {
		s.Reason, s.Stuck = "NotDispatched", true
		s.Remedy = "see that a worker cluster is connected: kubectl get multikueueclusters"
		waits[0] += ", and Kueue has asked no worker cluster"
	}
	if len(waits) == 0 && kueuelib.HasTopologyAssignmentsPending(f.Workload) {
		s.Reason, waits = "TopologyPending", []string{"its admission checks are Ready, and Kueue finds no nodes for it in the topology"}
		if told := f.warning("SecondPassFailed"); told != nil {
			waits = append(waits, told.Message)
		}
		if f.Now.Sub(slices.MaxFunc(ready, time.Time.Compare)) > asleep {
			s.Stuck, s.Remedy = true, "see that the nodes that were made for it are ready, free, and have the labels of the flavor and its topology: kubectl describe resourceflavors,topologies"
		}
	}
	s.Message = fmt.Sprintf("has quota in %s, %s, and waits to be admitted", f.queueText(), f.assignment())
	if len(waits) > 0 {
		s.Message += ": " + strings.Join(waits, "; ")
	}
	return s
}

// assignment names what was given to each PodSet.
func (f *Facts) assignment() string {
	if f.Workload == nil {
		return "outside of all quotas"
	}
	return assignmentText(f.Workload.Status.Admission)
}

// unplaced is for an admitted job that was not started yet.
func unplaced(f *Facts) *State {
	if !f.Job.Suspended() && (f.JobSet == nil || !ptr.Deref(f.JobSet.Spec.Suspend, false)) {
		return nil
	}
	admitted := f.condition(kueue.WorkloadAdmitted)
	s := &State{Phase: Starting, Reason: "Placing", Since: since(admitted.LastTransitionTime),
		Message: fmt.Sprintf("is admitted (%s) and about to be started", f.assignment())}
	blamed := cmp.Or(f.classMissing(), f.unmade(f.missing()...), f.told(jobevents.ReasonPlacementError, jobevents.ReasonJobSetOutdated, jobevents.ReasonRefused, jobevents.ReasonNotAlone, jobevents.ReasonTrainerUnknown, jobevents.ReasonTrainerBehind))
	if blamed == nil && !f.Job.Suspended() {
		blamed = f.unmade("JobSet") // Trainer cannot resume the one that is there.
	}
	switch {
	case blamed != nil:
		s.because(blamed, fmt.Sprintf("is admitted (%s), holds its quota and cannot be started: ", f.assignment()))
	case f.overdue(admitted.LastTransitionTime):
		s.Reason, s.Stuck, s.Remedy = jobevents.ReasonNotStarted, true, "see that kueue-trainer and Trainer run: kubectl trainjob doctor"
		s.Message = fmt.Sprintf("was admitted (%s) %s ago, holds its quota and was not started", f.assignment(), show.Age(f.Now, admitted.LastTransitionTime.Time))
	}
	return s
}

// starting is for a job that was started, and whose pods do not all run.
func starting(f *Facts) *State {
	s := &State{Phase: Starting, Since: f.conditionSince(kueue.WorkloadAdmitted)}
	hidden := f.hiddenJobs()
	if hidden == nil && !f.Saw(inventory.Pods) {
		return f.byJobs(s)
	}
	var missing []string
	groups := f.podGroups()
	for _, g := range picked(groups, PodGroup.blocked) {
		missing = append(missing, g.text())
		if s.Reason != "" && (s.Stuck || !g.stuck(f.Now)) {
			continue
		}
		s.Reason, s.Remedy, s.Cause, s.Stuck = g.Reason, g.remedy, firstSentence(g.Message), g.stuck(f.Now)
		if misplaced := f.misplaced(); misplaced != nil && g.Reason == corev1.PodReasonUnschedulable {
			s.because(misplaced, "")
			missing = append(missing, misplaced.Message)
		}
	}
	made, wanted := f.podsMade()
	switch {
	case hidden != nil && len(missing) == 0:
		return f.byTrainer(s, *hidden)
	case hidden == nil && made < wanted:
		missing = append(missing, fmt.Sprintf("%s not made yet", show.Count(wanted-made, "pod")))
		failed := picked(groups, func(g PodGroup) bool { return g.Reason == string(corev1.PodFailed) })
		missing = append(missing, kueuelib.Map(failed, func(g *PodGroup) string { return g.text() })...)
		s.Reason = cmp.Or(s.Reason, "PodsMissing")
		if unmade := f.unmade(append(f.missing(), "pods")...); unmade != nil {
			s.because(unmade, "")
			missing = append(missing, unmade.Message)
		} else if s.Since != nil && f.overdue(f.podsDue(*s.Since)) && made == 0 {
			s.Stuck, s.Remedy = true, fmt.Sprintf("see what its Jobs say: kubectl -n %s describe jobs -l %s=%s", f.Job.Namespace, jobsetapi.JobSetNameKey, f.Job.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	s.Message = fmt.Sprintf("was started (%s), and %s", f.assignment(), strings.Join(missing, "; "))
	return s
}

// byJobs is for who may not see pods: Jobs count those that are ready, and JobSet tells Trainer.
func (f *Facts) byJobs(s *State) *State {
	_, wanted := f.podsMade()
	var ready int32
	for i := range f.Jobs {
		if !podset.JobEnded(&f.Jobs[i]) {
			ready += ptr.Deref(f.Jobs[i].Status.Ready, 0)
		}
	}
	if ready >= wanted || f.JobSet != nil && podset.Ready(f.JobSet, f.Job.Status.JobsStatus) {
		return nil
	}
	s.Reason = "PodsNotReady"
	s.Message = fmt.Sprintf("was started (%s), and %d of %s are ready", f.assignment(), ready, show.Count(wanted, "pod"))
	s.Remedy = "ask for the right to list pods, which says why they are not"
	return s
}

// hiddenJobs is the kind that the user may not list of those that tell which pods there should be; nil for none.
func (f *Facts) hiddenJobs() *string {
	return find([]string{jobSets, childJobs}, func(kind *string) bool { return !f.Saw(*kind) })
}

// byTrainer is for who may not see a kind of those that tell which pods there should be: Trainer tells how many Jobs are ready.
func (f *Facts) byTrainer(s *State, hidden string) *State {
	statuses := f.Job.Status.JobsStatus
	begun := find(statuses, func(of *trainer.JobStatus) bool { return ptr.Deref(of.Ready, 0) > 0 })
	starts := find(statuses, func(of *trainer.JobStatus) bool { return ptr.Deref(of.Active, 0) > ptr.Deref(of.Ready, 0) })
	if f.JobSet != nil && podset.Ready(f.JobSet, statuses) || f.JobSet == nil && begun != nil && starts == nil {
		return nil
	}
	s.Reason, s.Hidden, s.Remedy = Unseen, hidden, "ask for the right to list them"
	s.Message = fmt.Sprintf("was started (%s), and whether all of its pods run cannot be told, because you may not list %s", f.assignment(), hidden)
	return s
}

// misplaced tells what is wrong with the flavors that the job has, or nil.
func (f *Facts) misplaced() *State {
	return warnedOf(picked(Flavors(f), func(v Verdict) bool { return v.Assigned }))
}

// AllRun reports whether all pods that can run do.
func (f *Facts) AllRun() bool {
	return !f.Job.Suspended() && (f.JobSet != nil || !f.Saw(jobSets)) && starting(f) == nil
}
