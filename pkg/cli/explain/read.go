// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// around reads what all TrainJobs have around them.
func around(ctx context.Context, c client.Client) (*Snapshot, error) {
	s := &Snapshot{Around: Around{Now: time.Now()}}
	i, err := inventory.LoadForQuota(ctx, c)
	if err != nil {
		return nil, err
	}
	s.served, err = cluster.Generation(ctx, c)
	switch {
	case apierrors.IsForbidden(err):
		s.served = trainjob.Trainer23 // The newest is the best guess.
		i.Unseen = append(i.Unseen, inventory.Unseen{Kind: "customresourcedefinitions.apiextensions.k8s.io"})
	case err != nil:
		return nil, err
	}
	s.Field = patch.Of(s.served)
	if s.Cluster, err = NewCluster(ctx, i); err != nil {
		return nil, err
	}
	s.Manager, err = cluster.ManagerConfiguration(ctx, c)
	if s.ManagerUnseen = apierrors.IsForbidden(err); err != nil && !s.ManagerUnseen {
		return nil, err
	}
	s.Kueue, err = cluster.KueueConfiguration(ctx, c)
	denied := apierrors.IsForbidden(err)
	if err != nil && !denied {
		return nil, err
	}
	if s.Kueue == nil {
		at, err := cluster.Placed(ctx, c, cluster.Kueue)
		if err != nil {
			return nil, err
		}
		s.KueueUnseen = fmt.Sprintf("the configuration of Kueue: namespace %s has no ConfigMap %s that can be read", at.Namespace, at.ConfigMap)
		if denied {
			s.KueueUnseen = "configmaps of namespace " + at.Namespace
		}
	}
	s.Classes = &kueue.WorkloadPriorityClassList{}
	err = c.List(ctx, s.Classes)
	switch {
	case apierrors.IsForbidden(err):
		s.Classes = nil
	case err != nil:
		return nil, fmt.Errorf("listing WorkloadPriorityClasses: %w", err)
	}
	return s, nil
}

// ReadAll reads the facts of TrainJobs of one namespace, or of all where that is empty; options pick them. What it takes
// a rendering to know is left out: owners of fields, and the PodSets of a job without a Workload.
//
// What was made of jobs is read before the jobs, and Workloads last: pods of a job that is suspended are left of a run before
// then, and not those of its start in between.
func ReadAll(ctx context.Context, c client.Client, namespace string, options ...client.ListOption) (*Snapshot, error) {
	made := &reading{Snapshot: &Snapshot{}, client: c, namespace: namespace}
	made.children(ctx)
	jobs, err := cluster.TrainJobs(ctx, c, namespace, options...)
	if err != nil {
		return nil, err
	}
	s, err := around(ctx, c)
	if err != nil {
		return nil, err
	}
	s.JobSets, s.Jobs, s.Pods, s.Unseen = made.JobSets, made.Jobs, made.Pods, made.Unseen
	rest := &reading{Snapshot: s, client: c, namespace: namespace, err: made.err}
	rest.queues(ctx)
	rest.events(ctx)
	rest.namespaces(ctx)
	if rest.err != nil {
		return nil, rest.err
	}
	s.Cluster.asked = sets.New[client.ObjectKey]()
	for n := range jobs {
		f := s.Of(&jobs[n])
		s.Facts = append(s.Facts, f)
		if f.waitsForQuota() {
			s.Cluster.asked.Insert(client.ObjectKeyFromObject(f.Workload))
		}
	}
	s.places(ctx, c)
	return s, nil
}

// ReadMade reads what was made of the TrainJob of a name, and all events of its namespace, but nothing of what it
// competes for.
func ReadMade(ctx context.Context, c client.Client, namespace, name string) (*Snapshot, error) {
	r := &reading{Snapshot: &Snapshot{Around: Around{Now: time.Now()}}, client: c, namespace: namespace, name: name}
	var found kueue.WorkloadList
	r.list(ctx, workloads, &found)
	r.children(ctx)
	var events corev1.EventList
	r.list(ctx, "events", &events)
	r.Workloads, r.Events = found.Items, events.Items
	return r.Snapshot, r.err
}

// reading is one of what there is of the jobs: those of a namespace, of all where that is empty, or the one
// of a name.
type reading struct {
	*Snapshot
	client          client.Client
	namespace, name string
	err             error
}

