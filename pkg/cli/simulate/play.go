// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/dump"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Comparison is what came of a cluster as it is and, with a scenario, with it.
type Comparison struct {
	HorizonSeconds int64   `json:"horizonSeconds"`
	Before         Result  `json:"before"`
	After          *Result `json:"after,omitempty"`
}

func (o *options) compare(ctx context.Context, before *outlook.Outlook) (Comparison, error) {
	c := Comparison{HorizonSeconds: int64(o.horizon.Seconds())}
	after, err := o.scenario.apply(before)
	if err != nil {
		return c, err
	}
	jobs, err := o.comingJobs(after.Outlook)
	if err != nil {
		return c, err
	}
	after.tellNodes(o.warn)
	if c.Before, err = o.play(ctx, before, nil); err != nil || o.scenario.none() {
		return c, err
	}
	result, err := o.play(ctx, after.Outlook, jobs)
	c.After = &result
	return c, err
}

// play plays one future: the same running times and arrivals with every scenario.
func (o *options) play(ctx context.Context, at *outlook.Outlook, more []forecast.Job) (Result, error) {
	at.NoArrivals = o.arrivals != "" || o.tooYoung(at)
	q, warnings := at.Question()
	for _, warning := range warnings {
		o.warn("%s", warning)
	}
	q.Seed, q.Horizon = o.seed, o.horizon
	if err := refuseUnknown(q.Arrivals); err != nil {
		return Result{}, err
	}
	o.keepComing(q)
	drawn := q.Jobs(0)
	come, err := readArrivals(o.csv, o.arrivals, at)
	if err != nil {
		return Result{}, err
	}
	end := q.Begin.Add(q.Horizon)
	if late := kueuelib.Pick(come, func(job *forecast.Job) bool { return job.Arrives.After(end) }); len(late) > 0 {
		o.warn("%d of %s in --arrivals after the horizon of %s: --horizon takes a longer one", len(late), show.Count(len(come), "row"), outlook.Roughly(int64(o.horizon.Seconds())))
	}
	jobs, known := slices.Concat(drawn, more, come), namesOf(slices.Concat(drawn[:len(q.Entrants)], more, come))
	o.tellUnknown(jobs, known)
	counter := newCounter(q.Begin, q.Horizon, quotaOf(at.Inventory), jobs)
	bar := show.NewProgress(o.streams.ErrOut, "simulating")
	err = forecast.Play(ctx, q.World, jobs, q.Settings, func(e forecast.Event) {
		counter.tell(e)
		bar.At(float64(e.At.Sub(q.Begin)) / float64(q.Horizon))
	})
	bar.Done()
	if len(counter.leftOut) > 0 {
		o.warn("%s%s", outlook.LeftOut(len(counter.leftOut)), known.among(counter.leftOut))
	}
	if err != nil {
		return Result{}, err
	}
	waiting := counter.waiting(jobs)
	return counter.end(), errors.Join(o.tellInactive(ctx, q.World, waiting), o.tellNever(ctx, q, waiting, known))
}

// tellInactive warns of ClusterQueues that admit nobody, where somebody waits.
func (o *options) tellInactive(ctx context.Context, world *scheduler.World, waiting []forecast.Job) error {
	inactive, err := world.Inactive(ctx)
	if err != nil {
		return err
	}
	for _, job := range waiting {
		queue := inventory.Find(world.LocalQueues, job.Workload.Namespace, string(job.Workload.Spec.QueueName))
		if queue != nil && inactive[queue.Spec.ClusterQueue] != "" {
			o.warn("ClusterQueue %s is not active: %s", queue.Spec.ClusterQueue, inactive[queue.Spec.ClusterQueue])
		}
	}
	return nil
}

// tooYoung reports whether less than a day is known of who came. It would be repeated for as long as is played: those who
// came in one hour 336 times in two weeks.
func (o *options) tooYoung(at *outlook.Outlook) bool {
	known := at.Complete()
	if known >= 24*time.Hour {
		return false
	}
	if len(at.Workloads) > 0 {
		o.warn("nobody is taken to come: it is known of the last %s only who came, and a day is the least; a CSV of --arrivals says it", outlook.Roughly(int64(known.Seconds())))
	}
	return true
}

// refuseUnknown refuses to draw from those of whom most would run to the end: all who come later would wait for them.
func refuseUnknown(came []forecast.Arrival) error {
	unknown := kueuelib.Pick(came, func(a *forecast.Arrival) bool { return a.Running.Source == forecast.Unknown })
	if 2*len(unknown) <= len(came) {
		return nil
	}
	return fmt.Errorf("nothing is known of how long %d of %s run that came in the last days, like whom others would come: take a time for them, such as --assume 4h, or say who comes with --arrivals, a CSV or none",
		len(unknown), show.Count(len(came), "job"))
}

// names are of the jobs that somebody knows: those that are there, those of --job, and the lines of a CSV. Others are of the play alone.
type names map[client.ObjectKey]string

