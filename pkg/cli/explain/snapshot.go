// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Around is what there is around TrainJobs, whatever their number.
type Around struct {
	Now           time.Time                        // the time that ages are counted to
	Cluster       *Cluster                         // what the jobs compete for, never nil
	Field         patch.Field                      // that of the served generation of Trainer
	Manager       *config.Configuration            // the manager's configuration with its defaults; nil for none that can be read
	Kueue         *configapi.Configuration         // Kueue's, alike
	ManagerUnseen bool                             // set where the user may not read the manager's
	KueueUnseen   string                           // why Kueue's is not known: it may be other than the defaults then
	Classes       *kueue.WorkloadPriorityClassList // nil where the user may not list them
	Unseen        []string                         // kinds that the user may not list where the jobs are; see Cluster.Unseen

	served trainjob.TrainerVersion
}

// Saw reports whether the user may list a kind where the TrainJobs are.
func (a *Around) Saw(kind string) bool { return !slices.Contains(a.Unseen, kind) }

// Snapshot is what was read of a cluster to tell of its TrainJobs, each kind once. What the user may not see is left out.
type Snapshot struct {
	Around
	Namespaces []corev1.Namespace

	// What there is of the jobs.
	Workloads []kueue.Workload
	JobSets   []jobsetapi.JobSet
	Jobs      []batchv1.Job
	Pods      []corev1.Pod
	Events    []corev1.Event

	Facts []*Facts // those of the jobs that were asked for

	byOwner *byOwner
}

// eventTime is when an event was seen last, in whatever field its writer noted it.
func eventTime(e *corev1.Event) time.Time {
	again := ptr.Deref(e.Series, corev1.EventSeries{}).LastObservedTime
	return cmp.Or(again.Time, e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

// regarding is what an event is about. Whoever may create events in a namespace of his own may name any UID.
type regarding struct {
	namespace string
	uid       types.UID
}

type byOwner struct {
	workloads map[types.UID][]kueue.Workload
	jobSets   map[types.UID][]jobsetapi.JobSet
	jobs      map[types.NamespacedName][]batchv1.Job
	pods      map[types.NamespacedName][]corev1.Pod
	events    map[regarding][]corev1.Event
}

// grouped returns objects by a key, without those that have none.
func grouped[T any, K comparable](items []T, key func(*T) K) map[K][]T {
	groups := map[K][]T{}
	for i := range items {
		k := key(&items[i])
		groups[k] = append(groups[k], items[i])
	}
	var none K
	delete(groups, none)
	return groups
}

// ownerOf is the UID of what controls an object; empty for nothing.
func ownerOf(obj metav1.Object) types.UID {
	return ptr.Deref(metav1.GetControllerOfNoCopy(obj), metav1.OwnerReference{}).UID
}

func jobSetOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[jobsetapi.JobSetNameKey]}
}

// OfAll returns what was read of TrainJobs. What Kueue decides about them is found in one play.
func (s *Snapshot) OfAll(jobs []trainjob.TrainJob) []*Facts {
	var all []*Facts
	s.Cluster.asked = sets.New[client.ObjectKey]()
	for n := range jobs {
		f := s.Of(&jobs[n])
		all = append(all, f)
		if f.waitsForQuota() {
			s.Cluster.asked.Insert(client.ObjectKeyFromObject(f.Workload))
		}
	}
	return all
}

// Of returns what was read of a TrainJob.
func (s *Snapshot) Of(job *trainjob.TrainJob) *Facts {
	if s.byOwner == nil {
		s.byOwner = &byOwner{
			workloads: grouped(s.Workloads, func(wl *kueue.Workload) types.UID { return ownerOf(wl) }),
			jobSets:   grouped(s.JobSets, func(js *jobsetapi.JobSet) types.UID { return ownerOf(js) }),
			jobs:      grouped(s.Jobs, func(job *batchv1.Job) types.NamespacedName { return jobSetOf(job) }),
			pods:      grouped(s.Pods, func(pod *corev1.Pod) types.NamespacedName { return jobSetOf(pod) }),
			events:    grouped(s.Events, func(e *corev1.Event) regarding { return regarding{e.Namespace, e.InvolvedObject.UID} }),
		}
	}
	by := s.byOwner
	told := func(uid types.UID) []corev1.Event { return by.events[regarding{job.Namespace, uid}] }
	f := &Facts{Around: s.Around, Job: job, Namespace: inventory.Find(s.Namespaces, "", job.Namespace), Warnings: slices.Clone(told(job.UID))}
	for i := range by.workloads[job.UID] {
		if wl := &by.workloads[job.UID][i]; f.Workload == nil || !kueuelib.IsFinished(wl) {
			f.Workload = wl
		}
	}
	if f.Workload == nil {
		// MultiKueue makes one ahead of the job, which does not own it yet.
		wl := inventory.Find(s.Workloads, job.Namespace, jobframework.PrebuiltWorkloadNameFor(job))
		if wl != nil && ownerOf(wl) == "" && wl.Labels[kueue.MultiKueueOriginLabel] != "" {
			f.Workload = wl
		}
	}
	if f.Workload != nil {
		f.PodSets = podSetsOf(f.Workload)
		f.Warnings = append(f.Warnings, told(f.Workload.UID)...)
	}
	for i := range by.jobSets[job.UID] {
		f.JobSet = &by.jobSets[job.UID][i]
	}
	if f.JobSet != nil {
		f.Warnings = append(f.Warnings, told(f.JobSet.UID)...)
	}
	if f.JobSet != nil || !s.Saw(jobSets) {
		key := client.ObjectKeyFromObject(job) // The JobSet has the job's name.
		f.Jobs, f.Pods = by.jobs[key], by.pods[key]
		for i := range f.Jobs {
			f.Warnings = append(f.Warnings, told(f.Jobs[i].UID)...)
		}
		for i := range f.Pods {
			if unmadePod(f.Pods[i]) {
				f.PodEvents = append(f.PodEvents, told(f.Pods[i].UID)...)
			}
		}
	}
	for _, events := range [][]corev1.Event{f.Warnings, f.PodEvents} {
		slices.SortStableFunc(events, func(a, b corev1.Event) int { return eventTime(&b).Compare(eventTime(&a)) })
	}
	return f
}

