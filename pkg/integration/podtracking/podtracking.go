// SPDX-License-Identifier: Apache-2.0

// Package podtracking answers whether pods of a TrainJob are left, which the API server is asked, or
// may still come, because Trainer has in hand what it saw before. A job keeps its quota until then.
package podtracking

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	podconstants "sigs.k8s.io/kueue/pkg/controller/jobs/pod/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// notEnded selects the pods that hold their node, or may get one.
var notEnded = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// jobSetWithin is how long JobSet may take to report that the last pod of a suspended job is gone. Something it cannot
// make keeps it from that for ever, and the API server knows better.
const jobSetWithin = 30 * time.Second

// Pods answers whether there are pods of TrainJobs, or may be.
type Pods struct {
	View state.View
	// Live asks the API server itself.
	Live         client.Reader
	Expectations *jobclient.Expectations
	Field        patch.Field
}

// Left lists the pods of the JobSets of this name that hold a node or may get one. It
// asks the API server, not the statuses of JobSet and Jobs: those go with their objects,
// which a user can delete at any time, while the pods may take as long as their grace
// period.
func (p Pods) Left(ctx context.Context) ([]corev1.Pod, error) {
	name := p.View.Name
	var left []corev1.Pod
	err := state.Each(ctx, p.Live, &corev1.PodList{}, func(pod *corev1.Pod) {
		if !p.ofOtherWorkload(&pod.ObjectMeta) && (holdsNode(pod) || p.Closed() && ofJob(pod) && pod.DeletionTimestamp.IsZero()) {
			left = append(left, slim(pod))
		}
	}, client.InNamespace(name.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: name.Name}, client.MatchingFieldsSelector{Selector: notEnded})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of JobSet %s: %w", name, err)
	}
	if len(left) == 0 {
		return left, nil
	}
	strange, err := p.strangeJobs(ctx, left)
	return slices.DeleteFunc(left, func(pod corev1.Pod) bool { return strange.Has(metav1.GetControllerOf(&pod).UID) }), err
}

// slim returns what is asked of a pod that is left: whoever makes thousands of a megabyte each shall not use up the manager's
// memory.
func slim(pod *corev1.Pod) corev1.Pod {
	out := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{*metav1.GetControllerOf(pod)},
	}}
	for _, key := range []string{jobsetapi.JobSetUIDKey, kueueconstants.PodSetLabel} {
		if value, ok := pod.Labels[key]; ok {
			out.Labels[key] = value
		}
	}
	return out
}

// strangeJobs returns the UIDs of those Jobs of pods that do not count, whatever the labels of the pods
// say. Of a Job that is not known its pods have Kueue's label, which the policies
// let nobody copy: so thousands of pods of somebody's own cost no request. Nor do the Jobs that the caches have.
func (p Pods) strangeJobs(ctx context.Context, pods []corev1.Pod) (sets.Set[types.UID], error) {
	strange, known := sets.New[types.UID](), sets.New[types.UID]()
	for i := range p.View.Jobs {
		child := &p.View.Jobs[i]
		switch {
		case p.counts(child):
			known.Insert(child.UID)
		case !p.mayHaveRun(child):
			known.Insert(child.UID)
			strange.Insert(child.UID)
		}
	}
	for i := range pods {
		owner := metav1.GetControllerOf(&pods[i])
		if known.Has(owner.UID) {
			continue
		}
		known.Insert(owner.UID)
		if pods[i].Labels[kueueconstants.PodSetLabel] == "" {
			strange.Insert(owner.UID)
			continue
		}
		var child batchv1.Job
		err := p.Live.Get(ctx, client.ObjectKey{Namespace: p.View.Name.Namespace, Name: owner.Name}, &child)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Job %s of pod %s: %w", owner.Name, client.ObjectKeyFromObject(&pods[i]), err)
		}
		if child.UID == owner.UID && !p.counts(&child) {
			strange.Insert(owner.UID)
		}
	}
	return strange, nil
}

// holdsNode reports whether a pod of a Job that has not ended has a node, or may be bound
// to one at any moment. What Job it is of does not count: that may be gone. Nor does a gate but
// ours, which nobody else may take off; and nobody binds a pod that is deleted. Anybody may name a Job as the owner of
// a pod, but neither copy the label with the Job's UID, which the API server puts into every Job, nor Kueue's.
func holdsNode(pod *corev1.Pod) bool {
	return ofJob(pod) && (pod.Spec.NodeName != "" || pod.DeletionTimestamp.IsZero() && !patch.HasAdmissionGate(pod.Spec.SchedulingGates))
}

func ofJob(pod *corev1.Pod) bool {
	owner := state.ControllerOfKind(pod, state.JobKind)
	return owner != nil && (pod.Labels[batchv1.ControllerUidLabel] == string(owner.UID) || pod.Labels[kueueconstants.PodSetLabel] != "")
}

