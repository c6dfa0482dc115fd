// SPDX-License-Identifier: Apache-2.0

// Package outlook asks pkg/forecast when the Workloads of a cluster will start, and says it in words.
package outlook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Outlook is what is known of a cluster's future.
type Outlook struct {
	*inventory.Inventory
	// TrainJobs tell runtimes, time limits and what trainers report, of those Workloads that are theirs.
	TrainJobs []trainjob.TrainJob
	// Kueue is Kueue's configuration; nil where there is none, or none to be seen.
	Kueue *configapi.Configuration
	// Manager is the manager's configuration, which names the label of TrainJobs' users; nil where it is not to be seen.
	Manager *config.Configuration
	Now     time.Time
	Told
	// NoArrivals has nobody come; else as many do as came in the last days.
	NoArrivals bool
}

// What a forecast looks at, unless it is said otherwise.
const (
	// Horizon is how far.
	Horizon = 14 * 24 * time.Hour
	// Futures is how many are drawn at most, and Within how long that takes at most in one command.
	Futures = 200
	Within  = 4 * time.Second
	// recent is how far back those are looked at who came.
	recent = 3 * 24 * time.Hour
	// stopping is how long pods take to end: what Kubernetes gives them.
	stopping = 30 * time.Second
	// checks is how long admission checks take, which nobody tells.
	checks = time.Minute
)

// needs are the kinds without which there is neither a forecast nor an order.
var needs = []string{
	inventory.ClusterQueues, inventory.LocalQueues, inventory.Flavors, inventory.Cohorts, inventory.Workloads,
}

// UnseenQueues names what the user may not list of queues, flavors and Workloads.
func (o *Outlook) UnseenQueues() []string {
	return slices.DeleteFunc(slices.Clone(needs), o.Saw)
}

// Unseen names what the user may not list of that without which there is no forecast: beside queues, nodes where flavors
// have a topology, and the admission checks that ClusterQueues name. Without them nobody would ever start.
func (o *Outlook) Unseen() []string {
	all := slices.Clone(needs)
	if slices.ContainsFunc(o.Flavors, func(f kueue.ResourceFlavor) bool { return f.Spec.TopologyName != nil }) {
		all = append(all, inventory.Topologies, inventory.Nodes)
	}
	if slices.ContainsFunc(o.ClusterQueues, func(cq kueue.ClusterQueue) bool {
		return len(inventory.Checks(&cq)) > 0
	}) {
		all = append(all, inventory.AdmissionChecks)
	}
	return slices.DeleteFunc(all, o.Saw)
}

