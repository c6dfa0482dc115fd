// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Link is an object on the way from a TrainJob to its pods.
type Link struct {
	Depth    int       `json:"depth"` // 0 for the TrainJob; what follows deeper belongs to the link above
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	State    string    `json:"state"`
	WaitsFor string    `json:"waitsFor,omitempty"` // empty where the object waits for nothing
	Pods     *PodGroup `json:"pods,omitempty"`     // set for pods, of which those of one Job and state are one link
}

// Chain returns the way of a TrainJob of the cluster, in its order.
func Chain(f *Facts) []Link {
	if f.supposed() {
		return nil
	}
	if f.Uncopied {
		return []Link{{Kind: "TrainJob", Name: f.Job.Name, State: "Missing", WaitsFor: "MultiKueue to copy it"}, workloadLink(f)}
	}
	made := jobSetLinks
	if f.Job.ForMultiKueue() && f.JobSet == nil {
		made = workerLinks
	}
	return slices.Concat([]Link{trainJobLink(f), workloadLink(f)}, made(f))
}

// workerLinks go on in the worker that has the job, or in those that may admit it.
func workerLinks(f *Facts) []Link {
	var links []Link
	for _, name := range f.workerNames() {
		l := Link{Depth: 1, Kind: "Cluster", Name: name, State: "Nominated", WaitsFor: "it to admit the job"}
		if assigned, _ := f.Dispatched(); assigned != "" {
			l.State, l.WaitsFor = "Assigned", ""
		}
		links = append(links, l)
		if w := f.worker(name); w.Facts != nil {
			for _, there := range Chain(w.Facts) {
				there.Depth += 2
				links = append(links, there)
			}
		}
	}
	return links
}

func trainJobLink(f *Facts) Link {
	l := Link{Kind: "TrainJob", Name: f.Job.Name, State: "Resumed"}
	_, held := trainjob.HeldFrom(f.Job.Labels[kueueconstants.QueueLabel])
	switch {
	case f.over():
		l.State = string(cmp.Or(finished(f), forgotten(f)).Phase)
	case f.Job.Suspended() && f.Workload == nil && unmanaged(f) != nil:
		l.State = "Suspended"
	case f.Job.Suspended() && f.Workload == nil:
		l.State, l.WaitsFor = "Suspended", "a Workload"
	case f.Job.Suspended() && kueuelib.IsFinished(f.Workload):
		l.State, l.WaitsFor = "Suspended", "a Workload that is not finished"
	case f.Job.Suspended() && !kueuelib.IsAdmitted(f.Workload):
		l.State, l.WaitsFor = "Suspended", "the admission of its Workload"
	case f.Job.Suspended() && (f.condition(kueue.WorkloadEvicted) != nil || held):
		l.State, l.WaitsFor = "Suspended", "the pods of its former run to go"
	case f.Job.Suspended():
		l.State, l.WaitsFor = "Suspended", "kueue-trainer to start it"
	case f.condition(kueue.WorkloadEvicted) != nil && kueuelib.HasQuotaReservation(f.Workload):
		l.WaitsFor = "kueue-trainer to stop it"
	}
	return l
}

func workloadLink(f *Facts) Link {
	l := Link{Depth: 1, Kind: "Workload"}
	if f.Workload == nil {
		l.Name, l.State = "-", "Missing"
		if f.queueName() != "" && !f.over() && unmanaged(f) == nil {
			l.WaitsFor = "kueue-trainer to make it"
		}
		return l
	}
	l.Name = f.Workload.Name
	switch status := kueuelib.Status(f.Workload); {
	case !kueuelib.IsActive(f.Workload):
		l.State, l.WaitsFor = "Inactive", "spec.active: true"
	case f.condition(kueue.WorkloadEvicted) != nil && kueuelib.HasQuotaReservation(f.Workload):
		l.State, l.WaitsFor = "Evicted", "the pods of its former run to go"
	case status == kueuelib.StatusFinished:
		l.State = "Finished"
	case status == kueuelib.StatusAdmitted:
		l.State = "Admitted"
	case status == kueuelib.StatusQuotaReserved:
		l.State, l.WaitsFor = "QuotaReserved", openChecks(f.Workload)
	default:
		l.State, l.WaitsFor = "Pending", f.waitsFor()
	}
	return l
}

