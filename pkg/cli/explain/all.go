// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Survey is many TrainJobs at once.
type Survey struct {
	Facts []*Facts
	// Unseen are the kinds that the user may not list where the TrainJobs are. What is told
	// of quota and positions needs more: see Cluster.Unseen of the facts.
	Unseen []string
	// Manager is its configuration with its defaults; nil where there is none that can be read.
	Manager *config.Configuration
}

// Saw reports whether the user may list a kind where the TrainJobs are.
func (s *Survey) Saw(kind string) bool { return !slices.Contains(s.Unseen, kind) }

// ReadAll reads the facts of TrainJobs of one namespace, or of all where that is empty. Each
// kind is read once, whatever the number of jobs. What it takes a rendering to know is left
// out: owners of fields, and the PodSets of a job without a Workload.
func ReadAll(ctx context.Context, c client.Client, jobs []trainjob.TrainJob, namespace string) (*Survey, error) {
	i, err := inventory.Load(ctx, c)
	if err != nil {
		return nil, err
	}
	version, err := served(ctx, c, i)
	if err != nil {
		return nil, err
	}
	s := &surveyor{client: c, namespace: namespace, survey: &Survey{}, children: map[types.NamespacedName]*children{}, workloads: map[types.UID]*kueue.Workload{}, ahead: map[types.NamespacedName]*kueue.Workload{}, events: map[types.UID][]corev1.Event{}}
	s.readNamespaced(ctx, i)
	s.readChildren(ctx)
	s.readEvents(ctx)
	s.readNamespaces(ctx)
	if s.err != nil {
		return nil, s.err
	}
	if s.cluster, err = NewCluster(ctx, i); err != nil {
		return nil, err
	}
	if s.survey.Manager, _, err = configurationOf(ctx, c, cluster.ManagerConfiguration); err != nil {
		return nil, err
	}
	if s.kueue, s.kueueUnseen, err = configurationOf(ctx, c, cluster.KueueConfiguration); err != nil {
		return nil, err
	}
	if s.classes, err = readClasses(ctx, c); err != nil {
		return nil, err
	}
	for n := range jobs {
		s.survey.Facts = append(s.survey.Facts, s.facts(&jobs[n], patch.Of(version)))
	}
	s.places(ctx)
	return s.survey, nil
}

// children are what Trainer and JobSet made of a job.
type children struct {
	jobSet *jobsetapi.JobSet
	jobs   []batchv1.Job
	pods   []corev1.Pod
}

// surveyor reads what many jobs have around them, and hands it out to each.
type surveyor struct {
	client    client.Client
	namespace string
	survey    *Survey
	cluster   *Cluster
	err       error

	kueue       *configapi.Configuration
	kueueUnseen bool
	classes     *kueue.WorkloadPriorityClassList

	workloads map[types.UID]*kueue.Workload
	// ahead are the Workloads that MultiKueue has made for jobs which do not own them yet.
	ahead    map[types.NamespacedName]*kueue.Workload
	children map[types.NamespacedName]*children
	// events are by the UID of what they are about.
	events     map[types.UID][]corev1.Event
	namespaces map[string]*corev1.Namespace
}

// list reads a kind in the namespaces of the jobs; a kind that may not be listed is noted.
func (s *surveyor) list(ctx context.Context, kind string, into client.ObjectList, options ...client.ListOption) {
	if s.err != nil {
		return
	}
	switch err := s.client.List(ctx, into, append(options, client.InNamespace(s.namespace))...); {
	case apierrors.IsForbidden(err):
		s.survey.Unseen = append(s.survey.Unseen, kind)
	case err != nil:
		s.err = fmt.Errorf("listing %s: %w", kind, err)
	}
}

