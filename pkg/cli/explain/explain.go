// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Explanation is all that there is to say of a TrainJob. Its JSON is for scripts: names stay, new ones may come.
type Explanation struct {
	Namespace   string         `json:"namespace"`
	Name        string         `json:"name"`
	State       State          `json:"state"`
	Chain       []Link         `json:"chain,omitempty"`     // empty for a manifest
	Start       *outlook.Start `json:"start,omitempty"`     // when a job starts that waits for quota
	Queue       *Queue         `json:"queue,omitempty"`     // nil where the TrainJob names none
	TimeLimit   *TimeLimit     `json:"timeLimit,omitempty"` // nil where the TrainJob has none, or is over
	PodSets     []PodSet       `json:"podSets,omitempty"`
	Flavors     []Verdict      `json:"flavors,omitempty"`  // has a verdict for each PodSet and flavor
	Preempts    []Preempted    `json:"preempts,omitempty"` // those whom Kueue would stop for the job now
	Placement   []Part         `json:"placement,omitempty"`
	Undescribed string         `json:"undescribed,omitempty"` // why there is no placement
	Unseen      []string       `json:"unseen,omitempty"`      // Unseen says what the user may not see
	// Workers are the clusters that MultiKueue gave the job to, or may.
	Workers []WorkerExplanation `json:"workers,omitempty"`
}

// WorkerExplanation is what there is to say of a job in a worker of MultiKueue.
type WorkerExplanation struct {
	Cluster     string       `json:"cluster"`
	Context     string       `json:"context,omitempty"`     // Context of the kubeconfig that leads there
	Problem     string       `json:"problem,omitempty"`     // why there is no explanation
	Explanation *Explanation `json:"explanation,omitempty"` // of the copy there
}

// Queue is where a TrainJob waits, or has its quota from.
type Queue struct {
	LocalQueue    string    `json:"localQueue"`
	ClusterQueue  string    `json:"clusterQueue,omitempty"`
	Cohort        string    `json:"cohort,omitempty"`
	Strategy      string    `json:"strategy,omitempty"`
	Priority      int32     `json:"priority"`
	PriorityClass string    `json:"priorityClass,omitempty"` // empty where the job has none
	Position      *Position `json:"position,omitempty"`      // nil unless the TrainJob waits
	KueueSays     string    `json:"kueueSays,omitempty"`     // the message of condition QuotaReserved, as Kueue wrote it
}

// PodSet is what Kueue sees of a replicated job.
type PodSet struct {
	Name   string              `json:"name"`
	Pods   int32               `json:"pods"` // those that need quota, and Done those that have given it back
	Done   int32               `json:"done,omitempty"`
	PerPod corev1.ResourceList `json:"perPod"` // the requests of one pod
}

// Explain says it all.
func Explain(f *Facts) Explanation {
	e := Explanation{
		Namespace: f.Job.Namespace, Name: f.Job.Name,
		State: StateOf(f), Chain: Chain(f), Queue: queueOf(f), TimeLimit: timeLimitOf(f), Placement: Placement(f),
	}
	for i := range f.PodSets {
		e.PodSets = append(e.PodSets, podSetOf(f, &f.PodSets[i]))
	}
	if !f.over() && e.State.Phase != NotManaged {
		e.Flavors = Flavors(f)
		if f.Workload != nil && kueuelib.HasQuotaReservation(f.Workload) {
			e.Flavors = picked(e.Flavors, func(v Verdict) bool { return v.Assigned })
		}
	}
	if e.State.Phase == NotCreated || e.State.Phase == Waiting {
		e.Preempts = f.preempts(f.forecast())
		markPreempting(e.Flavors, f.forecast())
	}
	if f.Undescribed != nil {
		e.Undescribed = f.Undescribed.Error()
	}
	e.Unseen = f.unseen(&e)
	for i := range f.Workers {
		e.Workers = append(e.Workers, f.Workers[i].explain())
	}
	return e
}

// unseen names what the user may not see that would change an explanation.
func (f *Facts) unseen(e *Explanation) []string {
	all := slices.Clone(f.Cluster.Unseen)
	for _, kind := range f.Unseen {
		all = append(all, kind+" of namespace "+f.Job.Namespace)
	}
	if f.KueueUnseen != "" && (f.seesQueues() && f.forecast() == nil || e.State.Phase == NotCreated && f.queueName() == "") {
		all = append(all, f.KueueUnseen)
	}
	if f.PriorityUnseen && f.seesQueues() {
		all = append(all, "workloadpriorityclasses.kueue.x-k8s.io and priorityclasses.scheduling.k8s.io")
	}
	untolerated := func(r Reason) bool { return r.Code == Taint } // A rule of the manager may add the toleration.
	if f.ManagerUnseen && f.Workload == nil && slices.ContainsFunc(e.Flavors, func(v Verdict) bool { return slices.ContainsFunc(v.Reasons, untolerated) }) {
		all = append(all, "configmaps of namespace "+config.Namespace)
	}
	return all
}

func (w *Worker) explain() WorkerExplanation {
	out := WorkerExplanation{Cluster: w.Cluster, Context: w.Context}
	if w.Problem != nil {
		out.Problem = w.Problem.Error()
	}
	if w.Facts != nil {
		out.Explanation = new(Explain(w.Facts))
	}
	return out
}

func queueOf(f *Facts) *Queue {
	if f.queueName() == "" {
		return nil
	}
	q := &Queue{LocalQueue: f.queueName(), ClusterQueue: string(f.clusterQueueName())}
	if cq := f.clusterQueue(); cq != nil {
		q.Cohort, q.Strategy = string(cq.Spec.CohortName), string(cq.Spec.QueueingStrategy)
	}
	if f.Workload == nil {
		return q
	}
	q.Priority = kueuelib.Priority(f.Workload)
	if ref := f.Workload.Spec.PriorityClassRef; ref != nil {
		q.PriorityClass = ref.Name
	}
	if s := StateOf(f); s.Phase == Waiting {
		q.Position = f.Place()
		if f.Supposed == "" {
			q.KueueSays = scheduler.WhyWaiting(f.Workload)
		}
	}
	return q
}

func podSetOf(f *Facts, ps *kueue.PodSet) PodSet {
	out := PodSet{Name: string(ps.Name), Pods: ps.Count, Done: doneOf(f.Workload, ps.Name), PerPod: corev1.ResourceList{}}
	format := kueuelib.NewResourceFormatter()
	for name, amount := range perPodOf(ps, nil) {
		out.PerPod[name] = format.ResourceQuantity(name, amount)
	}
	return out
}

// TimeLimit is how long Kueue lets a TrainJob run, by label kueue.x-k8s.io/max-exec-time-seconds.
type TimeLimit struct {
	Seconds     int32 `json:"seconds"`
	UsedSeconds int32 `json:"usedSeconds"` // the time for which it was admitted until now
}

// timeLimitOf counts as Kueue does: all admissions of the Workload, and no time in the queue.
func timeLimitOf(f *Facts) *TimeLimit {
	if f.Workload == nil || f.Workload.Spec.MaximumExecutionTimeSeconds == nil || kueuelib.IsFinished(f.Workload) {
		return nil
	}
	l := &TimeLimit{Seconds: *f.Workload.Spec.MaximumExecutionTimeSeconds}
	l.UsedSeconds = ptr.Deref(f.Workload.Status.AccumulatedPastExecutionTimeSeconds, 0)
	if c := f.condition(kueue.WorkloadAdmitted); c != nil {
		l.UsedSeconds += int32(f.Now.Sub(c.LastTransitionTime.Time).Seconds())
	}
	return l
}
