// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
)

// Explanation is all that there is to say of a TrainJob. Its JSON is for scripts: names stay, new ones may come.
type Explanation struct {
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	State       State               `json:"state"`
	Chain       []Link              `json:"chain,omitempty"`     // empty for a manifest
	Start       *outlook.Start      `json:"start,omitempty"`     // when a job starts that waits for quota
	Queue       *Queue              `json:"queue,omitempty"`     // nil where the TrainJob names none
	TimeLimit   *TimeLimit          `json:"timeLimit,omitempty"` // nil where the TrainJob has none, or is over
	PodSets     []PodSet            `json:"podSets,omitempty"`
	Flavors     []Verdict           `json:"flavors,omitempty"`  // has a verdict for each PodSet and flavor
	Preempts    []Preempted         `json:"preempts,omitempty"` // those whom Kueue would stop for the job now
	Placement   []Part              `json:"placement,omitempty"`
	Undescribed string              `json:"undescribed,omitempty"` // why there is no placement
	Unseen      []string            `json:"unseen,omitempty"`      // what the user may not see
	Workers     []WorkerExplanation `json:"workers,omitempty"`     // that MultiKueue gave the job to, or may
}

// WorkerExplanation is what there is to say of a job in a worker of MultiKueue.
type WorkerExplanation struct {
	Cluster     string       `json:"cluster"`
	Context     string       `json:"context,omitempty"`     // of the kubeconfig, that leads there
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
		PodSets: kueuelib.Map(f.PodSets, f.podSet), Workers: kueuelib.Map(f.Workers, (*Worker).explain),
	}
	if !f.over() && e.State.Phase != NotManaged {
		e.Flavors = Flavors(f)
		if f.Workload != nil && kueuelib.HasQuotaReservation(f.Workload) {
			e.Flavors = picked(e.Flavors, func(v Verdict) bool { return v.Assigned })
		}
	}
	if e.State.Phase == NotCreated || e.State.Phase == Waiting {
		e.preempts(ptr.Deref(f.forecast(), scheduler.Decision{}))
	}
	if f.Undescribed != nil {
		e.Undescribed = f.Undescribed.Error()
	}
	e.Unseen = f.unseen(&e)
	return e
}

// unseen names what the user may not see that would change an explanation.
func (f *Facts) unseen(e *Explanation) []string {
	all := slices.Clone(f.Cluster.Unseen)
	all = append(all, kueuelib.Map(f.Unseen, func(kind *string) string { return *kind + " of namespace " + f.Job.Namespace })...)
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
	spec := ptr.Deref(f.clusterQueue(), kueue.ClusterQueue{}).Spec
	q := &Queue{LocalQueue: f.queueName(), ClusterQueue: string(f.clusterQueueName()), Cohort: string(spec.CohortName), Strategy: string(spec.QueueingStrategy)}
	if f.Workload == nil {
		return q
	}
	q.Priority, q.PriorityClass = kueuelib.Priority(f.Workload), ptr.Deref(f.Workload.Spec.PriorityClassRef, kueue.PriorityClassRef{}).Name
	if s := StateOf(f); s.Phase == Waiting {
		q.Position = f.Place()
		if f.Supposed == "" {
			q.KueueSays = scheduler.WhyWaiting(f.Workload)
		}
	}
	return q
}

