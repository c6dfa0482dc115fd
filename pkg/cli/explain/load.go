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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Reader reads the facts of TrainJobs. What the user may not see is left out and named in
// the inventory's Unseen.
type Reader struct {
	client   client.Client
	cluster  *Cluster
	served   trainjob.TrainerVersion
	runtimes *trainjob.Runtimes
	renderer *trainjob.Renderer

	// manager is the manager's configuration; managerUnseen is set where the user may not read it.
	manager       *config.Configuration
	managerUnseen bool
	// kueue is its configuration; kueueUnseen is set where the user may not read it.
	kueue       *configapi.Configuration
	kueueUnseen bool
	classes     *kueue.WorkloadPriorityClassList

	// workload is the name of the one that MultiKueue made for a job, before the job; empty for
	// jobs that have their own.
	workload string
}

// NewReader reads what all TrainJobs have in common. A process makes one Renderer, and
// hands it in here.
func NewReader(ctx context.Context, c client.Client, renderer *trainjob.Renderer) (*Reader, error) {
	i, err := inventory.Load(ctx, c)
	if err != nil {
		return nil, err
	}
	served, err := served(ctx, c, i)
	if err != nil {
		return nil, err
	}
	r := &Reader{client: c, served: served, renderer: renderer}
	if r.cluster, err = NewCluster(ctx, i); err != nil {
		return nil, err
	}
	if r.manager, r.managerUnseen, err = configurationOf(ctx, c, cluster.ManagerConfiguration); err != nil {
		return nil, err
	}
	if r.kueue, r.kueueUnseen, err = configurationOf(ctx, c, cluster.KueueConfiguration); err != nil {
		return nil, err
	}
	if r.classes, err = readClasses(ctx, c); err != nil {
		return nil, err
	}
	r.runtimes = r.runtimesFrom(c, c)
	return r, nil
}

// configurationOf returns the configuration that read reads, or that the user may not read it.
func configurationOf[T any](ctx context.Context, c client.Client, read func(context.Context, client.Reader) (*T, error)) (cfg *T, unseen bool, err error) {
	cfg, err = read(ctx, c)
	if apierrors.IsForbidden(err) {
		return nil, true, nil
	}
	return cfg, false, err
}

// served returns the generation of Trainer; the newest where the user may not read its CRD,
// which is noted in the inventory.
func served(ctx context.Context, c client.Client, i *inventory.Inventory) (trainjob.TrainerVersion, error) {
	version, err := cluster.Generation(ctx, c)
	if apierrors.IsForbidden(err) {
		i.Unseen = append(i.Unseen, inventory.Unseen{Kind: "customresourcedefinitions.apiextensions.k8s.io", Err: err})
		return trainjob.Trainer23, nil
	}
	return version, err
}

func (r *Reader) runtimesFrom(cached, live client.Reader) *trainjob.Runtimes {
	return trainjob.NewRuntimes(cached, live).As(r.served)
}

// Facts reads all that there is about a TrainJob of the cluster.
func (r *Reader) Facts(ctx context.Context, job *trainjob.TrainJob) (*Facts, error) {
	f, err := r.facts(ctx, job)
	if err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, *Facts) error{r.readWorkload, r.readChildren, r.readWarnings, r.readPodEvents} {
		if err := read(ctx, f); err != nil {
			return nil, err
		}
	}
	r.describe(ctx, f, r.runtimes)
	f.Visible = r.visible(ctx, f)
	return f, nil
}

// facts begins with what a job has in common with others of its namespace.
func (r *Reader) facts(ctx context.Context, job *trainjob.TrainJob) (*Facts, error) {
	cluster, err := r.inNamespace(ctx, job.Namespace)
	if err != nil {
		return nil, err
	}
	f := &Facts{Now: time.Now(), Field: patch.Of(r.served), Job: job, Manager: r.manager, Kueue: r.kueue, KueueUnseen: r.kueueUnseen, Classes: r.classes, Cluster: cluster}
	var namespace corev1.Namespace
	err = r.client.Get(ctx, client.ObjectKey{Name: job.Namespace}, &namespace)
	if err == nil {
		f.Namespace = &namespace
	}
	return f, ignoreUnseen(err)
}

// inNamespace adds the LocalQueues of one namespace for users who may not list all.
func (r *Reader) inNamespace(ctx context.Context, namespace string) (*Cluster, error) {
	if r.cluster.Saw(localQueues) {
		return r.cluster, nil
	}
	var list kueue.LocalQueueList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return r.cluster, ignoreUnseen(err)
	}
	i := *r.cluster.Inventory
	i.LocalQueues = list.Items
	i.Unseen = slices.DeleteFunc(slices.Clone(i.Unseen), func(u inventory.Unseen) bool { return u.Kind == localQueues })
	return NewCluster(ctx, &i)
}

