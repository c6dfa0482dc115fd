// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Preempted is a job that Kueue would stop for another.
type Preempted struct {
	Job          string `json:"job"` // "namespace/name"
	ClusterQueue string `json:"clusterQueue"`
	Priority     int32  `json:"priority"`
	Reason       string `json:"reason"` // that of Kueue's condition Preempted; empty for one that stops already
}

// forecast returns what Kueue's scheduler does with the job next; nil where that cannot be seen, or it does not come to look.
func (f *Facts) forecast() *scheduler.Decision {
	if !f.seesQueues() || f.PriorityUnseen || f.queueName() == "" || len(f.PodSets) == 0 {
		return nil
	}
	decision := f.decide(ptr.Deref(f.Kueue, configapi.Configuration{}).FairSharing)
	if f.KueueUnseen == "" || decision == nil {
		return decision
	}
	// Fair sharing that is not seen is not off: what it would change is not known.
	if other := f.decide(&configapi.FairSharing{}); other == nil || other.Outcome != decision.Outcome || !slices.Equal(preempted(other), preempted(decision)) {
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
	contest.World.Kueue.FairSharing = sharing
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

// seesQueues reports whether the user sees all that Kueue gives quota by.
func (f *Facts) seesQueues() bool {
	kind, _ := f.unseenQueues()
	return kind == ""
}

// unseenQueues is the first kind that the user may not list of those that Kueue gives quota by, and what it would tell.
func (f *Facts) unseenQueues() (kind, what string) {
	unseen := append((&outlook.Outlook{Inventory: f.Cluster.Inventory}).Unseen(), "")
	if kind = unseen[0]; slices.Contains([]string{inventory.Topologies, inventory.Nodes, inventory.AdmissionChecks}, kind) {
		return kind, kind
	}
	return kind, "what others have"
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
	return fmt.Sprintf("%s (priority %d)", inventory.JobName(wl), kueuelib.Priority(wl))
}

func preempted(d *scheduler.Decision) []Preempted {
	return kueuelib.Map(d.Victims, func(victim **kueue.Workload) Preempted {
		wl := *victim
		return Preempted{inventory.JobName(wl), string(wl.Status.Admission.ClusterQueue), kueuelib.Priority(wl), state.ReasonOf(wl, kueue.WorkloadPreempted)}
	})
}

func victimsText(d *scheduler.Decision) string {
	return show.Few(kueuelib.Map(preempted(d), func(v *Preempted) string {
		return fmt.Sprintf("%s (priority %d, ClusterQueue %s: %s)", v.Job, v.Priority, v.ClusterQueue, cmp.Or(preemptions[v.Reason].toBe, "stopping already"))
	}), 3)
}

// preempts tells whom a decision stops, and in which flavors it makes room.
func (e *Explanation) preempts(d scheduler.Decision) {
	e.Preempts = preempted(&d)
	for i := range e.Flavors {
		v := &e.Flavors[i]
		v.Preempts = d.Outcome == scheduler.Preempts && !v.Fits && assigns(d.Admission, kueue.PodSetReference(v.PodSet), kueue.ResourceFlavorReference(v.Flavor))
	}
}

// foresight tells when jobs start that wait. All are of one cluster, whose TrainJobs are read once.
type foresight struct {
	told      outlook.Told
	asks      int // how often it is asked: all of them share the time of a command
	trainJobs func() ([]trainjob.TrainJob, error)
}

// newForesight goes by the running times of all TrainJobs or, where the user may not list all, by those of a namespace.
func newForesight(ctx context.Context, c client.Client, namespace string, told outlook.Told, asks int) *foresight {
	return &foresight{told, asks, sync.OnceValues(func() ([]trainjob.TrainJob, error) {
		jobs, _, err := cluster.VisibleTrainJobs(ctx, c, namespace)
		return jobs, err
	})}
}

// foretold is what is known of a start without a play. The job waits for quota, and for nothing that people have to do first,
// where it has to be played: what keeps it until somebody acts is not all in the play.
func (f *Facts) foretold() (start *outlook.Start, plays bool) {
	s := StateOf(f)
	switch {
	case s.Phase != Waiting && s.Phase != NotCreated || f.queueName() == "" || len(f.PodSets) == 0:
		return nil, false
	case s.Reason == KueueRefuses && !s.Stuck:
		return &outlook.Start{Unknown: "Kueue goes by more than what is seen here"}, false
	case s.Stuck:
		if warned := warnedOf(Flavors(f)); warned == nil || s.Reason != warned.Reason {
			return &outlook.Start{Never: true}, false
		}
	}
	return nil, true
}

// starts returns when jobs start, or only get quota; nothing of those that do not wait for that.
func (fs *foresight) starts(ctx context.Context, jobs ...*Facts) (map[*Facts]*outlook.Start, error) {
	starts := map[*Facts]*outlook.Start{}
	var played []*Facts
	for _, f := range jobs {
		start, plays := f.foretold()
		if plays {
			played = append(played, f)
		} else if start != nil {
			starts[f] = start
		}
	}
	if len(played) == 0 {
		return starts, nil
	}
	o := played[0].outlook()
	var err error
	if o.TrainJobs, err = fs.trainJobs(); err != nil {
		return starts, err
	}
	o.Told = fs.told
	if unseen := o.Unseen(); len(unseen) > 0 {
		for _, f := range played {
			starts[f] = &outlook.Start{Unknown: "you may not list " + strings.Join(unseen, ", ") + " in the whole cluster"}
		}
		return starts, nil
	}
	q, warnings := o.Question()
	if played[0].KueueUnseen != "" {
		warnings = append(warnings, "Kueue is taken to go by its defaults; not seen: "+played[0].KueueUnseen)
	}
	q.Time /= time.Duration(fs.asks)
	waiting := kueuelib.Map(played, func(f **Facts) *kueue.Workload { return (*f).workload() })
	answers, err := outlook.Of(ctx, q, waiting...)
	for n, f := range played {
		if start := answers[client.ObjectKeyFromObject(waiting[n])]; start != nil {
			verdicts := Flavors(f)
			start.QuotaOnly = warnedOf(verdicts) != nil || staysPending(verdicts)
			start.Warnings = append(start.Warnings, warnings...)
			starts[f] = start
		}
	}
	return starts, err
}

// Starts returns when each job of a snapshot starts that waits for quota, by what is told of running times.
func Starts(ctx context.Context, c client.Client, s *Snapshot, namespace string, told outlook.Told) (map[*Facts]*outlook.Start, error) {
	return newForesight(ctx, c, namespace, told, 1).starts(ctx, s.Facts...)
}

// StartOf returns when a TrainJob would start that has just been created, or is about to be; or why that is unknown.
func StartOf(ctx context.Context, c client.Client, job *trainjob.TrainJob, told outlook.Told) (*outlook.Start, error) {
	renderer, err := trainjob.NewRenderer(ctx, c.Scheme())
	if err != nil {
		return nil, err
	}
	previews, err := newPreviews(ctx, c, renderer, nil, job.Namespace)
	if err != nil {
		return nil, err
	}
	facts, err := previews.of(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("describing TrainJob %s: %w", job.Name, err)
	}
	facts.Replaces = false
	starts, err := newForesight(ctx, c, job.Namespace, told, 1).starts(ctx, facts)
	if err != nil {
		return nil, err
	}
	return cmp.Or(starts[facts], &outlook.Start{Unknown: "it " + StateOf(facts).Message}), nil
}
