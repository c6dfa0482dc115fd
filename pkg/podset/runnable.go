// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	podconstants "sigs.k8s.io/kueue/pkg/controller/jobs/pod/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ErrCannotRun is of a TrainJob of which JobSet, Kubernetes or the manager's gate would let
// no pod run. Only people can change that: in the TrainJob or in its runtime.
var ErrCannotRun = errors.New("the TrainJob cannot run")

// runnable reports what keeps the pods of a TrainJob from ever running, as far as that can
// be seen in the JobSet that is rendered of it with the patches of others alone.
func runnable(job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, js *jobsetapi.JobSet, patches patch.Field) field.ErrorList {
	b := &blame{job, runtime}
	return slices.Concat(Unmade(job, runtime, js), validateReserved(job, js, patches, b), validateManaged(js, b), validatePods(js, b), validateCache(js, b), validateSize(js, b))
}

// maxBytes is how large the replicated jobs of a JobSet may be, as JSON. Each is in Jobs and pods again, which controllers
// and kubelets have to be able to write until they are gone: etcd takes 1.5 MiB.
const maxBytes = 512 << 10

func validateSize(js *jobsetapi.JobSet, b *blame) field.ErrorList {
	data, err := json.Marshal(js.Spec.ReplicatedJobs)
	if err != nil || len(data) <= maxBytes {
		return nil
	}
	return field.ErrorList{b.refuse("its pods and Jobs have %d bytes as JSON, more than the %d that a job in a queue may have; put long variables, commands and arguments into a ConfigMap or a volume", len(data), maxBytes)}
}

// validatePods: a pod that names its node passes by the scheduler, and with it by the flavor that its quota
// is of. One that its Job selects by labels of a user's can be let go, and runs on beside the next. So does one that
// Kubernetes deletes with its own grace period when it has tolerated the taint of its node for long enough.
func validatePods(js *jobsetapi.JobSet, b *blame) field.ErrorList {
	var errs field.ErrorList
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		if selects := selectsPods(rj); selects != "" {
			errs = append(errs, b.refuse("replicated job %s %s; leave selector and manualSelector out", rj.Name, selects))
		}
		if node := rj.Template.Spec.Template.Spec.NodeName; node != "" {
			errs = append(errs, b.refuse("replicated job %s has nodeName %s, which takes no notice of the flavor that the job is admitted to; leave it out, or use nodeSelector", rj.Name, node))
		}
		if taint := toleratedForATime(rj); taint != "" {
			const why = "when that is over its pods run on beside the next ones; leave tolerationSeconds out, or have the runtime's Jobs say podReplacementPolicy: Failed"
			what := fmt.Sprintf("replicated job %s has tolerationSeconds for taint %s, and %s", rj.Name, taint, why)
			if path := b.patched(rj.Name, "spec", "tolerations"); path != nil {
				errs = append(errs, field.Forbidden(path, what))
			} else {
				errs = append(errs, b.refuse("%s", what))
			}
		}
	}
	return errs
}

// toleratedForATime names a taint that the pods of a replicated job tolerate for some seconds, or nothing. For how long they
// do so on a node that is lost is for people to say, and a Job that replaces failed pods alone, as one with a policy for
// failures does, awaits their end.
func toleratedForATime(rj *jobsetapi.ReplicatedJob) string {
	if job := &rj.Template.Spec; ptr.Deref(job.PodReplacementPolicy, "") == batchv1.Failed || job.PodFailurePolicy != nil {
		return ""
	}
	for _, t := range rj.Template.Spec.Template.Spec.Tolerations {
		if t.TolerationSeconds != nil && t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable {
			return cmp.Or(t.Key, "*")
		}
	}
	return ""
}

// Unmade reports what keeps the pods of a TrainJob, in a queue or in none, from ever being
// made of the JobSet: numbers of nodes, names and amounts.
func Unmade(job *trainjob.TrainJob, runtime *trainer.TrainingRuntimeSpec, js *jobsetapi.JobSet) field.ErrorList {
	if errs := ValidateNodes(job); len(errs) > 0 {
		return errs
	}
	b := &blame{job, runtime}
	if len(js.Spec.ReplicatedJobs) == 0 {
		return field.ErrorList{b.refuse("it has no replicated job, and no pod comes of it")}
	}
	errs := append(validateName(job.Name, js, b), validateReplicas(js, b)...)
	for i := range js.Spec.ReplicatedJobs {
		errs = append(errs, validateJob(&js.Spec.ReplicatedJobs[i], b)...)
	}
	return errs
}

// ValidateNodes refuses a TrainJob without nodes: no CRD and no webhook of Trainer has a minimum.
func ValidateNodes(job *trainjob.TrainJob) field.ErrorList {
	if job.Spec.Trainer == nil || ptr.Deref(job.Spec.Trainer.NumNodes, 1) > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(trainerPath.Child("numNodes"), *job.Spec.Trainer.NumNodes,
		"it must be at least 1; leave it out for as many nodes as the runtime has")}
}

