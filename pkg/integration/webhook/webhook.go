// SPDX-License-Identifier: Apache-2.0

// Package webhook is the manager's part of the admission of TrainJobs (this file): it sets
// suspend and, but for other clusters' jobs, the gate of queued TrainJobs (defaults.go), puts
// fields back to their stored bytes and refuses too many of these (bytes.go), refuses what could
// not run or would escape its queue (validate.go), and warns of what is in vain.
// Of Workloads, it puts the deactivation off until pods are gone (defaults.go).
// What it answers is counted, and what it refuses is logged (answers.go).
package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// +kubebuilder:webhook:path=/mutate-trainer-kubeflow-org-v1alpha1-trainjob,mutating=true,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainjobs,verbs=create;update,versions=v1alpha1,name=queued-trainjobs-need-kueue-trainer-running.kueue-trainer.dev,admissionReviewVersions=v1,reinvocationPolicy=IfNeeded
// +kubebuilder:webhook:path=/validate-trainer-kubeflow-org-v1alpha1-trainjob,mutating=false,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainjobs,verbs=create;update,versions=v1alpha1,name=queued-trainjobs-need-kueue-trainer-running.kueue-trainer.dev,admissionReviewVersions=v1
// +kubebuilder:webhook:path=/mutate-kueue-x-k8s-io-v1beta2-workload,mutating=true,failurePolicy=fail,sideEffects=None,groups=kueue.x-k8s.io,resources=workloads,verbs=update,versions=v1beta2,name=running-trainjobs-need-kueue-trainer-running.kueue-trainer.dev,admissionReviewVersions=v1

const (
	mutatePath   = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
	validatePath = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
	workloadPath = "/mutate-kueue-x-k8s-io-v1beta2-workload"
)

// Options are what the webhooks go by.
type Options struct {
	Client    client.Client
	InTree    *peers.InTree
	Trainer   *peers.Trainer
	Describer *podsets.Describer
	Queues    *queues.Queues
	Kueue     *kueueconfig.Follower
	Metrics   *metrics.Recorder
	// Self is the user name of this manager.
	Self string
}

// Register adds the webhooks to the server of mgr. Each recovers from panics.
func Register(mgr ctrl.Manager, opts Options) {
	h := &handler{Options: opts, decoder: admission.NewDecoder(mgr.GetScheme())}
	server := mgr.GetWebhookServer()
	server.Register(mutatePath, &crwebhook.Admission{Handler: &counted{&told{&defaulter{h}}, metrics.WebhookMutating, opts.Metrics}, LogConstructor: logOf("trainJob")})
	server.Register(validatePath, &crwebhook.Admission{Handler: &counted{&told{&validator{h}}, metrics.WebhookValidating, opts.Metrics}, LogConstructor: logOf("trainJob")})
	server.Register(workloadPath, &crwebhook.Admission{Handler: &counted{&deactivator{h}, metrics.WebhookWorkload, opts.Metrics}, LogConstructor: logOf("workload")})
}

// handler is what they have in common.
type handler struct {
	Options
	decoder admission.Decoder
}

// review is one request, for the Trainer that was served when it came.
type review struct {
	*handler
	describer *podsets.Describer
	// old is nil for a TrainJob that is created.
	job, old *trainjob.TrainJob
	// own reports whether the request is the manager's.
	own bool
}

// review returns a request to look at, or the answer to one about which there is nothing to do.
func (h *handler) review(ctx context.Context, req admission.Request) (*review, admission.Response) {
	job, old, err := decode(h.decoder, req)
	if err != nil {
		return nil, admission.Errored(http.StatusBadRequest, err)
	}
	if alone, err := h.leavesAlone(ctx, job); err != nil {
		return nil, refused(err)
	} else if alone {
		return nil, admission.Allowed("")
	}
	if old == nil && !job.DeletionTimestamp.IsZero() {
		// A server-side apply would store it, and nobody suspends what is being deleted.
		return nil, refused(invalid(job, field.ErrorList{field.Forbidden(field.NewPath("metadata", "deletionTimestamp"), "leave it out of a TrainJob that is created")}))
	}
	version, unknown := h.Trainer.Served()
	if unknown != nil {
		// A queued TrainJob would get no gate. What is there already is left as it is.
		managed, err := h.Queues.Manages(ctx, job)
		switch {
		case err != nil:
			return nil, refused(err)
		case managed && old == nil:
			return nil, refused(apierrors.NewServiceUnavailable("kueue-trainer takes no TrainJob into a queue: " + unknown.Error()))
		}
		return nil, admission.Allowed("")
	}
	describer := h.Describer.For(version)
	describer.Recorder = describer.Recorder.LoggingTo(ctrl.LoggerFrom(ctx))
	return &review{handler: h, describer: describer, job: job, old: old, own: req.UserInfo.Username == h.Self}, admission.Response{}
}

