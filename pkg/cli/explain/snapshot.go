// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
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
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Around is what there is around TrainJobs, whatever their number.
type Around struct {
	// Now is the time that ages are counted to.
	Now time.Time
	// Cluster is what the jobs compete for, never nil.
	Cluster *Cluster
	// Field is that of the served generation of Trainer.
	Field patch.Field
	// Manager is the manager's configuration with its defaults, Kueue is Kueue's; nil where there is
	// none that can be read. ManagerUnseen is set where the user may not read it. KueueUnseen says why Kueue's is not known: it
	// may be other than the defaults then.
	Manager       *config.Configuration
	ManagerUnseen bool
	Kueue         *configapi.Configuration
	KueueUnseen   string
	// Classes are the WorkloadPriorityClasses that there are; nil where the user may not list them.
	Classes *kueue.WorkloadPriorityClassList
	// Unseen are the kinds that the user may not list where the jobs are. What is told of quota and
	// positions needs more: see Cluster.Unseen.
	Unseen []string

	served trainjob.TrainerVersion
}

// Saw reports whether the user may list a kind where the TrainJobs are.
func (a *Around) Saw(kind string) bool { return !slices.Contains(a.Unseen, kind) }

// Snapshot is what was read of a cluster to tell of its TrainJobs, each kind once. What the user may not
// see is left out.
type Snapshot struct {
	Around
	Namespaces []corev1.Namespace

	// What there is of the jobs.
	Workloads []kueue.Workload
	JobSets   []jobsetapi.JobSet
	Jobs      []batchv1.Job
	Pods      []corev1.Pod
	Events    []corev1.Event

	// Facts are those of the jobs that were asked for.
	Facts []*Facts

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