// waitsFor is what a Workload without quota waits for, in short.
func (f *Facts) waitsFor() string {
	if away := queueAway(f); away != nil {
		return "its queue: " + away.Reason
	}
	s := f.why()
	if refusals(Flavors(f)) != nil {
		return "quota: " + s.Reason
	}
	return strings.TrimPrefix(strings.TrimPrefix(s.Message, "and "), "which ")
}

func openChecks(wl *kueue.Workload) string {
	open := picked(wl.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool { return c.State != kueue.CheckStateReady })
	said := func(c *kueue.AdmissionCheckState) string {
		return fmt.Sprintf("admission check %s (%s)", c.Name, c.State)
	}
	return strings.Join(kueuelib.Map(open, said), ", ")
}

func jobSetLinks(f *Facts) []Link {
	if f.JobSet == nil {
		l := Link{Depth: 1, Kind: "JobSet", Name: f.Job.Name, State: "Missing"}
		switch {
		case !f.Saw(jobSets):
			l.State = Unseen
		case !f.over():
			l.WaitsFor = "Trainer to make it"
		}
		return []Link{l}
	}
	l := Link{Depth: 1, Kind: "JobSet", Name: f.JobSet.Name, State: "Resumed"}
	switch suspended := ptr.Deref(f.JobSet.Spec.Suspend, false); {
	case f.JobSet.Status.TerminalState != "":
		l.State = f.JobSet.Status.TerminalState
	case suspended && f.over():
		l.State = "Suspended"
	case suspended && f.Job.Suspended():
		l.State, l.WaitsFor = "Suspended", "its TrainJob to be resumed"
	case suspended:
		l.State, l.WaitsFor = "Suspended", "Trainer to resume it"
	}
	links, groups := []Link{l}, f.podGroups()
	for i := range f.JobSet.Spec.ReplicatedJobs {
		links = append(links, replicatedJobLinks(f, &f.JobSet.Spec.ReplicatedJobs[i], groups)...)
	}
	return links
}

// replicatedJobLinks returns the Jobs of a replicated job, or says why there are none.
func replicatedJobLinks(f *Facts, rj *jobsetapi.ReplicatedJob, groups []PodGroup) []Link {
	var links []Link
	for _, job := range f.jobsOf(rj.Name) {
		pods := picked(groups, func(g PodGroup) bool { return g.Job == job.Name })
		links = append(links, jobLink(f, &job, len(pods) > 0))
		for n := range pods {
			l := Link{Depth: 3, Kind: "Pods", Name: show.Count(len(pods[n].Pods), "pod"), State: pods[n].State, Pods: &pods[n]}
			if pods[n].blocked() {
				l.WaitsFor = pods[n].why()
			}
			links = append(links, l)
		}
	}
	if len(links) > 0 {
		return links
	}
	l := Link{Depth: 2, Kind: "Job", Name: f.JobSet.Name + "-" + rj.Name, State: "Missing", WaitsFor: "JobSet to make it"}
	if on := f.awaited(rj); on != nil {
		l.WaitsFor = fmt.Sprintf("%s to be %s", on.Name, on.Status)
	}
	if f.JobSet.Status.TerminalState != "" {
		l.WaitsFor = ""
	}
	if !f.Saw(childJobs) {
		l.State, l.WaitsFor = Unseen, ""
	}
	return []Link{l}
}

func jobLink(f *Facts, job *batchv1.Job, hasPods bool) Link {
	l := Link{Depth: 2, Kind: "Job", Name: job.Name, State: "Active"}
	switch {
	case podset.JobHas(job, batchv1.JobFailed):
		l.State = string(batchv1.JobFailed)
	case podset.JobHas(job, batchv1.JobComplete):
		l.State = string(batchv1.JobComplete)
	case ptr.Deref(job.Spec.Suspend, false):
		l.State, l.WaitsFor = "Suspended", "its JobSet to be resumed"
	case !f.Saw(inventory.Pods):
		l.State = fmt.Sprintf("Active, %s ready", show.Count(ptr.Deref(job.Status.Ready, 0), "pod"))
	case !hasPods:
		l.WaitsFor = "its pods to be made"
	}
	return l
}