// Cluster is what TrainJobs compete for, as Kueue's scheduler sees it.
type Cluster struct {
	*inventory.Inventory

	// now is what there is, with stopped queues running, of which is told on its own, and without what makes ClusterQueues
	// inactive because it may not be seen; unlimited has no borrowing limits, empty nobody's pods and all nodes ready.
	now, unlimited, empty *scheduler.Snapshot

	asked   sets.Set[client.ObjectKey]                        // Workloads of the jobs of a table, which are decided about in one play
	decided map[question]*scheduler.Decision                  // remembered of forecasts
	lines   map[kueue.ClusterQueueReference][]*kueue.Workload // who waits in each; nil before that is asked
	places  map[types.UID]int                                 // who is how many-th there
}

// NewCluster makes the scheduler's view of an inventory. The error is of cohorts in a circle.
func NewCluster(ctx context.Context, i *inventory.Inventory) (*Cluster, error) {
	c := &Cluster{Inventory: i, decided: map[question]*scheduler.Decision{}}
	active := i.World().Changed(func(spec *kueue.ClusterQueueSpec) {
		spec.StopPolicy = nil
		if !i.Saw(inventory.AdmissionChecks) {
			spec.AdmissionChecksStrategy = nil
		}
	})
	if !i.Saw(inventory.Topologies) {
		active.Flavors = slices.Clone(active.Flavors)
		for n := range active.Flavors {
			active.Flavors[n].Spec.TopologyName = nil
		}
	}
	var err error
	if c.now, err = active.Snapshot(ctx, i.Workloads); err != nil {
		return nil, err
	}
	idle := *active
	idle.Pods, idle.Nodes = nil, atTheirBest(i.Nodes)
	if c.empty, err = idle.Snapshot(ctx, nil); err != nil {
		return nil, err
	}
	c.unlimited, err = active.Changed(func(spec *kueue.ClusterQueueSpec) {
		for grant := range inventory.Grants(spec.ResourceGroups) {
			grant.Quota.BorrowingLimit = nil
		}
	}).Snapshot(ctx, i.Workloads)
	return c, err
}

// atTheirBest returns nodes as they are once nobody cordons them, and they are ready.
func atTheirBest(nodes []corev1.Node) []corev1.Node {
	best := slices.Clone(nodes)
	for i := range best {
		node := best[i].DeepCopy()
		node.Spec.Unschedulable, node.Spec.Taints = false, gpu.Lasting(node)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		best[i] = *node
	}
	return best
}

// The kinds of what is made of a TrainJob, beside pods.
const (
	jobSets   = "jobsets.jobset.x-k8s.io"
	childJobs = "jobs.batch"
)

// flavorsOf returns the flavors of a ClusterQueue, nil for one that is not there.
func (c *Cluster) flavorsOf(cq *kueue.ClusterQueue) (all []*kueue.ResourceFlavor) {
	for grant := range inventory.Grants(cq.Spec.ResourceGroups) {
		all = append(all, c.Flavor(grant.Flavor))
	}
	return all
}

// onlyTopologies reports whether all flavors of a ClusterQueue have a topology, by which its PodSets are placed then.
func (c *Cluster) onlyTopologies(cq *kueue.ClusterQueue) bool {
	return !slices.ContainsFunc(c.flavorsOf(cq), func(f *kueue.ResourceFlavor) bool { return f == nil || f.Spec.TopologyName == nil })
}

func find[T any](items []T, wanted func(*T) bool) *T {
	for i := range items {
		if wanted(&items[i]) {
			return &items[i]
		}
	}
	return nil
}