// ofOtherWorkload reports whether Kueue admitted pods, by the metadata of these or of their template, by a Workload that no
// TrainJob of this name has: it gives its label to all pods that queue, whoever makes them, and with it this annotation,
// which the policies let nobody change. What a Workload that is gone was for is told by its name, unless that is a group's
// of pods, which people choose.
func (p Pods) ofOtherWorkload(meta *metav1.ObjectMeta) bool {
	by := meta.Annotations[kueue.WorkloadAnnotation]
	if by == "" || meta.Labels[kueueconstants.PodSetLabel] == "" || slices.ContainsFunc(p.View.Workloads, func(wl *kueue.Workload) bool { return wl.Name == by }) {
		return false
	}
	return !strings.HasPrefix(by, strings.ToLower(trainjob.GVK.Kind)+"-") || meta.Labels[podconstants.GroupNameLabel] != ""
}

// Jobs lists the Jobs of a TrainJob's JobSets, by the name of these.
func (p Pods) Jobs() []batchv1.Job {
	return slices.DeleteFunc(slices.Clone(p.View.Jobs), func(child batchv1.Job) bool { return !p.counts(&child) })
}

// counts reports whether a Job is of a JobSet of this name, whichever of them made it: one
// that was deleted leaves its Jobs to the garbage collector, and these have Kueue's label on their pods where
// a TrainJob ran. A JobSet that no TrainJob controls is somebody's own, and so are its Jobs.
func (p Pods) counts(child *batchv1.Job) bool {
	js, owner := p.View.JobSet, state.ControllerOfKind(child, state.JobSetKind)
	if owner == nil || owner.Name != p.View.Name.Name {
		return false
	}
	if js == nil || js.UID != owner.UID {
		return child.Spec.Template.Labels[kueueconstants.PodSetLabel] != "" && !p.ofOtherWorkload(&child.Spec.Template.ObjectMeta)
	}
	return state.ControllerOfKind(js, trainjob.GVK) != nil
}

// mayHaveRun reports whether a Job is of a JobSet of this name that the caches do not have, and so perhaps of a TrainJob's: what
// they have of the Job may be from before its start.
func (p Pods) mayHaveRun(child *batchv1.Job) bool {
	owner := state.ControllerOfKind(child, state.JobSetKind)
	return owner != nil && owner.Name == p.View.Name.Name && (p.View.JobSet == nil || p.View.JobSet.UID != owner.UID)
}

// Closed reports whether nobody can make a pod in the namespace any more: it is being deleted, for so long that every API
// server knows. The Job controller, which is refused there again and again, may be late to say that a Job is suspended. Pods
// behind our gate count until they are deleted then: the gate may be on its way off.
func (p Pods) Closed() bool {
	return !p.View.NamespaceDeleted.IsZero() && p.View.At.Sub(p.View.NamespaceDeleted) > 2*ResumeGrace
}

// AnyLeft reports whether a pod of the JobSets of this name may be there: by what the Jobs
// say, which is cheap, and where they say no, by the API server.
func (p Pods) AnyLeft(ctx context.Context) (bool, error) {
	if !p.Closed() && slices.ContainsFunc(p.Jobs(), state.HasPods) {
		return true, nil
	}
	pods, err := p.Left(ctx)
	return len(pods) > 0, err
}

// Active reports whether a pod of job is there, terminating ones included, or may
// still come because some controller has not taken note of the suspension. It asks the API server
// where JobSet has not said for long that the last pod is gone.
func (p Pods) Active(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	if p.Closed() {
		return p.AnyLeft(ctx)
	}
	if slices.ContainsFunc(p.Jobs(), state.HasPods) {
		return true, nil
	}
	js := p.View.JobSetOf(job)
	switch {
	case !job.Finished() && p.MayStillResume(job, js) > 0:
		return true, nil
	case job.Finished() && (js == nil || js.Status.TerminalState != "" || !js.DeletionTimestamp.IsZero()):
		return false, nil
	case js != nil && !ptr.Deref(js.Spec.Suspend, false):
		// Of a job that has ended, another one may be made since, whose Jobs may have yet to come.
		return true, nil
	}
	if js == nil || !state.SaysActive(js) && !p.mayMakeJobs(job, js) {
		return false, nil
	}
	if stopped := apimeta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobSuspended); stopped == nil ||
		stopped.Status != metav1.ConditionTrue || time.Since(stopped.LastTransitionTime.Time) < jobSetWithin {
		return true, nil
	}
	left, err := p.Left(ctx)
	return len(left) > 0, err
}

// mayMakeJobs reports whether JobSet may have a Job in hand that it makes for a JobSet which ran when it looked: while it
// restarts one, it counts no Job. Of one that it never saw suspended it says nothing; that of a job at the gate did not run.
func (p Pods) mayMakeJobs(job *trainjob.TrainJob, js *jobsetapi.JobSet) bool {
	if !js.DeletionTimestamp.IsZero() || js.Status.TerminalState != "" {
		return false
	}
	suspended := apimeta.FindStatusCondition(js.Status.Conditions, string(jobsetapi.JobSetSuspended))
	return suspended == nil && !p.Field.HoldsGate(&job.Spec) || suspended != nil && suspended.Status == metav1.ConditionFalse
}

