// SPDX-License-Identifier: Apache-2.0

// Package queues says which TrainJobs are Kueue's to start, by the rule of its own webhooks, and
// where their LocalQueues lead.
package queues

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Job is what jobframework's validation asks of a TrainJob: the object, its kind, and
// whether it is suspended. All else is for reconciles.
type Job struct {
	jobframework.GenericJob
	TrainJob *trainjob.TrainJob
}

// Object implements jobframework.GenericJob.
func (j Job) Object() client.Object { return j.TrainJob }

// GVK implements jobframework.GenericJob.
func (j Job) GVK() schema.GroupVersionKind { return trainjob.GVK }

// IsSuspended implements jobframework.GenericJob.
func (j Job) IsSuspended() bool { return j.TrainJob.Suspended() }

// Queues say which TrainJobs are Kueue's to start, and where their queues lead.
type Queues struct {
	client client.Client
	// live asks the API server itself.
	live  client.Reader
	kueue *kueueconfig.Follower
}

// New returns the Queues that c reads, under Kueue's settings. Where what c knows is not enough
// for a decision that stands for ever, it asks live.
func New(c client.Client, live client.Reader, kueue *kueueconfig.Follower) *Queues {
	return &Queues{client: c, live: live, kueue: kueue}
}

// Manages reports whether job is Kueue's to start: it is in a namespace that Kueue manages and,
// by the rule of Kueue's own webhooks, has a queue, or jobs without one are managed.
func (q *Queues) Manages(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	queued, err := q.Queued(ctx, job)
	if err != nil || !queued {
		return false, err
	}
	return q.ManagesNamespace(ctx, job.Namespace)
}

// Queued reports whether job has a queue, by the rule of Kueue's own webhooks, or jobs without one are managed.
func (q *Queues) Queued(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	settings := q.kueue.Settings()
	// No kind of owner is Kueue's in this process, and jobframework would read any ReplicaSet that a tenant names.
	alone := &trainjob.TrainJob{ObjectMeta: job.ObjectMeta}
	alone.OwnerReferences = nil
	return jobframework.WorkloadShouldBeSuspended(ctx, alone, q.client,
		settings.ManageJobsWithoutQueueName, settings.NamespaceSelector(), jobframework.WithDeletingObjectTolerance(true))
}

// ManagesNamespace reports whether Kueue looks at the jobs of a namespace, by its managedJobsNamespaceSelector:
// jobs elsewhere are none of its concern, whatever queue they name.
func (q *Queues) ManagesNamespace(ctx context.Context, name string) (bool, error) {
	selector := q.kueue.Settings().NamespaceSelector()
	if selector.Empty() {
		return true, nil
	}
	namespace := &corev1.Namespace{}
	err := q.client.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		// It may have been made right before the job that is asked about.
		err = q.live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	}
	if err != nil {
		return false, fmt.Errorf("reading whether Kueue manages namespace %s: %w", name, err)
	}
	return selector.Matches(labels.Set(namespace.Labels)), nil
}

// LabelledAt asks the API server when the labels of a namespace changed last by which Kueue manages it, see
// Settings.LabelledAt.
func (q *Queues) LabelledAt(ctx context.Context, name string) (time.Time, error) {
	var namespace corev1.Namespace
	if err := q.live.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		return time.Time{}, fmt.Errorf("reading when namespace %s was labelled: %w", name, err)
	}
	return q.kueue.Settings().LabelledAt(&namespace), nil
}

// HasDefault tells jobframework whether a namespace has the LocalQueue
// that jobs without a queue get.
func (q *Queues) HasDefault(ctx context.Context) func(namespace string) bool {
	return func(namespace string) bool {
		key := client.ObjectKey{Namespace: namespace, Name: string(kueueconstants.DefaultLocalQueueName)}
		return q.client.Get(ctx, key, &kueue.LocalQueue{}) == nil
	}
}

// Stopped reports whether an admin has stopped the LocalQueue of job, or the ClusterQueue where it
// leads, as far as they are there.
func (q *Queues) Stopped(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	var local kueue.LocalQueue
	key := client.ObjectKey{Namespace: job.Namespace, Name: string(jobframework.QueueNameForObject(job))}
	if err := q.client.Get(ctx, key, &local); err != nil || stops(local.Spec.StopPolicy) {
		return err == nil, client.IgnoreNotFound(err)
	}
	var cluster kueue.ClusterQueue
	err := q.client.Get(ctx, client.ObjectKey{Name: string(local.Spec.ClusterQueue)}, &cluster)
	return err == nil && stops(cluster.Spec.StopPolicy), client.IgnoreNotFound(err)
}

func stops(policy *kueue.StopPolicy) bool { return ptr.Deref(policy, kueue.None) != kueue.None }

// ErrNoOtherCluster is of a TrainJob that only MultiKueue may run, in a queue without it or beside a Trainer that would run it, too.
var ErrNoOtherCluster = errors.New("no worker cluster may run the TrainJob")

// route is where a LocalQueue leads.
type route struct {
	clusterQueue kueue.ClusterQueueReference
	// multiKueue: an admission check takes the jobs to other clusters.
	multiKueue bool
	// known: the LocalQueue, its ClusterQueue and the checks of that are all there.
	known bool
}

