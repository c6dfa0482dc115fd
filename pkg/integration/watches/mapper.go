// SPDX-License-Identifier: Apache-2.0

// Package watches says which TrainJobs an event concerns, and how soon each is looked at.
package watches

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Mapper maps what is watched to the TrainJobs that it concerns.
type Mapper struct{ Cached client.Reader }

// TrainJobsOf maps a runtime to the TrainJobs that name it and wait: one that is missing may
// be why they do, and where Trainer freezes none an edit changes what they ask for. What
// runs is what was admitted.
func (m Mapper) TrainJobsOf(ctx context.Context, runtime client.Object) []reconcile.Request {
	return m.those(ctx, runtime, runtime.GetNamespace(), func(job *trainjob.TrainJob) bool { return names(job, runtime) && job.Suspended() })
}

// UnqueuedOf maps a LocalQueue to the TrainJobs of its namespace that have no queue.
func (m Mapper) UnqueuedOf(ctx context.Context, queue client.Object) []reconcile.Request {
	return m.those(ctx, queue, queue.GetNamespace(), func(job *trainjob.TrainJob) bool { return jobframework.QueueNameForObject(job) == "" })
}

// NamersOf maps a priority class to the TrainJobs that name it. One of pods stands in runtimes and patches: any TrainJob that
// waits may name it.
func (m Mapper) NamersOf(ctx context.Context, class client.Object) []reconcile.Request {
	_, ofWorkloads := class.(*kueue.WorkloadPriorityClass)
	return m.those(ctx, class, "", func(job *trainjob.TrainJob) bool {
		return ofWorkloads && jobframework.WorkloadPriorityClassName(job) == class.GetName() || !ofWorkloads && job.Suspended()
	})
}

// those returns the TrainJobs of a namespace, or of all, that are not over and that cause concerns.
func (m Mapper) those(ctx context.Context, cause client.Object, namespace string, concerned func(*trainjob.TrainJob) bool) []reconcile.Request {
	var jobs trainjob.List
	if err := m.Cached.List(ctx, &jobs, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list the TrainJobs of a runtime, priority class, LocalQueue or namespace", "cause", klog.KObj(cause))
		return nil
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		if job := &jobs.Items[i]; concerned(job) && !job.Finished() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}

// TrainJobsIn maps a namespace, which Kueue may manage since this event, or not any more, to its TrainJobs.
func (m Mapper) TrainJobsIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	return m.those(ctx, namespace, namespace.GetName(), func(*trainjob.TrainJob) bool { return true })
}

// Made passes what is made, of all or of some.
func Made(some func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return some == nil || some(e.Object) },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// names reports whether a runtime is the one that job names.
func names(job *trainjob.TrainJob, runtime client.Object) bool {
	ref := job.Spec.RuntimeRef
	kind := trainer.TrainingRuntimeKind
	if runtime.GetNamespace() == "" {
		kind = trainer.ClusterTrainingRuntimeKind
	}
	return ref.Name == runtime.GetName() && ptr.Deref(ref.Kind, trainer.ClusterTrainingRuntimeKind) == kind
}

// TrainJobOfChild maps a child Job to the TrainJob of its JobSet. Most JobSets of a
// cluster may be nobody's, or somebody else's.
func (m Mapper) TrainJobOfChild(ctx context.Context, obj client.Object) []reconcile.Request {
	key := client.ObjectKey{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[jobsetapi.JobSetNameKey]}
	var js jobsetapi.JobSet
	if key.Name == "" || m.Cached.Get(ctx, key, &js) != nil {
		return nil
	}
	owner := state.ControllerOfKind(&js, trainjob.GVK)
	if owner == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: owner.Name}}}
}

// ForgetDeleted forgets TrainJobs as they go. Their name alone, which is all that a
// reconcile has then, does not tell the UID. It filters nothing.
func ForgetDeleted(forget func(types.UID)) predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(deleted event.DeleteEvent) bool {
		forget(deleted.Object.GetUID())
		return true
	}}
}
