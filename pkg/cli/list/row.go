// SPDX-License-Identifier: Apache-2.0

package list

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// List is what the command tells. Its JSON is for scripts: names stay, new ones may come.
type List struct {
	TrainJobs []TrainJob `json:"trainJobs"`
	// Unseen are the kinds that would tell what is unknown.
	Unseen []Unseen `json:"unseen,omitempty"`
	// Workers are the clusters of MultiKueue that have jobs of which nothing more is known.
	Workers []UnseenWorker `json:"workers,omitempty"`
}

// UnseenWorker is a cluster that could not be looked into.
type UnseenWorker struct {
	Cluster string `json:"cluster"`
	// Problem is why.
	Problem string `json:"problem"`
	// TrainJobs is how many of the jobs it is about.
	TrainJobs int `json:"trainJobs"`
}

// Unseen is a kind that the user may not list, or what is not there.
type Unseen struct {
	Kind string `json:"kind"`
	// Fields are those of TrainJobs that it would tell.
	Fields []string `json:"fields"`
}

// TrainJob is one line.
type TrainJob struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is explain's; all but its Phase is empty where that is unknown.
	explain.State

	Queue        string `json:"queue,omitempty"`
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// User is whose the job is, by the label that the manager's configuration names.
	User    string   `json:"user,omitempty"`
	Flavors []string `json:"flavors,omitempty"`
	// GPUs are nil where nobody has told Kueue yet what the job asks for.
	GPUs     map[corev1.ResourceName]int64 `json:"gpus"`
	Priority *int32                        `json:"priority,omitempty"`
	// Position is set for a job that waits.
	Position *int `json:"position,omitempty"`
	// Start is when a job starts that waits for quota, with -o wide; and with json and yaml where --assume is given.
	Start *outlook.Start `json:"start,omitempty"`
	// Turn is the place among all that wait in ClusterQueues below Cohort, if it was asked for;
	// without a Cohort among those in its ClusterQueue.
	Turn   int    `json:"turn,omitempty"`
	Cohort string `json:"cohort,omitempty"`
	// Cluster is the one that MultiKueue runs the job in; empty for the cluster that was asked.
	Cluster string `json:"cluster,omitempty"`
	// Nominated are those that may admit it, while none has.
	Nominated []string `json:"nominated,omitempty"`

	// Unknown says which kind, or which cluster, would tell a field that the user may not know, by the field's name.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// Unknown is the phase of a job whose Workload the user may not see.
const Unknown explain.Phase = "Unknown"

// configMaps tell users, which who may not read them does not know.
const configMaps = "configmaps of namespace " + config.Namespace

// What is not there begins as it does in explain; it is in place of a kind that the user may not list.
const (
	notThere        = "the configuration of "
	noConfiguration = notThere + "kueue-trainer: namespace " + config.Namespace + " has no ConfigMap " + cluster.ManagerConfigMap + " that can be read"
)

func newList(s *explain.Snapshot, q *query, turns map[types.UID]scheduler.Turn, starts map[*explain.Facts]*outlook.Start) List {
	l := List{TrainJobs: []TrainJob{}}
	fields := map[string][]string{}
	for _, f := range s.Facts {
		row := rowOf(f)
		switch {
		case !q.users:
		case f.ManagerUnseen:
			row.unknown(configMaps, "user")
		case f.Manager == nil:
			row.unknown(noConfiguration, "user")
		default:
			row.User = f.Job.Labels[f.Manager.Metrics.UserLabel]
		}
		row.Start = starts[f]
		if f.Workload != nil {
			turn := turns[f.Workload.UID]
			row.Turn, row.Cohort = turn.Place, turn.Cohort
		}
		if !q.wants(&row) {
			continue
		}
		l.TrainJobs = append(l.TrainJobs, row)
		l.notSeen(row.Cluster, f.Workers)
		for field, kind := range row.Unknown {
			if kind != row.Cluster && !slices.Contains(fields[kind], field) {
				fields[kind] = append(fields[kind], field)
			}
		}
	}
	q.sort(l.TrainJobs)
	for _, kind := range slices.Sorted(maps.Keys(fields)) {
		l.Unseen = append(l.Unseen, Unseen{Kind: kind, Fields: slices.Sorted(slices.Values(fields[kind]))})
	}
	return l
}

// notSeen counts a job of which nothing is known where it is.
func (l *List) notSeen(cluster string, workers []explain.Worker) {
	if cluster == "" || len(workers) == 0 || workers[0].Problem == nil {
		return
	}
	at := slices.IndexFunc(l.Workers, func(u UnseenWorker) bool { return u.Cluster == cluster })
	if at < 0 {
		at = len(l.Workers)
		l.Workers = append(l.Workers, UnseenWorker{Cluster: cluster, Problem: workers[0].Problem.Error()})
	}
	l.Workers[at].TrainJobs++
}

func rowOf(f *explain.Facts) TrainJob {
	state := explain.StateOf(f)
	row := TrainJob{Namespace: f.Job.Namespace, Name: f.Job.Name, State: state, Unknown: map[string]string{}}
	row.Queue, row.ClusterQueue = f.Queues()
	if f.Workload != nil {
		row.GPUs, row.Priority, row.Flavors = f.GPUs(), f.Workload.Spec.Priority, f.Assigned()
	}
	if f.Job.ForMultiKueue() {
		row.elsewhere(f)
	}
	if !f.Saw(inventory.Workloads) && f.Workload == nil && row.Queue != "" {
		row.unknown(inventory.Workloads, "flavors", "gpus", "priority")
	}
	if state.Hidden != "" {
		row.hidden(state)
	}
	if state.Phase == explain.Waiting {
		switch place := f.Place(); {
		case place != nil:
			row.Position = &place.Place
		case !f.Cluster.Saw(inventory.Workloads):
			row.unknown(inventory.Workloads, "position")
		}
	}
	return row
}

// hidden is for a job of which the state that is told is a guess.
func (r *TrainJob) hidden(state explain.State) {
	r.unknown(state.Hidden, "reason")
	r.State = explain.State{Phase: state.Phase, Since: state.Since}
	switch state.Phase {
	case explain.Unqueued:
		r.unknown(state.Hidden, "phase")
		r.State = explain.State{Phase: Unknown}
		if r.Cluster == "" {
			r.unknown(state.Hidden, "position")
		}
	case explain.Waiting:
		r.Message = state.Message // Kueue's own words are in it.
	}
}

// elsewhere is for a job of MultiKueue: the flavors of this cluster say nothing of it.
func (r *TrainJob) elsewhere(f *explain.Facts) {
	there := f.There()
	r.Flavors, r.Cluster = nil, cluster.Assigned(f.Workload)
	_, r.Nominated = f.Dispatched()
	switch {
	case there != nil && there.Facts.Workload != nil:
		r.GPUs, r.Flavors = there.Facts.GPUs(), there.Facts.Assigned()
	case there != nil && !there.Facts.Saw(inventory.Workloads):
		r.unknown(inventory.Workloads+" in cluster "+there.Cluster, "flavors")
	case r.Cluster != "" && there == nil:
		r.unknown(r.Cluster, "flavors")
	}
}

// unknown says that fields are not known for the want of a kind.
func (r *TrainJob) unknown(kind string, fields ...string) {
	for _, field := range fields {
		r.Unknown[field] = kind
	}
}