// LeadsToMultiKueue reports whether the jobs of a LocalQueue go to other clusters. A job stays what
// it is created as, and it may be created right after its queue. Jobs without one stay here.
func (q *Queues) LeadsToMultiKueue(ctx context.Context, namespace, queue string) (bool, error) {
	if queue == "" {
		return false, nil
	}
	r, err := routeOf(ctx, q.client, namespace, queue)
	if err == nil && !r.multiKueue && !r.known {
		r, err = routeOf(ctx, q.live, namespace, queue)
	}
	return r.multiKueue, err
}

// Reachable returns ErrNoOtherCluster for a TrainJob that waits for MultiKueue in a queue
// that surely leads to no other cluster: quota there would be for nothing. So it does where the served Trainer
// does not read spec.managedBy, and would run the job here as well.
func (q *Queues) Reachable(ctx context.Context, t *trainjob.TrainJob, served trainjob.TrainerVersion) error {
	if !t.ForMultiKueue() {
		return nil
	}
	if served < trainjob.Trainer23 {
		return fmt.Errorf("%w: spec.managedBy is %s, which Trainer %s does not read: it would run it in this cluster as well, without quota; upgrade Trainer of this cluster to 2.3",
			ErrNoOtherCluster, kueue.MultiKueueControllerName, served)
	}
	queue := string(jobframework.QueueNameForObject(t))
	r, err := routeOf(ctx, q.client, t.Namespace, queue)
	if err == nil && r.known && !r.multiKueue {
		r, err = routeOf(ctx, q.live, t.Namespace, queue)
	}
	if err != nil {
		return fmt.Errorf("reading where LocalQueue %s leads: %w", queue, err)
	}
	if !r.known || r.multiKueue {
		return nil
	}
	return fmt.Errorf("%w: spec.managedBy is %s, and LocalQueue %s leads to ClusterQueue %s, which has no MultiKueue admission check; create the TrainJob without spec.managedBy, or name a queue that has one",
		ErrNoOtherCluster, kueue.MultiKueueControllerName, queue, r.clusterQueue)
}

// ErrOnlyHere is of a TrainJob that no other cluster may run, in a queue that leads to others.
var ErrOnlyHere = errors.New("no other cluster may run the TrainJob")

// Dispatchable returns ErrOnlyHere for a TrainJob of this cluster's own in a LocalQueue that leads to other clusters: MultiKueue
// rejects and deactivates it.
func (q *Queues) Dispatchable(ctx context.Context, t *trainjob.TrainJob, queue string) error {
	if !kueuelib.MultiKueueEnabled() || t.ManagedExternally() {
		return nil
	}
	multi, err := q.LeadsToMultiKueue(ctx, t.Namespace, queue)
	if err != nil {
		return fmt.Errorf("reading where LocalQueue %s leads: %w", queue, err)
	}
	if !multi {
		return nil
	}
	return fmt.Errorf("%w: LocalQueue %s leads to other clusters, and spec.managedBy cannot be changed; create the TrainJob again, in that queue and without spec.managedBy", ErrOnlyHere, queue)
}

// routeOf follows a LocalQueue to the admission checks of its ClusterQueue.
func routeOf(ctx context.Context, c client.Reader, namespace, queue string) (route, error) {
	var lq kueue.LocalQueue
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: queue}, &lq); err != nil {
		return route{}, client.IgnoreNotFound(err)
	}
	if lq.Spec.ClusterQueue == "" {
		// It leads nowhere yet, and a client refuses to ask the API server for an object without a name.
		return route{}, nil
	}
	r := route{clusterQueue: lq.Spec.ClusterQueue, known: true}
	var cq kueue.ClusterQueue
	if err := c.Get(ctx, client.ObjectKey{Name: string(r.clusterQueue)}, &cq); err != nil {
		return route{}, client.IgnoreNotFound(err)
	}
	if cq.Spec.AdmissionChecksStrategy == nil {
		return r, nil
	}
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		var check kueue.AdmissionCheck
		err := c.Get(ctx, client.ObjectKey{Name: string(rule.Name)}, &check)
		if client.IgnoreNotFound(err) != nil {
			return route{}, err
		}
		r.known = r.known && !apierrors.IsNotFound(err)
		r.multiKueue = r.multiKueue || check.Spec.ControllerName == kueue.MultiKueueControllerName
	}
	return r, nil
}

// ExposesMetrics reports whether Kueue's configuration wants metrics of a Workload's LocalQueue.
func (q *Queues) ExposesMetrics(ctx context.Context, wl *kueue.Workload) (bool, error) {
	config := kueuelib.NewLocalQueueMetrics(q.kueue.Settings().LocalQueueMetrics)
	if !config.IsEnabled() {
		return false, nil
	}
	var queue kueue.LocalQueue
	key := client.ObjectKey{Namespace: wl.Namespace, Name: string(wl.Spec.QueueName)}
	if err := q.client.Get(ctx, key, &queue); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading LocalQueue %s for its metrics: %w", key, err)
	} else if err != nil {
		return false, nil
	}
	return config.ShouldExposeLocalQueueMetrics(queue.Labels), nil
}
