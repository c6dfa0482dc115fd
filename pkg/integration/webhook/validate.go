// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

var (
	runtimeRefPath = field.NewPath("spec", "runtimeRef")
	managedByPath  = field.NewPath("spec", "managedBy")
	suspendPath    = field.NewPath("spec", "suspend")
)

// validator answers bad input while the user is there to correct it.
type validator struct{ *handler }

func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.UserInfo.Username == v.Self {
		return admission.Allowed("")
	}
	r, answer := v.review(ctx, req)
	if r == nil {
		return answer
	}
	if !r.job.DeletionTimestamp.IsZero() {
		return admission.Allowed("")
	}
	// How large a TrainJob was before excuses none that comes into a queue.
	var queuedBefore []byte
	if r.old != nil {
		managed, err := v.Queues.Manages(ctx, r.old)
		if err != nil {
			return refused(err)
		}
		if managed {
			queuedBefore = req.OldObject.Raw
		}
	}
	tooLarge, err := validateSize(req.Object.Raw, queuedBefore)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	errs, err := r.validate(ctx, tooLarge)
	if err != nil {
		return refused(err)
	}
	if len(errs) > 0 {
		return refused(invalid(r.job, errs))
	}
	return admission.Allowed("").WithWarnings(slices.Concat(r.stopsInVain(), r.classMissing(ctx), r.queueUnmanaged(ctx))...)
}

// invalid tells of the first errors: each has a path and a value that the user chose.
func invalid(job *trainjob.TrainJob, errs field.ErrorList) error {
	const most = 10
	return apierrors.NewInvalid(trainjob.GVK.GroupKind(), job.Name, errs[:min(most, len(errs))])
}

// validate checks a request. What it is told of is refused where the TrainJob is managed.
func (r *review) validate(ctx context.Context, ifManaged field.ErrorList) (field.ErrorList, error) {
	t, old := r.job, r.old
	errs := jobframework.ValidateJobOnCreate(queues.Job{TrainJob: t})
	if old == nil || old.Labels[kueueconstants.MaxExecTimeSecondsLabel] != t.Labels[kueueconstants.MaxExecTimeSecondsLabel] {
		// A TrainJob that has a time limit already which Kueue takes for none has to be written still.
		errs = append(errs, kueuelib.NoTimeLimit(t.Labels)...)
	}
	if old != nil {
		changes := jobframework.ValidateJobOnUpdate(queues.Job{TrainJob: old}, queues.Job{TrainJob: t}, r.Queues.HasDefault(ctx))
		errs = append(errs, withRemedies(changes, !t.Suspended() || !old.Suspended())...)
	}
	managed, err := r.Queues.Manages(ctx, t)
	if err != nil {
		return nil, err
	}
	if old != nil {
		leaves, err := r.leavesQueue(ctx, t, old, managed)
		if err != nil {
			return nil, err
		}
		errs = append(errs, leaves...)
		if managed {
			errs = append(errs, keepsWorkload(t, old)...)
		}
		errs = append(errs, patch.Changed(r.describer.Field, &old.Spec, &t.Spec, r.added(ctx, t, managed))...)
	}
	if !managed {
		return append(errs, r.stillGated()...), nil
	}
	if old == nil && !t.Suspended() {
		errs = append(errs, field.Forbidden(suspendPath, "a TrainJob that comes into a queue is suspended, and kueue-trainer was not asked to: "+
			"a webhook that is asked later gave this one its queue, or kueue-trainer-mutating-webhook-configuration is not installed; "+
			"have that webhook's configuration come before it by its name, or create the TrainJob with spec.suspend: true"))
	}
	errs = append(errs, prebuiltOfTrainJob(t, old)...)
	more, err := r.validateManagedBy(ctx, t, old)
	errs = append(append(errs, ifManaged...), more...)
	if err != nil || len(ifManaged) > 0 || !describes(t, old) {
		// What is too large is not rendered.
		return errs, err
	}
	more, err = r.validateDescription(ctx, t)
	return append(errs, more...), err
}

// leavesQueue refuses to let a TrainJob out of Kueue's hands: its child Jobs hold the
// gate, which JobSet never takes away from a Job. One that MultiKueue runs has no gate, and
// would leave a Workload behind that MultiKueue goes on with.
func (r *review) leavesQueue(ctx context.Context, t, old *trainjob.TrainJob, managed bool) (field.ErrorList, error) {
	// One that never named a queue leaves none: Kueue managed it while it managed all.
	if managed || t.Finished() || jobframework.QueueNameForObject(t) == "" && jobframework.QueueNameForObject(old) == "" && !old.ManagedExternally() {
		return nil, nil
	}
	if inside, err := r.Queues.ManagesNamespace(ctx, t.Namespace); err != nil || !inside {
		// The namespace has left, not the job.
		return nil, err
	}
	queued := patch.Patched(r.describer.Field, &old.Spec)
	if !queued && old.ManagedExternally() {
		var err error
		if queued, err = r.Queues.Manages(ctx, old); err != nil {
			return nil, err
		}
	}
	if !queued {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(queueNamePath,
		"a TrainJob that was queued cannot leave its queue; name another queue, or create the TrainJob again without one")}, nil
}