// Contest is all who have quota now or wait where Kueue looks at them. Warnings are about what is not gone by.
func (o *Outlook) Contest() (c *scheduler.Contest, warnings []string) {
	c = &scheduler.Contest{World: o.World(), Now: o.Now}
	if o.Kueue != nil {
		c.World.Kueue = *o.Kueue
		if err := kueueconfig.UseGates(o.Kueue.FeatureGates); err != nil {
			warnings = append(warnings, "the forecast goes without some of Kueue's gates: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	for n := range o.Workloads {
		if wl := &o.Workloads[n]; o.takesPart(wl) {
			c.Workloads = append(c.Workloads, withClaimed(wl))
		}
	}
	return c, warnings
}

// takesPart reports whether a Workload has quota, or waits in a queue that Kueue looks at.
func (o *Outlook) takesPart(wl *kueue.Workload) bool {
	switch {
	case kueuelib.IsFinished(wl):
		return false
	case kueuelib.HasQuotaReservation(wl):
		return wl.Status.Admission != nil && o.ClusterQueue(wl.Status.Admission.ClusterQueue) != nil
	}
	return kueuelib.IsAdmissible(wl) && o.InQueue(wl, o.Now) && o.ClusterQueue(o.LocalQueue(wl.Namespace, wl.Spec.QueueName).Spec.ClusterQueue) != nil
}

// Question returns what is asked of the future of the whole cluster. Warnings are about what it does not go by.
func (o *Outlook) Question() (q *forecast.Question, warnings []string) {
	jobs := kueuelib.Index(o.TrainJobs, func(job *trainjob.TrainJob) types.UID { return job.UID })
	c, warnings := o.Contest()
	q = &forecast.Question{
		World: c.World, Runtimes: forecast.NewRuntimes(o.past(jobs), o.Assume, o.Measured...), Futures: Futures, Time: Within, Seed: uint64(o.Now.Unix()),
		Settings: forecast.Settings{Begin: o.Now, Horizon: Horizon, Stopping: stopping, Checks: checks},
	}
	unknown := 0
	for n := range o.Workloads {
		if e, takesPart := o.entrant(&o.Workloads[n], q.Runtimes, jobs); takesPart {
			q.Entrants = append(q.Entrants, e)
			if !kueuelib.HasQuotaReservation(e.Workload) && claims(e.Workload) && len(e.Workload.Status.ResourceRequests) == 0 {
				unknown++
			}
		}
	}
	if unknown > 0 {
		warnings = append(warnings, fmt.Sprintf("%s claim devices, and Kueue has not said yet how many: none are taken for them", show.Count(unknown, "waiting job")))
	}
	if o.Kueue != nil && o.Kueue.WaitForPodsReady != nil && ptr.Deref(o.Kueue.WaitForPodsReady.BlockAdmission, false) {
		warnings = append(warnings, "Kueue admits nobody while pods of others are not ready (waitForPodsReady.blockAdmission): they are taken to be ready at once")
	}
	slices.SortStableFunc(q.Entrants, func(a, b forecast.Entrant) int {
		return cmp.Or(a.Workload.CreationTimestamp.Compare(b.Workload.CreationTimestamp.Time), cmp.Compare(a.Workload.UID, b.Workload.UID))
	})
	if !o.NoArrivals {
		q.Arrivals = o.arrivals(q.Runtimes, jobs)
		if within := o.Complete(); within < 24*time.Hour && len(o.Workloads) > 0 {
			warnings = append(warnings, fmt.Sprintf("others are taken to come as in the last %s: of what ended before, nothing is left", Roughly(int64(within.Seconds()))))
		}
	}
	return q, warnings
}

func (o *Outlook) entrant(wl *kueue.Workload, runtimes *forecast.Runtimes, jobs byUID) (forecast.Entrant, bool) {
	e := forecast.Entrant{Workload: withClaimed(wl), Running: runtimes.Of(o.subject(wl, jobs))}
	if retry := wl.Status.RequeueState; retry != nil && retry.RequeueAt != nil && retry.RequeueAt.After(o.Now) {
		// Kueue goes by the real clock there, which has not come so far: it comes when it is to be tried again. One with
		// quota keeps that until its pods have stopped.
		e.Arrives, e.Workload.Status.RequeueState = retry.RequeueAt.Time, nil
		apimeta.RemoveStatusCondition(&e.Workload.Status.Conditions, kueue.WorkloadRequeued)
	}
	return e, o.takesPart(e.Workload)
}

// services are the kinds of Kueue's integrations that have no end of their own.
var services = sets.New("LeaderWorkerSet", "RayCluster", "RayService", "StatefulSet")

type byUID = map[types.UID]*trainjob.TrainJob

// subject is what is known of a Workload beside how long others ran.
func (o *Outlook) subject(wl *kueue.Workload, jobs byUID) forecast.Subject {
	s := forecast.Subject{
		Traits:    forecast.Traits{Queue: queueOf(wl), GPUs: GPUs(wl)},
		Submitted: wl.CreationTimestamp.Time, Job: wl.UID,
	}
	admitted := kueuelib.Since(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if kueuelib.IsFinished(wl) {
		admitted = time.Time{} // It runs no more, whatever its trainer said last.
	}
	if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil {
		s.Limit = time.Duration(*limit) * time.Second
		past := ptr.Deref(wl.Status.AccumulatedPastExecutionTimeSeconds, 0)
		s.Left = max(time.Second, s.Limit-time.Duration(past)*time.Second)
	}
	for _, owner := range wl.OwnerReferences {
		s.Service = s.Service || services.Has(owner.Kind)
		if job := jobs[owner.UID]; job != nil {
			o.addTraits(&s, job, admitted)
		}
	}
	if !admitted.IsZero() {
		s.Running = max(time.Second, o.Now.Sub(admitted))
	}
	return s
}

func (o *Outlook) addTraits(s *forecast.Subject, job *trainjob.TrainJob, admitted time.Time) {
	s.Runtime = job.Spec.RuntimeRef.Name
	if o.Manager != nil {
		s.User = job.Labels[o.Manager.Metrics.UserLabel]
	}
	if deadline := time.Duration(job.Spec.ActiveDeadlineSeconds) * time.Second; deadline > 0 && (s.Limit == 0 || deadline < s.Limit) {
		s.Limit = deadline
	}
	status := job.Status.TrainerStatus
	// What its trainer said in an earlier run is not of this one.
	if status != nil && status.EstimatedRemainingSeconds != nil && !admitted.IsZero() && !status.LastUpdatedTime.Time.Before(admitted) {
		left := time.Duration(*status.EstimatedRemainingSeconds)*time.Second - o.Now.Sub(status.LastUpdatedTime.Time)
		s.Reported = new(max(0, left))
	}
}

// arrivals are who came lately: a queue's usual load.
func (o *Outlook) arrivals(runtimes *forecast.Runtimes, jobs byUID) (all []forecast.Arrival) {
	complete := o.complete()
	for n := range o.Workloads {
		wl := &o.Workloads[n]
		queue, within := o.LocalQueue(wl.Namespace, wl.Spec.QueueName), complete(queueOf(wl))
		if wl.CreationTimestamp.Add(within).Before(o.Now) || queue == nil || ptr.Deref(queue.Spec.StopPolicy, kueue.None) != kueue.None ||
			o.ClusterQueue(queue.Spec.ClusterQueue) == nil {
			continue
		}
		running := runtimes.Of(o.subject(wl, jobs))
		if running.Source == forecast.Endless {
			continue // One that runs for good says nothing of who comes next.
		}
		// As it came.
		fresh := withClaimed(wl)
		fresh.Status, fresh.Spec.Active = kueue.WorkloadStatus{}, nil
		all = append(all, forecast.Arrival{Entrant: forecast.Entrant{Workload: fresh, Running: running}, Within: within})
	}
	return all
}

func queueOf(wl *kueue.Workload) string { return wl.Namespace + "/" + string(wl.Spec.QueueName) }

func claims(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Spec.PodSets, func(ps kueue.PodSet) bool { return len(ps.Template.Spec.ResourceClaims) > 0 })
}

// withClaimed returns a copy of a Workload as Kueue queues it, that asks by itself for the devices of its claims: as many as
// Kueue has charged it, or says that it asks for. What the claims ask for, Kueue alone knows.
func withClaimed(wl *kueue.Workload) *kueue.Workload {
	wl = inventory.WithRequests(wl)
	if !claims(wl) {
		return wl
	}
	unplaced := &kueue.Workload{Spec: wl.Spec}
	for n, asked := range kueuelib.TotalRequests(unplaced, nil) {
		pod := &wl.Spec.PodSets[n].Template.Spec
		for name, amount := range charged(wl, asked.Name) {
			if asked.Requests.ResourceValue(name) > 0 || asked.Count == 0 || len(pod.Containers) == 0 {
				continue // The API server takes a Workload without containers.
			}
			of := &pod.Containers[0].Resources
			if of.Requests == nil {
				of.Requests = corev1.ResourceList{}
			}
			of.Requests[name] = *resource.NewQuantity(amount.Value()/int64(asked.Count), resource.DecimalSI)
		}
	}
	return wl
}

// charged is what all pods of a PodSet are charged, or asked for when Kueue last looked; nil where it has not.
func charged(wl *kueue.Workload, podSet kueue.PodSetReference) corev1.ResourceList {
	if wl.Status.Admission != nil {
		for _, of := range wl.Status.Admission.PodSetAssignments {
			if of.Name == podSet {
				return of.ResourceUsage
			}
		}
	}
	for _, of := range wl.Status.ResourceRequests {
		if of.Name == podSet {
			return of.Resources
		}
	}
	return nil
}

// GPUs is how many a Workload asks for. A slice of one, or a share, counts as one: under the device plugin's strategy single
// it has the name of a whole one anyway.
func GPUs(wl *kueue.Workload) int64 {
	var sum int64
	for _, ps := range kueuelib.TotalRequests(inventory.WithRequests(wl), nil) {
		for name, amount := range kueuelib.ByResource(ps.Requests) {
			if gpu.IsResource(name) {
				sum = kueuelib.Sum(sum, amount)
			}
		}
	}
	return sum
}