// ResumeGrace is how long Trainer, JobSet and the Job controller may be busy with what they saw of a job before.
const ResumeGrace = 5 * time.Second

// resumeGrace returns how long Trainer may still resume a suspended job because it saw a start
// that was taken back. A leader before this one may have started it too, until this one
// began to lead, but not later than our entry was brought to the gate: a start may leave another as it is.
func (p Pods) resumeGrace(job *trainjob.TrainJob) time.Duration {
	stopped, ok := p.Expectations.StoppedBeforeResume(job)
	if !ok && p.Field.Has(&job.Spec) {
		stopped = p.Expectations.LedSince()
		if written := p.Field.Time(&job.Spec); p.Field.HoldsGate(&job.Spec) && !written.IsZero() && written.Before(stopped) {
			stopped = written
		}
	}
	return max(0, stopped.Add(ResumeGrace).Sub(p.View.At))
}

// NoteResumed takes note of a JobSet that runs and has a child Job that does, by the word of the Job controller:
// before that, a pod may be under way which nobody counts yet.
func (p Pods) NoteResumed(job *trainjob.TrainJob) {
	js := p.View.JobSetOf(job)
	if js != nil && !ptr.Deref(js.Spec.Suspend, false) && slices.ContainsFunc(p.View.ChildJobsOf(job), state.SeenResumed) {
		p.Expectations.SawResumed(job)
	}
}

// MayStillResume returns how long Trainer may still resume a job that was stopped, because it
// began to before: a JobSet that ran, until it has the gate, which is only ever written to a
// suspended job; one that was not seen to run, or is not there, for a while. Trainer before
// 2.3 cannot bring the gate there when the runtime was edited, so that time is limited too.
func (p Pods) MayStillResume(job *trainjob.TrainJob, js *jobsetapi.JobSet) time.Duration {
	if !job.Suspended() || job.ManagedExternally() {
		return 0
	}
	if js == nil && p.Field.Has(&job.Spec) && !p.Field.HoldsGate(&job.Spec) {
		// Somebody deleted it while it ran, and Trainer makes another of what it saw before the stop. The policies let no
		// tenant change the spec of a job that stops, so this wait ends.
		return max(p.resumeGrace(job), p.Expectations.ChangedBy(job).Add(ResumeGrace).Sub(p.View.At))
	}
	if js == nil || !state.LacksGate(js, job, p.Field) {
		return p.resumeGrace(job)
	}
	// Trainer's webhook stamped the entry when the gate was written, by its own clock, which may be behind.
	written := slices.MaxFunc([]time.Time{p.Field.Time(&job.Spec), p.Expectations.WroteBy(job)}, time.Time.Compare)
	return min(ResumeGrace, max(0, written.Add(ResumeGrace).Sub(p.View.At)))
}

// AwaitLast returns when to look again for the last pod of a job that stops since a time, 0 when none is left and none comes, and
// whether one is left.
func (p Pods) AwaitLast(ctx context.Context, job *trainjob.TrainJob, since time.Time) (wait time.Duration, left bool, err error) {
	if left, err = p.AnyLeft(ctx); err != nil {
		return 0, false, err
	}
	if left {
		return RecheckIn(since), true, nil
	}
	return p.MayRunYet(job), false, nil
}

// MayRunYet returns how long the JobSet of a job that is deleted, and has quota, may still get pods: until the garbage collector
// has deleted it, where it is resumed, or Trainer may have it in hand to resume it. Kueue's webhook refuses
// pods of a TrainJob that is gone, but not when there is another one of its name.
func (p Pods) MayRunYet(job *trainjob.TrainJob) time.Duration {
	js, workloads := p.View.JobSet, p.View.Workloads
	if js == nil || !js.DeletionTimestamp.IsZero() || js.Status.TerminalState != "" || p.Closed() {
		return 0
	}
	for _, wl := range workloads {
		owner, of := state.ControllerOfKind(wl, trainjob.GVK), state.ControllerOfKind(js, trainjob.GVK)
		if owner == nil || of == nil || owner.UID != of.UID || !state.HoldsQuota(wl) {
			continue
		}
		since := state.StoppingSince(workloads)
		if !ptr.Deref(js.Spec.Suspend, false) {
			return RecheckIn(since)
		}
		if deleted := job.DeletionTimestamp; !deleted.IsZero() && deleted.Time.Before(since) {
			// A finalizer keeps the job, and so nobody deletes its Workload.
			since = deleted.Time
		}
		return max(0, since.Add(ResumeGrace).Sub(p.View.At))
	}
	return 0
}

const (
	// RecheckMin is how soon to look again at the earliest.
	RecheckMin = 500 * time.Millisecond
	recheckMax = 10 * time.Second
)

// RecheckIn returns when to look again for the last pod of a stop that began at since:
// pods are not watched, and what would tell of them may be gone. The longer it takes, the
// less a moment matters.
func RecheckIn(since time.Time) time.Duration {
	return min(max(time.Since(since)/4, RecheckMin), recheckMax)
}