// leavesAlone reports whether a TrainJob is somebody else's: the in-tree integration's, or nobody's in a namespace
// that Kueue does not manage. What got quota before the namespace was taken out keeps its rules to its end, and what is
// made there loses an entry of ours that an export brought along: nobody would take the gate off its pods.
func (h *handler) leavesAlone(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	if h.InTree.Active() {
		return true, nil
	}
	managed, err := h.Queues.ManagesNamespace(ctx, job.Namespace)
	if err != nil || managed || job.UID == "" {
		return false, err
	}
	wl, err := state.HoldingQuota(ctx, h.Client, job)
	return wl == nil, err
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
	old.Namespace = req.Namespace
	// The API server puts these back after it has asked the mutating webhooks: a request may say anything of them.
	job.UID, job.DeletionTimestamp = old.UID, old.DeletionTimestamp
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

// stopsInVain warns people who suspend a job that is placed: Kueue still admits it, so it is
// started again. One that changes its queue or its priority in the same request queues again
// instead, and one that is over is not started.
func (r *review) stopsInVain() []string {
	t, old := r.job, r.old
	if old == nil || old.Suspended() || !t.Suspended() || t.Finished() || t.ManagedExternally() {
		return nil
	}
	if !r.describer.Field.Has(&old.Spec) || r.describer.Field.HoldsGate(&old.Spec) {
		return nil
	}
	for _, label := range []string{kueueconstants.QueueLabel, kueueconstants.WorkloadPriorityClassLabel} {
		if t.Labels[label] != old.Labels[label] {
			return nil
		}
	}
	return []string{fmt.Sprintf("spec.suspend: its pods are stopped, and Kueue starts it again when they are gone; "+
		"kubectl trainjob stop -n %s %s keeps it stopped", t.Namespace, t.Name)}
}

// classMissing warns people who name a priority class that is not there. It is no refusal: people apply the class and
// the job together, and the job waits for the class.
func (r *review) classMissing(ctx context.Context) []string {
	class := r.job.Labels[kueueconstants.WorkloadPriorityClassLabel]
	if class == "" || r.old != nil && r.old.Labels[kueueconstants.WorkloadPriorityClassLabel] == class {
		return nil
	}
	if managed, err := r.Queues.Manages(ctx, r.job); err != nil || !managed {
		return nil
	}
	if !apierrors.IsNotFound(r.Client.Get(ctx, client.ObjectKey{Name: class}, &kueue.WorkloadPriorityClass{})) {
		return nil
	}
	return []string{fmt.Sprintf("metadata.labels[%s]: there is no WorkloadPriorityClass %s, and the job waits for one: "+
		"name another (kubectl get workloadpriorityclasses), or ask an admin to create it", kueueconstants.WorkloadPriorityClassLabel, class)}
}

// queueUnmanaged warns who creates a TrainJob with a queue in a namespace that Kueue does not manage: it starts at once.
func (r *review) queueUnmanaged(ctx context.Context) []string {
	queue := jobframework.QueueNameForObject(r.job)
	if r.old != nil || queue == "" || queue == trainjob.ProbeQueue {
		return nil
	}
	if managed, err := r.Queues.ManagesNamespace(ctx, r.job.Namespace); err != nil || managed {
		return nil
	}
	becomes := "and runs outside of all quotas"
	if r.job.Suspended() {
		becomes = "and runs outside of all quotas when you set spec.suspend to false"
	}
	return []string{fmt.Sprintf("%s: Kueue does not manage namespace %s (managedJobsNamespaceSelector): the job does not wait in queue %s, %s; "+
		"ask an admin to label the namespace", queueNamePath, r.job.Namespace, queue, becomes)}
}