// readNamespaced takes from the inventory what it has, and asks for the namespace alone
// where the user may see no more. LocalQueues of others decide nothing; their Workloads and
// pods do, so that these stay unseen in the inventory.
func (s *surveyor) readNamespaced(ctx context.Context, i *inventory.Inventory) {
	of := kueue.WorkloadList{Items: i.Workloads}
	if !i.Saw(workloads) {
		s.list(ctx, workloads, &of)
	}
	for n := range of.Items {
		wl := &of.Items[n]
		switch owner := metav1.GetControllerOf(wl); {
		case owner == nil && wl.Labels[kueue.MultiKueueOriginLabel] != "":
			s.ahead[client.ObjectKeyFromObject(wl)] = wl
		case owner != nil && (s.workloads[owner.UID] == nil || !finishedWorkload(wl)):
			s.workloads[owner.UID] = wl
		}
	}
	podsOf := corev1.PodList{Items: i.Pods}
	if !i.Saw(pods) {
		s.list(ctx, pods, &podsOf, client.HasLabels{jobsetapi.JobSetNameKey})
	}
	for n := range podsOf.Items {
		if child := s.childrenOf(&podsOf.Items[n]); child != nil {
			child.pods = append(child.pods, podsOf.Items[n])
		}
	}
	if i.Saw(localQueues) {
		return
	}
	var queues kueue.LocalQueueList
	if s.list(ctx, localQueues, &queues); s.survey.Saw(localQueues) {
		i.LocalQueues = queues.Items
		i.Unseen = slices.DeleteFunc(i.Unseen, func(u inventory.Unseen) bool { return u.Kind == localQueues })
	}
}

func finishedWorkload(wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == kueue.WorkloadFinished && c.Status == metav1.ConditionTrue
	})
}

// childrenOf returns the place for a Job or pod of a JobSet; nil for those of something else.
func (s *surveyor) childrenOf(o client.Object) *children {
	name := o.GetLabels()[jobsetapi.JobSetNameKey]
	if name == "" {
		return nil
	}
	return s.childrenNamed(types.NamespacedName{Namespace: o.GetNamespace(), Name: name})
}

func (s *surveyor) childrenNamed(key types.NamespacedName) *children {
	if s.children[key] == nil {
		s.children[key] = &children{}
	}
	return s.children[key]
}

func (s *surveyor) readChildren(ctx context.Context) {
	var sets jobsetapi.JobSetList
	s.list(ctx, "jobsets.jobset.x-k8s.io", &sets)
	for n := range sets.Items {
		s.childrenNamed(client.ObjectKeyFromObject(&sets.Items[n])).jobSet = &sets.Items[n]
	}
	var jobs batchv1.JobList
	s.list(ctx, "jobs.batch", &jobs, client.HasLabels{jobsetapi.JobSetNameKey})
	for n := range jobs.Items {
		child := s.childrenOf(&jobs.Items[n])
		child.jobs = append(child.jobs, jobs.Items[n])
	}
}

// readEvents reads warnings about TrainJobs and, where a kubelet has yet to make containers, what is
// said of pods.
func (s *surveyor) readEvents(ctx context.Context) {
	wanted := []client.MatchingFields{{"involvedObject.kind": trainjob.GVK.Kind, "type": corev1.EventTypeWarning}}
	for _, of := range s.children {
		if slices.ContainsFunc(of.pods, unmadePod) {
			wanted = append(wanted, aboutPods...)
			break
		}
	}
	var all []corev1.Event
	for _, fields := range wanted {
		var events corev1.EventList
		if s.survey.Saw("events") {
			s.list(ctx, "events", &events, fields)
		}
		all = append(all, events.Items...)
	}
	slices.SortStableFunc(all, latestFirst)
	for n := range all {
		uid := all[n].InvolvedObject.UID
		s.events[uid] = append(s.events[uid], all[n])
	}
}

// readNamespaces is for the labels of namespaces: without them nothing is said of selectors.
func (s *surveyor) readNamespaces(ctx context.Context) {
	s.namespaces = map[string]*corev1.Namespace{}
	if s.err != nil {
		return
	}
	var list corev1.NamespaceList
	if err := s.client.List(ctx, &list); ignoreUnseen(err) != nil {
		s.err = fmt.Errorf("listing namespaces: %w", err)
	}
	for n := range list.Items {
		s.namespaces[list.Items[n].Name] = &list.Items[n]
	}
}

func (s *surveyor) facts(job *trainjob.TrainJob, field patch.Field) *Facts {
	f := &Facts{
		Now: time.Now(), Field: field, Job: job, Manager: s.survey.Manager, Kueue: s.kueue, KueueUnseen: s.kueueUnseen, Classes: s.classes, Cluster: s.cluster, Namespace: s.namespaces[job.Namespace],
		Workload: s.workloadOf(job), WorkloadUnseen: !s.survey.Saw(workloads), Warnings: s.events[job.UID], WarningsUnseen: !s.survey.Saw("events"),
	}
	if f.Workload != nil {
		f.PodSets = f.Workload.Spec.PodSets
	}
	of := s.children[client.ObjectKeyFromObject(job)]
	if of != nil && of.jobSet != nil && metav1.IsControlledBy(of.jobSet, job) {
		f.JobSet, f.Jobs, f.Pods = of.jobSet, of.jobs, of.pods
		for n := range of.pods {
			f.PodEvents = append(f.PodEvents, s.events[of.pods[n].UID]...)
		}
	}
	return f
}

