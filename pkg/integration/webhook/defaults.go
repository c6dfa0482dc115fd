// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// defaulter suspends TrainJobs that belong to a queue and keeps our entry at its place.
//
// It is a plain handler because its answer must touch nothing else: the patch is the
// difference between two encodings of our own types, in which what they do not hold,
// or would write differently, is equally absent.
type defaulter struct{ *handler }

func (d *defaulter) Handle(ctx context.Context, req admission.Request) admission.Response {
	r, answer := d.review(ctx, req)
	if r == nil {
		return answer
	}
	job, old := r.job, r.old
	// What was decoded from JSON can be encoded; of what could not, PatchResponseFromRaw would make an error.
	before, _ := json.Marshal(job)
	dropped := r.describer.Field.Surplus(&job.Spec)
	resumed := old != nil && old.Suspended() && !job.Suspended()
	if err := r.setDefaults(ctx); err != nil {
		return refused(err)
	}
	after, _ := json.Marshal(job)
	response := admission.PatchResponseFromRaw(before, after)
	if spec, err := specOf[specFields](req.Object.Raw); err == nil && spec == nil && len(response.Patches) > 0 {
		// Its CRD takes a TrainJob without one, and no patch could add to it.
		return refused(invalid(job, field.ErrorList{field.Required(field.NewPath("spec"), "a TrainJob in a queue names a runtime, spec.runtimeRef")}))
	}
	if old == nil {
		return response.WithWarnings(dropped...)
	}
	restore, err := restoreFields(req.Object.Raw, req.OldObject.Raw, r.own)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if resumed && job.Suspended() {
		response = response.WithWarnings(fmt.Sprintf(
			"TrainJob %s stays suspended: it holds quota, and kueue-trainer resumes it when no pod of its last run is left and its quota has not been taken back", job.Name))
	}
	if len(restore) > 0 {
		response.Patches = append(response.Patches, restore...)
		response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	return response
}

// setDefaults changes the TrainJob of a request.
func (r *review) setDefaults(ctx context.Context) error {
	if r.old == nil {
		if r.own {
			// The probe for the in-tree integration: what others make of it is the question.
			return nil
		}
		return r.onCreate(ctx)
	}
	r.describer.Field.Restore(&r.job.Spec, &r.old.Spec, r.own)
	if r.own || !r.job.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.onUpdate(ctx)
}

func (r *review) onCreate(ctx context.Context) error {
	job := r.job
	err := jobframework.ApplyDefaultLocalQueueWithManagedJobsNamespaceSelector(ctx, r.Client, job,
		r.Queues.HasDefault(ctx), r.Kueue.Settings().NamespaceSelector())
	if err != nil {
		return err
	}
	jobframework.ApplyDefaultWorkloadPriorityClass(ctx, r.Client, job)
	managed, err := r.Queues.Manages(ctx, job)
	if err != nil {
		return err
	}
	if !managed {
		// An entry of ours in an exported manifest holds what a queue once gave.
		r.describer.Field.Drop(&job.Spec)
		return nil
	}
	if kueuelib.MultiKueueEnabled() && !job.ManagedExternally() {
		multi, err := r.Queues.LeadsToMultiKueue(ctx, job.Namespace, string(jobframework.QueueNameForObject(job)))
		if err != nil {
			return err
		}
		if multi {
			job.Spec.ManagedBy = ptr.To(kueue.MultiKueueControllerName)
		}
	}
	job.Spec.Suspend = ptr.To(true)
	return r.gate(ctx)
}

// gate puts our entry, at the gate, after all others. What MultiKueue copies to other clusters gets it there, and has to have
// room for it.
func (r *review) gate(ctx context.Context) error {
	job := r.job
	if errs := r.describer.Field.Full(&job.Spec); len(errs) > 0 {
		return invalid(job, errs)
	}
	spec, _, err := r.describer.Gated(ctx, job)
	if podsets.RuntimeMissing(err) {
		return invalid(job, field.ErrorList{field.Invalid(runtimeRefPath, job.Spec.RuntimeRef.Name, err.Error())})
	}
	if err != nil {
		return err
	}
	job.Spec = spec
	if !job.ManagedExternally() {
		ctrl.LoggerFrom(ctx).V(1).Info("Put TrainJob to the admission gate")
	}
	return nil
}

func (r *review) onUpdate(ctx context.Context) error {
	job, old := r.job, r.old
	if err := r.keepStopped(ctx); err != nil {
		return err
	}
	managed, err := r.Queues.Manages(ctx, job)
	if err != nil || !managed {
		return err
	}
	field := r.describer.Field
	switch given := field.Has(&job.Spec); {
	case !given && field.Has(&old.Spec):
		// A client that applies its own list whole does not know of our part.
		field.Copy(&job.Spec, &old.Spec)
	case !given && job.Suspended() && old.Suspended():
		// A job that has pods takes no change before they are gone; the reconciler gates it then.
		js, err := state.JobSetOf(ctx, r.Client, job)
		if err != nil || js != nil && state.SaysActive(js) {
			return err
		}
		return r.gate(ctx)
	case given && (job.Suspended() || old.Suspended()) && !field.Last(&job.Spec):
		field.Copy(&job.Spec, &job.Spec)
	}
	return nil
}

// keepStopped keeps a job suspended that holds quota: the manager resumes it, when the last pod of its former
// run is gone. Whoever else could resume it would run new pods beside those that still end, and never let a
// preemption happen.
func (r *review) keepStopped(ctx context.Context) error {
	job, old := r.job, r.old
	if !old.Suspended() || job.Suspended() {
		return nil
	}
	wl, err := state.HoldingQuota(ctx, r.Client, job)
	if err != nil || wl == nil {
		return err
	}
	job.Spec.Suspend = ptr.To(true)
	return nil
}

// deactivator keeps the Workload of a TrainJob active that somebody deactivates while it has quota. The manager alone
// says when the last pod is gone.
type deactivator struct{ *handler }

func (d *deactivator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.UserInfo.Username == d.Self || d.InTree.Active() {
		return admission.Allowed("")
	}
	wl, old := &kueue.Workload{}, &kueue.Workload{}
	if err := errors.Join(d.decoder.Decode(req, wl), d.decoder.DecodeRaw(req.OldObject, old)); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	// Status and owners of the request are whatever its sender wrote.
	if kueuelib.IsActive(wl) || !kueuelib.IsActive(old) || !state.HoldsQuota(old) || state.ControllerOfKind(old, trainjob.GVK) == nil {
		return admission.Allowed("")
	}
	// What was decoded from JSON can be encoded; of what could not, PatchResponseFromRaw would make an error.
	before, _ := json.Marshal(wl)
	wl.Spec.Active = ptr.To(true)
	if !deactivation.ByKueue(old) {
		deactivation.Mark(wl)
	}
	after, _ := json.Marshal(wl)
	ctrl.LoggerFrom(ctx).V(1).Info("Put off the deactivation of a Workload until its job has no pods")
	return admission.PatchResponseFromRaw(before, after).WithWarnings(fmt.Sprintf(
		"Workload %s stays active until the last pod of its TrainJob is gone; then it is deactivated, and its quota is free", wl.Name))
}
