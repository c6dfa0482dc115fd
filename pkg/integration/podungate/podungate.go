// SPDX-License-Identifier: Apache-2.0

// Package podungate frees pods of admitted TrainJobs that were made with the admission gate.
package podungate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/watches"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Controller frees pods of admitted TrainJobs that came to be with the admission gate,
// because JobSet or Trainer acted on the view of a moment before. It sees marked
// pods only; in a quiet cluster there are none.
type Controller struct {
	Client    client.Client
	InTree    *peers.InTree
	Trainer   *peers.Trainer
	Describer *podsets.Describer
	Recorder  *jobevents.Recorder
	Metrics   *metrics.Recorder
}

// SetupWithManager adds the controller to mgr.
func (u *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("ungater").
		WithOptions(controller.Options{RateLimiter: watches.RetryFailed(), LogConstructor: logging.ForController(mgr.GetLogger(), "ungater", "pod")}).
		For(&corev1.Pod{}).
		Watches(&trainjob.TrainJob{}, handler.EnqueueRequestsFromMapFunc(u.podsOf)).
		Watches(&kueue.Workload{}, handler.EnqueueRequestsFromMapFunc(u.podsOf)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(u.podsOf)).
		Watches(&jobsetapi.JobSet{}, handler.EnqueueRequestsFromMapFunc(u.podsOf)).
		Complete(u)
}

// retryUnansweredAfter is how long a gated pod waits for the answer who looks after
// TrainJobs: mostly it comes right after the start.
const retryUnansweredAfter = time.Second

// retryUnknownAfter is how long a gated pod waits for a generation of Trainer that we know.
const retryUnknownAfter = 5 * time.Second

// Reconcile implements reconcile.Reconciler, for one gated pod.
func (u *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if u.InTree.Unknown() {
		return ctrl.Result{RequeueAfter: retryUnansweredAfter}, nil
	}
	version, err := u.Trainer.Served()
	if err != nil {
		return ctrl.Result{RequeueAfter: retryUnknownAfter}, nil
	}
	var pod corev1.Pod
	if err := u.Client.Get(ctx, req.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pod.DeletionTimestamp.IsZero() || !patch.HasAdmissionGate(pod.Spec.SchedulingGates) {
		return ctrl.Result{}, nil
	}
	job, view, err := u.admittedJob(ctx, &pod)
	if err != nil || job == nil {
		return ctrl.Result{}, err
	}
	made := madeFrom(view, job, &pod)
	if made == nil {
		return ctrl.Result{}, nil
	}
	placed, err := template(ctx, u.Describer.For(version), job, &pod)
	if err != nil || placed == nil {
		return ctrl.Result{}, err
	}
	err = u.free(ctx, job, &pod, made, placed)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// admittedJob returns the TrainJob that the pod says it belongs to, if that may run now, and what there is of it.
func (u *Controller) admittedJob(ctx context.Context, pod *corev1.Pod) (*trainjob.TrainJob, state.View, error) {
	// Trainer names the JobSet as the TrainJob.
	key := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[jobsetapi.JobSetNameKey]}
	if key.Name == "" {
		return nil, state.View{}, nil
	}
	view, err := state.Observe(ctx, u.Client, key)
	if err != nil {
		return nil, view, err
	}
	job := &trainjob.TrainJob{}
	if err := u.Client.Get(ctx, key, job); err != nil {
		return nil, view, client.IgnoreNotFound(err)
	}
	if wl := view.HoldingQuota(job); job.Suspended() || wl == nil || !state.MayRun(wl) {
		return nil, view, nil
	}
	return job, view, nil
}

// template returns what pods of the pod's replicated job look like under our part, or
// nil while that is still at the gate in our view, or is not there.
func template(ctx context.Context, describer *podsets.Describer, job *trainjob.TrainJob, pod *corev1.Pod) (*corev1.PodTemplateSpec, error) {
	if !describer.Field.Has(&job.Spec) {
		return nil, nil
	}
	js, err := describer.Render(ctx, job)
	if err != nil {
		return nil, err
	}
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		template := &rj.Template.Spec.Template
		if rj.Name == pod.Labels[jobsetapi.ReplicatedJobNameKey] && !patch.HasAdmissionGate(template.Spec.SchedulingGates) {
			return template, nil
		}
	}
	return nil, nil
}

// madeFrom returns the pod template of the pod's Job, or nil when that is not there: gone,
// and the pod about to be, or not heard of yet. Nor is it where the Job's JobSet is not that of the TrainJob: labels anybody
// may copy.
func madeFrom(view state.View, job *trainjob.TrainJob, pod *corev1.Pod) *corev1.PodTemplateSpec {
	for _, child := range view.ChildJobsOf(job) {
		if state.IsControlledBy(pod, &child) {
			return &child.Spec.Template
		}
	}
	return nil
}

// free brings the pod to its placement and takes the gate off. Where a gated pod cannot
// be brought to the admission it must not run, and the user is told.
func (u *Controller) free(ctx context.Context, job *trainjob.TrainJob, pod *corev1.Pod, made, template *corev1.PodTemplateSpec) error {
	recorder := u.Recorder.LoggingTo(ctrl.LoggerFrom(ctx).WithValues("trainJob", klog.KObj(job)))
	freed := pod.DeepCopy()
	refused := func(why error) {
		u.Metrics.Ungated(metrics.UngateRefused)
		recorder.Warn(job, jobevents.ReasonUngateRefused, jobevents.ActionUngate, why)
	}
	if err := podset.PlacePod(freed, made, template); err != nil {
		refused(fmt.Errorf("gated pods: %w; delete them, and their Job makes others", err))
		return nil
	}
	err := u.Client.Patch(ctx, freed, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		// The pod changed; its own event brings it here again.
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		// All pods of the job are refused alike, and it is told once.
		refused(errors.New("gated pods: " + strings.ReplaceAll(err.Error(), pod.Name, "…") + "; allow that"))
	case err == nil:
		u.Metrics.Ungated(metrics.UngateFreed)
		recorder.Eventf(job, pod, corev1.EventTypeNormal, jobevents.ReasonUngated, jobevents.ActionUngate,
			"Pod %s was made before its Job took note of the admission; its gate is removed", pod.Name)
	}
	return err
}

// podsOf maps a TrainJob, its JobSet, its Workload or a child Job to the gated pods: they are looked at again when the TrainJob
// is admitted, and a pod can be heard of before the Job that made it. Trainer names the JobSet as the TrainJob.
func (u *Controller) podsOf(ctx context.Context, obj client.Object) []reconcile.Request {
	jobSet := obj.GetName()
	switch obj.(type) {
	case *kueue.Workload:
		owner := state.ControllerOfKind(obj, trainjob.GVK)
		if owner == nil {
			return nil
		}
		jobSet = owner.Name
	case *batchv1.Job:
		jobSet = obj.GetLabels()[jobsetapi.JobSetNameKey]
	}
	var pods corev1.PodList
	err := u.Client.List(ctx, &pods, client.InNamespace(obj.GetNamespace()),
		client.MatchingLabels{jobsetapi.JobSetNameKey: jobSet, patch.GatedLabel: "true"})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list gated pods", "trainJob", klog.KRef(obj.GetNamespace(), jobSet))
		return nil
	}
	return kueuelib.Map(pods.Items, func(pod *corev1.Pod) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
	})
}
