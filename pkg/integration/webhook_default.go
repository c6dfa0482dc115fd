// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// defaulter suspends TrainJobs that belong to a queue and keeps our entry at its place.
//
// It is a plain handler because its answer must touch nothing else: the patch is the
// difference between two encodings of our own types, in which what they do not hold,
// or would write differently, is equally absent.
type defaulter struct {
	env     *environment
	decoder admission.Decoder
	// self is the user name of this manager.
	self string
}

// Handle implements admission.Handler.
func (d *defaulter) Handle(ctx context.Context, req admission.Request) admission.Response {
	job, old, err := decode(d.decoder, req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if d.env.inTree.Active() {
		return admission.Allowed("")
	}
	before, err := json.Marshal(job)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	env, err := d.env.now()
	if err != nil {
		return d.env.takesNothingNew(ctx, job, old, err)
	}
	d = &defaulter{env: env, decoder: d.decoder, self: d.self}
	lost := env.Field.Surplus(&job.Spec)
	resumed := old != nil && old.Suspended() && !job.Suspended()
	if err := d.apply(ctx, req, job, old); err != nil {
		return refused(err)
	}
	after, err := json.Marshal(job)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	response := admission.PatchResponseFromRaw(before, after)
	if old == nil {
		return response.WithWarnings(lost...)
	}
	restore, err := restoreFields(req.Object.Raw, req.OldObject.Raw, req.UserInfo.Username == d.self)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if resumed && job.Suspended() {
		response = response.WithWarnings(fmt.Sprintf(
			"TrainJob %s stays suspended: its quota is being given back, and it starts when it is admitted again", job.Name))
	}
	return withOperations(response, restore)
}

// takesNothingNew answers while the generation of Trainer is unknown, for the reason
// given: a queued TrainJob would get no gate. What is there already is left as it is.
func (e *environment) takesNothingNew(ctx context.Context, job, old *trainjob.TrainJob, reason error) admission.Response {
	managed, err := e.queues.Manages(ctx, job)
	if err != nil {
		return refused(err)
	}
	if managed && old == nil {
		return refused(apierrors.NewServiceUnavailable("kueue-trainer takes no TrainJob into a queue: " + reason.Error()))
	}
	return admission.Allowed("")
}

// withOperations adds operations to a response that allows.
func withOperations(response admission.Response, more []jsonpatch.JsonPatchOperation) admission.Response {
	if len(more) > 0 {
		response.Patches = append(response.Patches, more...)
		response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	return response
}

// decode returns the object of a request and, for an update, the one before it.
func decode(decoder admission.Decoder, req admission.Request) (job, old *trainjob.TrainJob, err error) {
	job = &trainjob.TrainJob{}
	if err := decoder.Decode(req, job); err != nil {
		return nil, nil, err
	}
	// The namespace of an object may be given by the request alone.
	job.Namespace = req.Namespace
	if req.Operation != admissionv1.Update {
		// It is given already, but nothing can belong to it yet: no snapshot is looked for.
		job.UID = ""
		return job, nil, nil
	}
	old = &trainjob.TrainJob{}
	if err := decoder.DecodeRaw(req.OldObject, old); err != nil {
		return nil, nil, err
	}
	return job, old, nil
}

// refused answers with the status of an API error; anything else is our fault, and the
// client may try again.
func refused(err error) admission.Response {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	result := status.Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &result}}
}

func (d *defaulter) apply(ctx context.Context, req admission.Request, job, old *trainjob.TrainJob) error {
	own := req.UserInfo.Username == d.self
	if old == nil {
		if own {
			// The probe for the in-tree integration: what others make of it is the question.
			return nil
		}
		return d.onCreate(ctx, job)
	}
	d.env.Field.Restore(&job.Spec, &old.Spec, own)
	if own || !job.DeletionTimestamp.IsZero() {
		return nil
	}
	return d.onUpdate(ctx, job, old)
}

func (d *defaulter) onCreate(ctx context.Context, job *trainjob.TrainJob) error {
	err := jobframework.ApplyDefaultLocalQueueWithManagedJobsNamespaceSelector(ctx, d.env.client, job,
		d.env.queues.HasDefault(ctx), d.env.kueue.Settings().NamespaceSelector())
	if err != nil {
		return err
	}
	jobframework.ApplyDefaultWorkloadPriorityClass(ctx, d.env.client, job)
	managed, err := d.env.queues.Manages(ctx, job)
	if err != nil {
		return err
	}
	if !managed {
		// An entry of ours in an exported manifest holds what a queue once gave.
		d.env.Field.Drop(&job.Spec)
		return nil
	}
	if err := d.env.defaultManagedBy(ctx, job); err != nil {
		return err
	}
	job.Spec.Suspend = ptr.To(true)
	return d.gate(ctx, job)
}

// gate puts our entry, at the gate, after all others.
func (d *defaulter) gate(ctx context.Context, job *trainjob.TrainJob) error {
	spec, _, err := d.env.Gated(ctx, job)
	if podsets.RuntimeMissing(err) {
		return invalid(job, field.ErrorList{field.Invalid(runtimeRefPath, job.Spec.RuntimeRef.Name, err.Error())})
	}
	if err != nil {
		return err
	}
	job.Spec = spec
	return nil
}

func (d *defaulter) onUpdate(ctx context.Context, job, old *trainjob.TrainJob) error {
	managed, err := d.env.queues.Manages(ctx, job)
	if err != nil || !managed {
		return err
	}
	if err := d.keepStopped(ctx, job, old); err != nil {
		return err
	}
	field := d.env.Field
	switch given := field.Has(&job.Spec); {
	case !given && field.Has(&old.Spec):
		// A client that applies its own list whole does not know of our part.
		field.Copy(&job.Spec, &old.Spec)
	case !given && job.Suspended() && old.Suspended():
		// A job that runs takes no change before it has stopped; the reconciler gates it then.
		return d.gate(ctx, job)
	case given && (job.Suspended() || old.Suspended()) && !field.Last(&job.Spec):
		field.Copy(&job.Spec, &job.Spec)
	}
	return nil
}

// keepStopped keeps a job suspended that has to give its quota back. Whoever could resume it
// would run new pods each time the old ones are gone, and never let a preemption happen.
func (d *defaulter) keepStopped(ctx context.Context, job, old *trainjob.TrainJob) error {
	if !old.Suspended() || job.Suspended() {
		return nil
	}
	wl, err := state.HoldingQuota(ctx, d.env.client, job)
	if err != nil || wl == nil {
		return err
	}
	if !state.StoppedSince(wl).IsZero() {
		job.Spec.Suspend = ptr.To(true)
	}
	return nil
}

// defaultManagedBy hands a TrainJob to MultiKueue when its queue leads there.
func (e *environment) defaultManagedBy(ctx context.Context, t *trainjob.TrainJob) error {
	j := &job{TrainJob: *t, env: e}
	if !j.CanDefaultManagedBy() {
		return nil
	}
	multi, err := e.queues.LeadsToMultiKueue(ctx, t.Namespace, string(jobframework.QueueName(j)))
	if err != nil || !multi {
		return err
	}
	t.Spec.ManagedBy = ptr.To(kueue.MultiKueueControllerName)
	return nil
}
