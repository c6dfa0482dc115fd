// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net/http"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// +kubebuilder:webhook:path=/mutate-trainer-kubeflow-org-v1alpha1-trainjob,mutating=true,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainjobs,verbs=create;update,versions=v1alpha1,name=queued-trainjobs-need-kueue-trainer-running.kueue-trainer.dev,admissionReviewVersions=v1,reinvocationPolicy=IfNeeded
// +kubebuilder:webhook:path=/validate-trainer-kubeflow-org-v1alpha1-trainjob,mutating=false,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainjobs,verbs=create;update,versions=v1alpha1,name=queued-trainjobs-need-kueue-trainer-running.kueue-trainer.dev,admissionReviewVersions=v1

const (
	mutatePath   = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
	validatePath = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
)

var runtimeRefPath = field.NewPath("spec", "runtimeRef")

// setupWebhooks registers both webhooks. Each recovers from panics.
func setupWebhooks(mgr ctrl.Manager, env *environment, self string) {
	decoder := admission.NewDecoder(mgr.GetScheme())
	server := mgr.GetWebhookServer()
	server.Register(mutatePath, &webhook.Admission{Handler: &defaulter{env: env, decoder: decoder, self: self}})
	server.Register(validatePath, &webhook.Admission{Handler: &validator{env: env, decoder: decoder, self: self}})
}

// validator answers bad input while the user is there to mend it.
type validator struct {
	env     *environment
	decoder admission.Decoder
	self    string
}

// Handle implements admission.Handler.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.UserInfo.Username == v.self {
		return admission.Allowed("")
	}
	job, old, err := decode(v.decoder, req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !job.DeletionTimestamp.IsZero() || v.env.inTree.Active() {
		return admission.Allowed("")
	}
	env, err := v.env.now()
	if err != nil {
		return v.env.takesNothingNew(ctx, job, old, err)
	}
	v = &validator{env: env, decoder: v.decoder, self: v.self}
	tooLarge, err := validateSize(req.Object.Raw, req.OldObject.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	errs, err := v.validate(ctx, job, old, tooLarge)
	if err != nil {
		return refused(err)
	}
	if len(errs) > 0 {
		return refused(invalid(job, errs))
	}
	return admission.Allowed("")
}

func invalid(job *trainjob.TrainJob, errs field.ErrorList) error {
	return apierrors.NewInvalid(trainjob.GVK.GroupKind(), job.Name, errs)
}

// validate checks a request. What it is told of is refused where the TrainJob is managed.
func (v *validator) validate(ctx context.Context, t, old *trainjob.TrainJob, ifManaged field.ErrorList) (field.ErrorList, error) {
	j := &job{TrainJob: *t, env: v.env}
	errs := jobframework.ValidateJobOnCreate(j)
	if old != nil {
		changes := jobframework.ValidateJobOnUpdate(&job{TrainJob: *old, env: v.env}, j, v.env.queues.HasDefault(ctx))
		errs = append(errs, withRemedies(changes, !t.Suspended() || !old.Suspended())...)
	}
	managed, err := v.env.queues.Manages(ctx, t)
	if err != nil {
		return nil, err
	}
	if old != nil {
		errs = append(errs, v.leavesQueue(t, old, managed)...)
		if managed {
			errs = append(errs, keepsWorkload(t, old)...)
		}
		errs = append(errs, patch.Changed(v.env.Field, &old.Spec, &t.Spec, v.added(ctx, t, managed))...)
	}
	if !managed {
		return errs, nil
	}
	more, err := v.validateManagedBy(ctx, t, old)
	errs = append(append(errs, ifManaged...), more...)
	if err != nil || !describes(t, old) {
		return errs, err
	}
	more, err = v.validateDescription(ctx, t)
	return append(errs, more...), err
}

// leavesQueue refuses to let a TrainJob out of Kueue's hands: its child Jobs hold the
// gate, which JobSet never takes away from a Job.
func (v *validator) leavesQueue(t, old *trainjob.TrainJob, managed bool) field.ErrorList {
	if managed || !v.env.Field.Has(&old.Spec) || t.Finished() {
		return nil
	}
	return field.ErrorList{field.Forbidden(queueNamePath,
		"a TrainJob that was queued cannot leave its queue; name another queue, or create the TrainJob again without one")}
}

// added returns the spec with the part that the defaulter adds to a TrainJob which comes
// into a queue, or nil where it adds none.
func (v *validator) added(ctx context.Context, t *trainjob.TrainJob, managed bool) *trainjob.Spec {
	if !managed || !t.Suspended() {
		return nil
	}
	spec, _, err := v.env.Gated(ctx, t)
	if err != nil {
		// A missing runtime is reported by its own check.
		return nil
	}
	return &spec
}

// describes reports whether the request decides what the job is going to be, if only by
// resuming it with another entry. A job that runs, or of which nothing but suspend
// changes, must not be refused for its runtime.
func describes(t, old *trainjob.TrainJob) bool {
	if old == nil {
		return true
	}
	spec := t.Spec
	spec.Suspend = old.Spec.Suspend
	return (t.Suspended() || old.Suspended()) && !reflect.DeepEqual(spec, old.Spec)
}

// validateDescription checks what the PodSets are made of: the runtime, the patches,
// and the topology annotations of the pods that come out.
func (v *validator) validateDescription(ctx context.Context, t *trainjob.TrainJob) (field.ErrorList, error) {
	runtime, err := v.env.Runtimes.For(ctx, t)
	if podsets.RuntimeMissing(err) {
		return field.ErrorList{field.Invalid(runtimeRefPath, t.Spec.RuntimeRef.Name, err.Error())}, nil
	}
	if err != nil {
		return nil, err
	}
	return podset.Validate(ctx, v.env.Renderer, t, runtime, v.env.Field), nil
}
