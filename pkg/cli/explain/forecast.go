// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Preempted is a job that Kueue would stop for another.
type Preempted struct {
	// Job is "namespace/name".
	Job          string `json:"job"`
	ClusterQueue string `json:"clusterQueue"`
	Priority     int32  `json:"priority"`
	// Reason is that of Kueue's condition Preempted; empty for one that stops for another reason already.
	Reason string `json:"reason"`
}

// forecast returns what Kueue's scheduler does with the job next, by its own code; nil where
// the user may not see what it goes by, and where it does not come to look.
func (f *Facts) forecast() *scheduler.Decision {
	if !f.seesQueues() || f.PriorityUnseen || f.queueName() == "" || len(f.PodSets) == 0 {
		return nil
	}
	decision := f.decide(ptr.Deref(f.Kueue, configapi.Configuration{}).FairSharing)
	if f.KueueUnseen == "" || decision == nil {
		return decision
	}
	// Fair sharing that is not seen is not off: what it would change is not known.
	if other := f.decide(&configapi.FairSharing{}); other == nil || other.Outcome != decision.Outcome || !slices.Equal(f.preempts(other), f.preempts(decision)) {
		return nil
	}
	return decision
}

// question is what Kueue decides about a Workload, with fair sharing or without.
type question struct {
	about  client.ObjectKey
	fairly bool
}

// decide has Kueue's scheduler run until it has decided about the job, and about all others of which is told, too.
func (f *Facts) decide(sharing *configapi.FairSharing) *scheduler.Decision {
	q := question{client.ObjectKeyFromObject(f.workload()), sharing != nil}
	if d, known := f.Cluster.decided[q]; known {
		return d
	}
	contest, _ := f.outlook().Contest()
	contest.FairSharing = sharing
	asked := f.Cluster.asked.Clone().Insert(q.about)
	ctx, cancel := context.WithTimeout(context.Background(), outlook.Within)
	defer cancel()
	decisions, _ := contest.Decide(ctx, asked) // It fails for cohorts in a circle, with which there are no facts.
	for key := range asked {
		f.Cluster.decided[question{key, q.fairly}] = decisions[key]
	}
	return decisions[q.about]
}

// outlook is that of the cluster, with the Workload that a manifest would get, and without what TrainJobs tell.
func (f *Facts) outlook() *outlook.Outlook {
	i := f.Cluster.Inventory
	if f.Workload == nil && len(f.PodSets) > 0 {
		with := *i
		with.Workloads = append(slices.Clone(i.Workloads), *f.workload())
		i = &with
	}
	return &outlook.Outlook{Inventory: i, Kueue: f.Kueue, Manager: f.Manager, Now: f.Now}
}

// supposed reports whether the facts are of a manifest, or of a job as it is not.
func (f *Facts) supposed() bool { return f.Job.UID == "" || f.Supposed != "" }

// seesQueues reports whether the user sees who has quota, and who waits for it.
func (f *Facts) seesQueues() bool {
	return len((&outlook.Outlook{Inventory: f.Cluster.Inventory}).UnseenQueues()) == 0
}

// workload is the job's or, without one, the one that it would get now.
func (f *Facts) workload() *kueue.Workload {
	if f.Workload != nil {
		return f.Workload
	}
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Job.Namespace, Name: f.Job.Name, CreationTimestamp: metav1.NewTime(f.Now)},
		Spec:       kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(f.queueName()), Priority: &f.Priority, PodSets: f.PodSets},
	}
}

// behind tells of one that Kueue does not look at before another has started.
func (f *Facts) behind(d *scheduler.Decision) *State {
	front, name := "others are", f.clusterQueueName()
	if d.Behind != nil {
		front = frontText(d.Behind) + " is"
	}
	if f.clusterQueue().Spec.QueueingStrategy != kueue.StrictFIFO {
		return &State{Reason: "BehindOthers", Remedy: "wait" + f.above(d.Behind, "in front"),
			Message: fmt.Sprintf("and %s before it in ClusterQueue %s and cannot start: others keep what it would take", front, name)}
	}
	return &State{Reason: "BehindOthers",
		Message: fmt.Sprintf("and ClusterQueue %s is strictly first in, first out, and %s before it and cannot start", name, front),
		Remedy:  fmt.Sprintf("wait, give the job a higher priority than the one in front, or set queueingStrategy of ClusterQueue %s to BestEffortFIFO", name)}
}

func frontText(wl *kueue.Workload) string {
	return fmt.Sprintf("%s (priority %d)", nameOf(wl), kueuelib.Priority(wl))
}

// preempts lists whom a decision stops.
func (f *Facts) preempts(d *scheduler.Decision) []Preempted {
	if d == nil {
		return nil
	}
	var all []Preempted
	for _, wl := range d.Victims {
		p := Preempted{Job: nameOf(wl), ClusterQueue: string(wl.Status.Admission.ClusterQueue), Priority: kueuelib.Priority(wl)}
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPreempted); c != nil {
			p.Reason = c.Reason
		}
		all = append(all, p)
	}
	return all
}

// victimsShown is how many of those that would be preempted a sentence names.
const victimsShown = 3

func (f *Facts) victimsText(d *scheduler.Decision) string {
	var parts []string
	for _, v := range f.preempts(d) {
		parts = append(parts, fmt.Sprintf("%s (priority %d, ClusterQueue %s: %s)", v.Job, v.Priority, v.ClusterQueue, cmp.Or(preemptions[v.Reason].toBe, "stopping already")))
	}
	return show.Few(parts, victimsShown)
}

// markPreempting marks the flavors that Kueue would make room in.
func markPreempting(verdicts []Verdict, d *scheduler.Decision) {
	if d == nil || d.Outcome != scheduler.Preempts {
		return
	}
	for i := range verdicts {
		v := &verdicts[i]
		v.Preempts = !v.Fits && assigns(d.Admission, kueue.PodSetReference(v.PodSet), kueue.ResourceFlavorReference(v.Flavor))
	}
}