// workloadOf returns the Workload that a job owns or, for a copy, the one that MultiKueue has made
// ahead of it; nil for none.
func (s *surveyor) workloadOf(job *trainjob.TrainJob) *kueue.Workload {
	if wl := s.workloads[job.UID]; wl != nil {
		return wl
	}
	return s.ahead[types.NamespacedName{Namespace: job.Namespace, Name: jobframework.PrebuiltWorkloadNameFor(job)}]
}

// places tells every job its position, computed for all at once or, where the user may not
// see who else waits, as Kueue says it.
func (s *surveyor) places(ctx context.Context) {
	known := map[types.UID]*Position{}
	if s.cluster.Saw(workloads) && s.cluster.Saw(localQueues) {
		known = positions(s.cluster)
	} else {
		s.visible(ctx, known)
	}
	for _, f := range s.survey.Facts {
		if f.Workload != nil {
			f.Visible = known[f.Workload.UID]
		}
	}
}

// visible asks Kueue, once for each LocalQueue in which a job waits. It is an option of Kueue:
// where it is not served, or not to this user, it is asked no more.
func (s *surveyor) visible(ctx context.Context, known map[types.UID]*Position) {
	answers := map[types.NamespacedName][]visibility.PendingWorkload{}
	for _, f := range s.survey.Facts {
		queue := f.localQueue()
		if queue == nil || !f.waitsForQuota() {
			continue
		}
		key := client.ObjectKeyFromObject(queue)
		items, asked := answers[key]
		if !asked {
			var err error
			if items, err = s.pendingIn(ctx, key); apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
				return
			}
			answers[key] = items
		}
		if mine := find(items, func(p *visibility.PendingWorkload) bool { return p.Name == f.Workload.Name }); mine != nil {
			known[f.Workload.UID] = &Position{Place: int(mine.PositionInClusterQueue) + 1, Source: Visibility}
		}
	}
}

func (s *surveyor) pendingIn(ctx context.Context, key types.NamespacedName) ([]visibility.PendingWorkload, error) {
	var summary visibility.PendingWorkloadsSummary
	of := &visibility.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := s.client.SubResource("pendingworkloads").Get(ctx, of, &summary)
	return summary.Items, err
}

// waitsForQuota reports whether the job's Workload has a place in its queue.
func (f *Facts) waitsForQuota() bool {
	return f.Workload != nil && !finishedWorkload(f.Workload) && !kueuelib.HasQuotaReservation(f.Workload)
}

// positions returns those of all that wait, each with the next one before it.
func positions(c *Cluster) map[types.UID]*Position {
	queues := map[kueue.ClusterQueueReference][]*kueue.Workload{}
	for _, p := range c.Pending() {
		if p.ClusterQueue != "" {
			queues[p.ClusterQueue] = append(queues[p.ClusterQueue], p.Workload)
		}
	}
	all := map[types.UID]*Position{}
	for _, queue := range queues {
		slices.SortFunc(queue, scheduler.CompareInQueue)
		for n, wl := range queue {
			all[wl.UID] = &Position{Place: n + 1, Pending: len(queue), Source: Computed}
			if n > 0 {
				all[wl.UID].Ahead = []string{c.jobOf(string(queue[n-1].UID))}
			}
		}
	}
	return all
}

// Queues returns the LocalQueue that the job asks for and the ClusterQueue behind it; empty
// where there is none, or none to be seen.
func (f *Facts) Queues() (local, cluster string) {
	return f.queueName(), string(f.clusterQueueName())
}

// Place returns the job's place among those that wait in its ClusterQueue; nil for a job that
// does not wait there, and where that cannot be seen.
func (f *Facts) Place() *Position { return f.position() }

// GPUs sums up the GPUs that the PodSets ask for.
func (f *Facts) GPUs() map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for i := range f.PodSets {
		for name, amount := range requestsOf(&f.PodSets[i]) {
			if gpu.IsResource(name) {
				sum[name] += amount
			}
		}
	}
	return sum
}