// stillGated refuses to resume a TrainJob that Kueue managed without a queue, and does not any more, before the manager
// has removed the gate: JobSet never does that, and Trainer takes no other entry of a job that runs.
func (r *review) stillGated() field.ErrorList {
	if r.old == nil || !r.old.Suspended() || r.job.Suspended() || !r.describer.Field.HoldsGate(&r.job.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(suspendPath,
		"the TrainJob waited for Kueue, which manages no jobs without a queue any more, and its pods would wait for ever; "+
			"resume it when kueue-trainer has removed the admission gate "+patch.AdmissionGate+" from its entry, within seconds")}
}

// added returns the spec with the part that the defaulter adds to a TrainJob which comes
// into a queue, or nil where it adds none.
func (r *review) added(ctx context.Context, t *trainjob.TrainJob, managed bool) *trainjob.Spec {
	if !managed || !t.Suspended() || t.ManagedExternally() {
		return nil
	}
	spec, _, err := r.describer.Gated(ctx, t)
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
func (r *review) validateDescription(ctx context.Context, t *trainjob.TrainJob) (field.ErrorList, error) {
	runtime, err := r.describer.Runtimes.For(ctx, t)
	if podsets.RuntimeMissing(err) {
		return field.ErrorList{field.Invalid(runtimeRefPath, t.Spec.RuntimeRef.Name, err.Error())}, nil
	}
	if err != nil {
		return nil, err
	}
	return podset.Validate(ctx, r.describer.Renderer, t, runtime, r.describer.Field), nil
}

// validateManagedBy refuses a TrainJob that comes to a queue where nothing would run it, or where
// MultiKueue would reject it.
func (r *review) validateManagedBy(ctx context.Context, t, old *trainjob.TrainJob) (field.ErrorList, error) {
	queue := jobframework.QueueNameForObject(t)
	if old != nil && queue == jobframework.QueueNameForObject(old) {
		return nil, nil
	}
	err := cmp.Or(r.Queues.Reachable(ctx, t, r.describer.Runtimes.Served), r.Queues.Dispatchable(ctx, t, string(queue)))
	if errors.Is(err, queues.ErrNoOtherCluster) || errors.Is(err, queues.ErrOnlyHere) {
		return field.ErrorList{field.Invalid(managedByPath, ptr.Deref(t.Spec.ManagedBy, trainjob.ControllerName), err.Error())}, nil
	}
	return nil, err
}

var (
	queueNamePath = labelPath(kueueconstants.QueueLabel)
	maxExecPath   = labelPath(kueueconstants.MaxExecTimeSecondsLabel)
	priorityPath  = labelPath(kueueconstants.WorkloadPriorityClassLabel)
)

func labelPath(label string) *field.Path { return field.NewPath("metadata", "labels").Key(label) }

// labelRemedies say what to do where jobframework only says that a label cannot change.
var labelRemedies = map[string]string{
	queueNamePath.String(): "the queue of a running TrainJob cannot change; set spec.suspend to true in the same request, and it stops and queues there",
	priorityPath.String():  "a running TrainJob cannot get a priority class; set spec.suspend to true in the same request, and it stops and queues with it",
	maxExecPath.String():   "the time limit of a running TrainJob cannot change, nor in the request that stops it; create the TrainJob again with another",
}

// leaving says what to do where the label of the queue is taken off.
const leaving = "a running TrainJob cannot leave its queue, nor in the request that stops it; create it again without the label"

// withRemedies completes jobframework's refusals of changed labels.
func withRemedies(errs field.ErrorList, running bool) field.ErrorList {
	for _, err := range errs {
		added := err.Field == priorityPath.String() && err.BadValue != ""
		if remedy := labelRemedies[err.Field]; remedy != "" && running && (added || err.Detail == apivalidation.FieldImmutableErrorMsg) {
			err.Detail = remedy
			if err.Field == queueNamePath.String() && fmt.Sprint(err.BadValue) == "" {
				err.Detail = leaving
			}
		}
	}
	return errs
}

// keepsWorkload refuses to give a TrainJob that exists a prebuilt Workload, another or none:
// the one that it has would hold its quota for ever. jobframework allows it with a suspend.
func keepsWorkload(t, old *trainjob.TrainJob) field.ErrorList {
	before := jobframework.PrebuiltWorkloadNameFor(old)
	if jobframework.PrebuiltWorkloadNameFor(t) == before {
		return nil
	}
	path := jobframework.GetPrebuiltWorkloadPath(t)
	if before != "" {
		path = jobframework.GetPrebuiltWorkloadPath(old)
	}
	return field.ErrorList{field.Forbidden(path,
		"the Workload of a TrainJob that exists cannot change, nor in the request that stops it; put the label back, or create another TrainJob with it")}
}

// ofJobSets is how the names of the Workloads begin that Kueue makes of JobSets that are no TrainJob's. By that name
// in their annotation the policies tell Jobs of such JobSets from those of TrainJobs.
const ofJobSets = "jobset-"

// prebuiltOfTrainJob refuses a prebuilt Workload that has such a name to a TrainJob that comes into a queue. One that is there
// already has to be written still, to stop or to go.
func prebuiltOfTrainJob(t, old *trainjob.TrainJob) field.ErrorList {
	name := jobframework.PrebuiltWorkloadNameFor(t)
	known := old != nil && jobframework.QueueNameForObject(old) != "" && jobframework.PrebuiltWorkloadNameFor(old) == name
	if known || !strings.HasPrefix(name, ofJobSets) {
		return nil
	}
	return field.ErrorList{field.Invalid(jobframework.GetPrebuiltWorkloadPath(t), name,
		"names that begin with "+ofJobSets+" are those of JobSets' Workloads: create the Workload under another name")}
}