func namesOf(jobs []forecast.Job) names {
	all := names{}
	for _, job := range jobs {
		all[client.ObjectKeyFromObject(job.Workload)] = inventory.JobName(job.Workload)
	}
	return all
}

// among names one of some jobs, where somebody knows one.
func (n names) among(some sets.Set[client.ObjectKey]) string {
	var known []string
	for key := range some {
		if name := n[key]; name != "" {
			known = append(known, name)
		}
	}
	if len(known) == 0 {
		return ""
	}
	return fmt.Sprintf(", %s among them", slices.Min(known))
}

// tellNever warns of jobs that wait at the end, and would if nobody else was there.
func (o *options) tellNever(ctx context.Context, q *forecast.Question, waiting []forecast.Job, known names) error {
	alone := *q
	alone.Entrants, alone.Time, alone.Checks = nil, 0, 0
	alike := map[string][]client.ObjectKey{} // Of those that ask alike, the first is tried.
	try := map[client.ObjectKey]bool{}
	for _, job := range waiting {
		key := client.ObjectKeyFromObject(job.Workload)
		asks := dump.ForHash([]any{key.Namespace, job.Workload.Spec.QueueName, job.Workload.Spec.PodSets})
		if alike[asks] = append(alike[asks], key); len(alike[asks]) == 1 {
			try[key] = true
			alone.Entrants = append(alone.Entrants, forecast.Entrant{Workload: job.Workload})
		}
	}
	starts, err := alone.Alone(ctx, try)
	if err != nil {
		return err
	}
	never := sets.New[client.ObjectKey]()
	for _, same := range alike {
		if !starts[same[0]] {
			never.Insert(same...)
		}
	}
	if len(never) > 0 {
		o.warn("%s would not start even if nobody else was there%s", show.Count(len(never), "job"), known.among(never))
	}
	return nil
}

// keepComing has the same Workloads come in each play: priorities are changed of those who are there only.
func (o *options) keepComing(q *forecast.Question) {
	if o.come == nil {
		o.come = q.Arrivals
	}
	for n := range q.Arrivals {
		q.Arrivals[n].Workload = o.come[n].Workload
	}
}

// tellUnknown warns of jobs that run to the end because nothing is known of them.
func (o *options) tellUnknown(jobs []forecast.Job, known names) {
	unknown := sets.New[client.ObjectKey]()
	for _, job := range kueuelib.Pick(jobs, func(job *forecast.Job) bool { return job.Runs == 0 }) {
		unknown.Insert(client.ObjectKeyFromObject(job.Workload))
	}
	if len(unknown) > 0 {
		o.warn("nothing is known of how long %s run%s: they run to the end; --assume 4h takes a time for them", show.Count(len(unknown), "job"), known.among(unknown))
	}
}

func (o *options) comingJobs(at *outlook.Outlook) ([]forecast.Job, error) {
	namespace, err := o.flags.InNamespace(false)
	if err != nil {
		return nil, err
	}
	var jobs []forecast.Job
	for _, text := range o.scenario.Jobs {
		path, after, err := later(text)
		if err != nil {
			return nil, err
		}
		files, err := manifest.Read([]string{path}, false, o.streams.In)
		if err != nil {
			return nil, err
		}
		come, err := readFiles(files, namespace)
		if err != nil {
			return nil, err
		}
		if len(come.Workloads) == 0 {
			return nil, fmt.Errorf("%s has no Workload: of a TrainJob, take its Workload", path)
		}
		for n := range come.Workloads {
			jobs = append(jobs, o.coming(at, &come.Workloads[n], after, len(jobs)))
		}
	}
	return jobs, nil
}

func (o *options) coming(at *outlook.Outlook, wl *kueue.Workload, after time.Duration, serial int) forecast.Job {
	fresh := inventory.WithRequests(wl)
	arrives := at.Now.Add(after + time.Duration(serial+1))
	fresh.Status, fresh.CreationTimestamp = kueue.WorkloadStatus{}, metav1.NewTime(arrives)
	// The one that it is of may be there, too, and deactivated.
	fresh.Name, fresh.Spec.Active = fmt.Sprintf("%s-coming-%d", wl.Name, serial), nil
	fresh.UID = types.UID(fresh.Name)
	runs := o.running.Assume
	if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil {
		runs = time.Duration(*limit) * time.Second
	}
	return forecast.Job{Workload: fresh, Arrives: arrives, Runs: runs}
}

// quotaOf is the GPUs that all ClusterQueues and Cohorts have of each flavor.
func quotaOf(i *inventory.Inventory) map[string]int64 {
	var groups []kueue.ResourceGroup
	for n := range i.ClusterQueues {
		groups = append(groups, i.ClusterQueues[n].Spec.ResourceGroups...)
	}
	for n := range i.Cohorts {
		groups = append(groups, i.Cohorts[n].Spec.ResourceGroups...)
	}
	all := map[string]int64{}
	for grant := range inventory.Grants(groups) {
		if gpu.IsResource(grant.Quota.Name) {
			all[string(grant.Flavor)] += grant.Quota.NominalQuota.Value()
		}
	}
	return all
}