func (f *Facts) podSet(ps *kueue.PodSet) PodSet {
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

// Part is a value of the effective placement with its owner.
type Part struct {
	ReplicatedJob string          `json:"replicatedJob,omitempty"` // empty for what is said of the TrainJob itself
	Field         string          `json:"field"`                   // a path from the pod template: nodeSelector[pool], labels[team]
	Value         json.RawMessage `json:"value"`
	SetBy         string          `json:"setBy"`
	Overrode      []Overridden    `json:"overrode,omitempty"` // what it took the place of, the strongest first
}

// Overridden is a value that did not come into effect.
type Overridden struct {
	Value json.RawMessage `json:"value"`
	SetBy string          `json:"setBy"`
}

// jobLabels are the labels of a TrainJob that Kueue goes by.
var jobLabels = []string{kueueconstants.QueueLabel, kueueconstants.WorkloadPriorityClassLabel}

// Placement returns what decides where the pods go, and everything that a patch set.
func Placement(f *Facts) []Part {
	var parts []Part
	for _, label := range jobLabels {
		if value, ok := f.Job.Labels[label]; ok {
			data, _ := json.Marshal(value) // A text can be encoded.
			parts = append(parts, Part{Field: "metadata.labels[" + label + "]", Value: data, SetBy: string(provenance.TrainJob)})
		}
	}
	for _, field := range f.Fields {
		if path, ok := placementPath(field); ok {
			overrode := kueuelib.Map(field.Overrode, func(o *provenance.Setting) Overridden { return Overridden{o.Value, owner(f, o.Source)} })
			parts = append(parts, Part{field.Job, path, field.Value, owner(f, field.Source), overrode})
		}
	}
	return parts
}

// selecting are the fields of a pod that decide on its node.
var selecting = []string{"nodeSelector[", "tolerations", "schedulingGates[", "affinity", "topologySpreadConstraints",
	"priorityClassName", "runtimeClassName", "schedulerName", "nodeName"}

// placementPath returns the short path of a field of the placement.
func placementPath(field provenance.Field) (string, bool) {
	metadata, isMetadata := strings.CutPrefix(field.Path, "spec.template.metadata.")
	spec, isSpec := strings.CutPrefix(field.Path, "spec.template.spec.")
	patched := field.Kind == provenance.Patch
	switch {
	case isMetadata:
		return metadata, patched || strings.Contains(metadata, "kueue.x-k8s.io/")
	case isSpec:
		return spec, patched || slices.ContainsFunc(selecting, func(prefix string) bool { return strings.HasPrefix(spec, prefix) })
	}
	return field.Path, patched
}

// owner names a source: a runtime by its name, our overrides of Trainer 2.1 like our entry.
func owner(f *Facts, source provenance.Source) string {
	switch source.Kind {
	case provenance.Runtime:
		return "runtime " + f.Job.Spec.RuntimeRef.Name
	case provenance.TrainJob:
		return "TrainJob spec.trainer"
	}
	if overrides := f.Job.Spec.PodTemplateOverrides; source.Manager == "" && source.Kind == provenance.Patch &&
		source.Index < len(overrides) && overrides[source.Index].Ours() {
		return patch.Manager
	}
	return source.String()
}

// valueText is a value for eyes: texts without quotes, tolerations as kubectl writes taints, other things as JSON.
func valueText(part string, value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var named struct{ Name string }
	if strings.HasPrefix(part, "schedulingGates[") && json.Unmarshal(value, &named) == nil {
		return named.Name
	}
	var tolerations []corev1.Toleration
	if part == "tolerations" && json.Unmarshal(value, &tolerations) == nil {
		return strings.Join(kueuelib.Map(tolerations, func(t *corev1.Toleration) string {
			taint := corev1.Taint{Key: cmp.Or(t.Key, "*"), Value: t.Value, Effect: t.Effect}
			return strings.TrimSuffix(taint.ToString(), ":")
		}), ", ")
	}
	return string(value)
}

// valueShown is how much of a value is shown unless -o wide.
const valueShown = 60

func (p *printer) placement(e *Explanation) {
	if e.Undescribed != "" && e.State.Phase != NotCreated && e.State.Reason != "RuntimeMissing" {
		p.say("\n%s %s\n", p.paint.Bold("Placement unknown:"), e.Undescribed)
	}
	if len(e.Placement) == 0 {
		return
	}
	table := show.NewTable("REPLICATED JOB", "PLACEMENT", "VALUE", "SET BY", "INSTEAD OF")
	for _, part := range e.Placement {
		instead := kueuelib.Map(part.Overrode, func(o *Overridden) string { return fmt.Sprintf("%s (%s)", p.value(part.Field, o.Value), o.SetBy) })
		table.Row(cmp.Or(part.ReplicatedJob, "-"), part.Field, p.value(part.Field, part.Value), p.paint.Cyan(part.SetBy), strings.Join(instead, ", "))
	}
	p.say("\n")
	p.show(table)
}

func (p *printer) value(field string, value []byte) string {
	text := valueText(field, value)
	if runes := []rune(text); !p.wide && len(runes) > valueShown {
		return string(runes[:valueShown]) + "…"
	}
	return text
}