// ignoreUnseen drops the errors of what is not there or not to be seen.
func ignoreUnseen(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (r *Reader) readWorkload(ctx context.Context, f *Facts) error {
	var list kueue.WorkloadList
	err := r.client.List(ctx, &list, client.InNamespace(f.Job.Namespace))
	if apierrors.IsForbidden(err) {
		f.WorkloadUnseen = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing the Workloads of namespace %s: %w", f.Job.Namespace, err)
	}
	f.Workload = find(list.Items, func(wl *kueue.Workload) bool { return wl.Name == r.workload || metav1.IsControlledBy(wl, f.Job) })
	if f.Workload != nil {
		f.PodSets = f.Workload.Spec.PodSets
	}
	return nil
}

// readChildren reads what Trainer and JobSet made of the job.
func (r *Reader) readChildren(ctx context.Context, f *Facts) error {
	var js jobsetapi.JobSet
	err := r.client.Get(ctx, client.ObjectKeyFromObject(f.Job), &js)
	if err != nil || !metav1.IsControlledBy(&js, f.Job) {
		return ignoreUnseen(err)
	}
	f.JobSet = &js
	of := []client.ListOption{client.InNamespace(js.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: js.Name}}
	var jobs batchv1.JobList
	if err := r.client.List(ctx, &jobs, of...); ignoreUnseen(err) != nil {
		return fmt.Errorf("listing the Jobs of JobSet %s: %w", js.Name, err)
	}
	var pods corev1.PodList
	err = r.client.List(ctx, &pods, of...)
	if f.PodsUnseen = apierrors.IsForbidden(err); err != nil && !f.PodsUnseen {
		return fmt.Errorf("listing the pods of JobSet %s: %w", js.Name, err)
	}
	f.Jobs, f.Pods = jobs.Items, pods.Items
	slices.SortFunc(f.Jobs, func(a, b batchv1.Job) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// readWarnings reads the warning events about the job and what was made of it.
func (r *Reader) readWarnings(ctx context.Context, f *Facts) error {
	of := []types.UID{f.Job.UID}
	if f.JobSet != nil {
		of = append(of, f.JobSet.UID)
	}
	for i := range f.Jobs {
		of = append(of, f.Jobs[i].UID)
	}
	var list corev1.EventList
	err := r.client.List(ctx, &list, client.InNamespace(f.Job.Namespace), client.MatchingFields{"type": corev1.EventTypeWarning})
	if f.WarningsUnseen = apierrors.IsForbidden(err); err != nil && !f.WarningsUnseen {
		return fmt.Errorf("listing the events of namespace %s: %w", f.Job.Namespace, err)
	}
	f.Warnings = slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return !slices.Contains(of, e.InvolvedObject.UID) })
	slices.SortStableFunc(f.Warnings, latestFirst)
	return nil
}

// readPodEvents reads what kubelets say of the job's pods, where they have yet to make containers.
func (r *Reader) readPodEvents(ctx context.Context, f *Facts) error {
	if f.WarningsUnseen || !slices.ContainsFunc(f.Pods, unmadePod) {
		return nil
	}
	for _, fields := range aboutPods {
		var list corev1.EventList
		if err := r.client.List(ctx, &list, client.InNamespace(f.Job.Namespace), fields); err != nil {
			return fmt.Errorf("listing the events of pods of namespace %s: %w", f.Job.Namespace, err)
		}
		f.PodEvents = append(f.PodEvents, list.Items...)
	}
	slices.SortStableFunc(f.PodEvents, latestFirst)
	return nil
}

// aboutPods are the events that tell why containers do not run yet.
var aboutPods = []client.MatchingFields{
	{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning},
	{"involvedObject.kind": "Pod", "reason": ImagePulled},
}

func latestFirst(a, b corev1.Event) int { return eventTime(&b).Compare(eventTime(&a)) }

// eventTime is when an event was seen last, in whatever field its writer noted it.
func eventTime(e *corev1.Event) time.Time {
	last := e.LastTimestamp.Time
	if e.Series != nil {
		last = e.Series.LastObservedTime.Time
	}
	for _, t := range []time.Time{e.EventTime.Time, e.CreationTimestamp.Time} {
		if last.IsZero() {
			last = t
		}
	}
	return last
}

// describe renders the job: its PodSets, where no Workload has them, and who set what. What
// stands against it is part of the facts.
func (r *Reader) describe(ctx context.Context, f *Facts, runtimes *trainjob.Runtimes) {
	runtime, err := runtimes.For(ctx, f.Job)
	if err != nil {
		f.Undescribed = err
		return
	}
	if f.PodSets == nil {
		if f.PodSets, err = podset.Describe(ctx, r.renderer, f.Job, runtime, f.Field); err != nil {
			f.Undescribed = err
			return
		}
		podset.AddTolerations(f.PodSets, cluster.Rules(r.manager))
		f.RulesUnseen = r.managerUnseen
	}
	patches, err := f.Field.All(&f.Job.Spec)
	if err != nil {
		f.Undescribed = err
		return
	}
	js, err := r.renderer.Render(ctx, f.Job, runtime, patches)
	if err != nil {
		f.Undescribed = err
		return
	}
	f.Fields, f.Undescribed = provenance.Explain(provenance.Input{Runtime: runtime, Job: f.Job, Overrides: f.Job.Spec.PodTemplateOverrides}, js)
}

// visible asks Kueue itself for the position. Its API is an option: no answer is as good
// as none.
func (r *Reader) visible(ctx context.Context, f *Facts) *Position {
	queue := f.localQueue()
	if queue == nil || f.Workload == nil {
		return nil
	}
	var summary visibility.PendingWorkloadsSummary
	of := &visibility.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: queue.Namespace, Name: queue.Name}}
	if err := r.client.SubResource("pendingworkloads").Get(ctx, of, &summary); err != nil {
		return nil
	}
	mine := find(summary.Items, func(p *visibility.PendingWorkload) bool { return p.Name == f.Workload.Name })
	if mine == nil {
		return nil
	}
	position := &Position{Place: int(mine.PositionInClusterQueue) + 1, Source: Visibility}
	if cq := f.clusterQueue(); cq != nil {
		position.Pending = int(cq.Status.PendingWorkloads)
	}
	return position
}