// readOne reads what there is of one job, and the job itself and its Workloads once more after that: pods that are there since
// it was resumed are not left of a run before, and a job that was resumed has a Workload.
func (s *Snapshot) readOne(ctx context.Context, c client.Client, job *trainjob.TrainJob) (*trainjob.TrainJob, error) {
	r := &reading{Snapshot: s, client: c, namespace: job.Namespace, name: job.Name}
	r.queues(ctx)
	r.children(ctx)
	r.events(ctx)
	r.namespaces(ctx)
	if r.err != nil {
		return nil, r.err
	}
	now := &trainjob.TrainJob{}
	switch err := c.Get(ctx, client.ObjectKeyFromObject(job), now); {
	case apierrors.IsNotFound(err) || err == nil && now.UID != job.UID:
		return job, nil
	case err != nil:
		return nil, fmt.Errorf("reading TrainJob %s again: %w", client.ObjectKeyFromObject(job), err)
	}
	if !slices.ContainsFunc(s.Workloads, func(wl kueue.Workload) bool { return metav1.IsControlledBy(&wl, now) }) {
		var made kueue.WorkloadList
		r.list(ctx, workloads, &made)
		s.Workloads = made.Items
		return now, r.err
	}
	s.Workloads = slices.Clone(s.Workloads)
	for i := range s.Workloads {
		wl, fresh := &s.Workloads[i], kueue.Workload{}
		if !metav1.IsControlledBy(wl, now) {
			continue
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(wl), &fresh); err == nil && fresh.UID == wl.UID {
			*wl = fresh
		} else if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("reading Workload %s again: %w", client.ObjectKeyFromObject(wl), err)
		}
	}
	return now, nil
}

// list reads a kind in the namespaces of the jobs; a kind that may not be listed is noted.
func (r *reading) list(ctx context.Context, kind string, into client.ObjectList, options ...client.ListOption) {
	if r.err != nil || !r.Saw(kind) {
		return
	}
	switch err := r.client.List(ctx, into, append(options, client.InNamespace(r.namespace))...); {
	case apierrors.IsForbidden(err):
		r.Unseen = append(r.Unseen, kind)
	case err != nil:
		r.err = fmt.Errorf("listing %s: %w", kind, err)
	}
}

// queues adds the Workloads and LocalQueues of the namespace for who may not list all. LocalQueues of others
// decide nothing; their Workloads do, so that these stay unseen in the inventory.
func (r *reading) queues(ctx context.Context) {
	found := kueue.WorkloadList{Items: r.Cluster.Workloads}
	if !r.Cluster.Saw(workloads) {
		r.list(ctx, workloads, &found)
	}
	r.Workloads = found.Items
	r.localQueues(ctx)
}

func (r *reading) localQueues(ctx context.Context) {
	if r.Cluster.Saw(localQueues) {
		return
	}
	var found kueue.LocalQueueList
	r.list(ctx, localQueues, &found)
	if r.err != nil || !r.Saw(localQueues) {
		return
	}
	i := *r.Cluster.Inventory
	i.LocalQueues = found.Items
	i.Unseen = slices.DeleteFunc(slices.Clone(i.Unseen), func(u inventory.Unseen) bool { return u.Kind == localQueues })
	r.Cluster, r.err = NewCluster(ctx, &i)
}

// children reads what Trainer and JobSet made: of one job by its label, never all pods of a cluster.
func (r *reading) children(ctx context.Context) {
	var sets jobsetapi.JobSetList
	var of client.ListOption = client.HasLabels{jobsetapi.JobSetNameKey}
	if r.name == "" {
		r.list(ctx, "jobsets.jobset.x-k8s.io", &sets)
	} else {
		of = client.MatchingLabels{jobsetapi.JobSetNameKey: r.name}
		r.list(ctx, "jobsets.jobset.x-k8s.io", &sets, client.MatchingFields{metav1.ObjectNameField: r.name})
	}
	var jobs batchv1.JobList
	r.list(ctx, "jobs.batch", &jobs, of)
	var list corev1.PodList
	r.list(ctx, pods, &list, of)
	r.JobSets, r.Jobs, r.Pods = sets.Items, jobs.Items, list.Items
	slices.SortFunc(r.Jobs, func(a, b batchv1.Job) int { return cmp.Compare(a.Name, b.Name) })
}

// events reads warnings and, where a kubelet has yet to make containers, what is said of pods. Of many jobs
// those warnings do that are about the jobs themselves.
func (r *reading) events(ctx context.Context) {
	const kind, of = "involvedObject.kind", "type"
	wanted := []client.MatchingFields{{of: corev1.EventTypeWarning}}
	if r.name == "" {
		wanted = []client.MatchingFields{{kind: trainjob.GVK.Kind, of: corev1.EventTypeWarning}}
	}
	if slices.ContainsFunc(r.Pods, unmadePod) {
		wanted = append(wanted, client.MatchingFields{kind: "Pod", "reason": ImagePulled})
		if r.name == "" {
			wanted = append(wanted, client.MatchingFields{kind: "Pod", of: corev1.EventTypeWarning})
		}
	}
	for _, fields := range wanted {
		var events corev1.EventList
		r.list(ctx, "events", &events, fields)
		r.Events = append(r.Events, events.Items...)
	}
}

// namespaces are read for their labels: of those that are not there, or not to be seen, nothing is said of selectors.
func (r *reading) namespaces(ctx context.Context) {
	if r.err != nil {
		return
	}
	var found corev1.NamespaceList
	var err error
	if r.namespace == "" {
		err = r.client.List(ctx, &found)
	} else {
		found.Items = make([]corev1.Namespace, 1)
		err = r.client.Get(ctx, client.ObjectKey{Name: r.namespace}, &found.Items[0])
	}
	switch {
	case err == nil:
		r.Namespaces = found.Items
	case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
		r.err = err
	}
}