// maxReplicas is far beyond what anybody trains on. JobSet builds all Jobs of a JobSet before it makes the first, and with
// two thousand million of them, which its webhook takes, it runs out of memory and serves nobody in the cluster.
const maxReplicas = 10_000

func validateReplicas(js *jobsetapi.JobSet, b *blame) field.ErrorList {
	replicas := int64(0)
	for _, rj := range js.Spec.ReplicatedJobs {
		replicas += int64(max(0, rj.Replicas))
	}
	if replicas <= maxReplicas {
		return nil
	}
	return field.ErrorList{b.refuse("its replicated jobs have %d replicas in all, each of them a Job: at most %d", replicas, maxReplicas)}
}

// validateManaged: what another controller is to look after gets no pods from JobSet, nor from Kubernetes, and nobody would stop it.
func validateManaged(js *jobsetapi.JobSet, b *blame) field.ErrorList {
	const remedy = "which nobody stops when its quota is taken; leave managedBy out"
	var errs field.ErrorList
	if by := ptr.Deref(js.Spec.ManagedBy, jobsetapi.JobSetControllerName); by != jobsetapi.JobSetControllerName {
		errs = append(errs, b.refuse("its JobSet is managed by %s, %s", by, remedy))
	}
	for _, rj := range js.Spec.ReplicatedJobs {
		if by := ptr.Deref(rj.Template.Spec.ManagedBy, batchv1.JobControllerName); by != batchv1.JobControllerName {
			errs = append(errs, b.refuse("the Jobs of replicated job %s are managed by %s, %s", rj.Name, by, remedy))
		}
	}
	return errs
}

func validateJob(rj *jobsetapi.ReplicatedJob, b *blame) field.ErrorList {
	var errs field.ErrorList
	for _, count := range []*int32{&rj.Replicas, rj.Template.Spec.Parallelism, rj.Template.Spec.Completions} {
		if ptr.Deref(count, 0) < 0 {
			errs = append(errs, b.refuse("replicated job %s has %d replicas, parallelism or completions, which must not be negative", rj.Name, *count))
		}
	}
	pod := &rj.Template.Spec.Template.Spec
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, wrong := range quantity.Check(&container.Resources) {
			errs = append(errs, b.refuseAmount(rj, container.Name, wrong))
		}
	}
	return errs
}

// validateReserved refuses what nobody would ever take off the pods again: our gate in
// other hands, and Kueue's; the label by which gated pods are found, and what an admission writes.
func validateReserved(job *trainjob.TrainJob, js *jobsetapi.JobSet, patches patch.Field, b *blame) field.ErrorList {
	const why = "it belongs to the manager of queued TrainJobs, Kueue, JobSet or Kubernetes, and nobody would take it off the pods again; leave it out"
	var errs field.ErrorList
	for _, path := range patches.ReservedByOthers(&job.Spec) {
		errs = append(errs, field.Forbidden(path, why))
	}
	if len(errs) > 0 {
		return errs
	}
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		what := reserved(&rj.Template.Spec.Template)
		if what == "" {
			continue
		}
		kind, key, _ := strings.Cut(what, " ")
		if path := b.patched(rj.Name, "metadata", kind+"s", key); path != nil {
			errs = append(errs, field.Forbidden(path, why))
			continue
		}
		errs = append(errs, b.refuse("in replicated job %s, the pods have %s: %s", rj.Name, what, why))
	}
	return errs
}

// reserved names what a pod template has and only an admission may give or take, or nothing.
func reserved(template *corev1.PodTemplateSpec) string {
	for _, gate := range template.Spec.SchedulingGates {
		if patch.ReservedGate(gate.Name) {
			return "scheduling gate " + gate.Name
		}
	}
	for _, key := range []string{patch.GatedLabel, kueueconstants.PodSetLabel, kueueconstants.LocalQueueLabel, kueueconstants.ClusterQueueLabel} {
		if _, ok := template.Labels[key]; ok {
			return "label " + key
		}
	}
	// Kueue gates pods with the latter for the parent that it names.
	for _, key := range []string{kueue.WorkloadAnnotation, podconstants.SuspendedByParentAnnotation} {
		if _, ok := template.Annotations[key]; ok {
			return "annotation " + key
		}
	}
	return tellsWhose(&template.ObjectMeta)
}

// tellsWhose names a label or annotation by which JobSet, the Job controller and we know whose a pod is, and which one, or
// nothing. Theirs come later than the template's, but what a start writes, and what JobSet merges when it resumes a Job, replaces them.
func tellsWhose(template *metav1.ObjectMeta) string {
	theirs := func(kind string, keys map[string]string) string {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if strings.HasPrefix(key, "jobset.sigs.k8s.io/") || strings.HasPrefix(key, "batch.kubernetes.io/") {
				return kind + " " + key
			}
		}
		return ""
	}
	return cmp.Or(theirs("label", template.Labels), theirs("annotation", template.Annotations))
}
