// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// jobSetWithin is how long a JobSet may take to lose its gate for good, or its placement. After one that takes longer the others
// have a second: the chart's hook has 280 for all.
const jobSetWithin = 30 * time.Second

// freeChildJobs brings the suspended child Jobs to the pod templates of the JobSet: those with the gate and, where nobody will
// place them again, what an admission has left in any: JobSet only ever adds to a Job.
func (h *handBack) freeChildJobs(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	js, err := h.freeJobSet(ctx, job)
	if err != nil || js == nil {
		return false, err
	}
	var children batchv1.JobList
	err = h.client.List(ctx, &children, client.InNamespace(job.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: js.Name})
	if err != nil {
		return false, fmt.Errorf("listing the child Jobs of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	all, changed := h.placed && h.queued(job), false
	for i := range children.Items {
		child := &children.Items[i]
		if !state.IsControlledBy(child, js) || !ptr.Deref(child.Spec.Suspend, false) || podset.JobEnded(child) || !all && !gatedJob(child) {
			continue
		}
		wrote, err := h.freeChildJob(ctx, child, js)
		if err != nil {
			return changed, err
		}
		changed = changed || wrote
	}
	return changed, nil
}

// gatedRuns reports TrainJobs that run while their Jobs make pods with the gate: the in-tree integration was faster than we.
// The manager still frees such pods, and nobody may change the template of a Job that runs.
func (h *handBack) gatedRuns(ctx context.Context, namespace string) error {
	var children batchv1.JobList
	if err := h.client.List(ctx, &children, client.InNamespace(namespace), client.HasLabels{jobsetapi.JobSetNameKey}); err != nil {
		return fmt.Errorf("listing child Jobs: %w", err)
	}
	gated := slices.DeleteFunc(children.Items, func(child batchv1.Job) bool { return podset.JobEnded(&child) || !gatedJob(&child) })
	// Anew: they may have been started while the others were freed.
	var jobs trainjob.List
	if err := h.client.List(ctx, &jobs, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing TrainJobs: %w", err)
	}
	var failures error
	for i := range jobs.Items {
		job := &jobs.Items[i]
		ofName := func(child batchv1.Job) bool {
			return child.Namespace == job.Namespace && child.Labels[jobsetapi.JobSetNameKey] == job.Name
		}
		if job.Suspended() || job.Finished() || !job.DeletionTimestamp.IsZero() || !slices.ContainsFunc(gated, ofName) {
			continue
		}
		js, err := JobSetOf(ctx, h.client, job)
		// Anybody may label a Job.
		if err == nil && js != nil && slices.ContainsFunc(gated, func(child batchv1.Job) bool { return ofName(child) && state.IsControlledBy(&child, js) }) {
			err = fmt.Errorf("TrainJob %s/%s runs with the gate in its Jobs, and a pod that replaces another is never scheduled without kueue-trainer: "+
				"keep kueue-trainer until the TrainJob ends, or install it again, or set spec.active: false of its Workload, run this again, and set it to true", job.Namespace, job.Name)
		}
		failures = errors.Join(failures, err)
	}
	return failures
}

// freeJobSet takes the gate off the JobSet, also where Trainer cannot: the in-tree
// integration may have emptied our entry, of which Trainer's server-side apply makes
// "metadata: null". The label stays, with another value, for the same reason. Trainer may
// be applying an older entry, so we look again until the gate stays away, and the placement is gone that nobody will
// replace. Nil means that there is no JobSet, or none of this TrainJob.
func (h *handBack) freeJobSet(ctx context.Context, job *trainjob.TrainJob) (*jobsetapi.JobSet, error) {
	js := &jobsetapi.JobSet{}
	key := client.ObjectKeyFromObject(job)
	within := jobSetWithin
	if h.late {
		within = time.Second
	}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		*js = jobsetapi.JobSet{}
		if err := h.client.Get(ctx, key, js); err != nil {
			return true, err
		}
		if !state.IsControlledBy(js, job) || !slices.ContainsFunc(js.Spec.ReplicatedJobs, gatedReplicatedJob) {
			return !state.IsControlledBy(js, job) || h.shows(js, job), nil
		}
		ungate, err := ungateJobSet(js)
		if err != nil {
			return false, err
		}
		err = h.client.Patch(ctx, js, ungate)
		// 422 is what a patch gets whose test of the resourceVersion fails.
		if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return false, nil
		}
		return false, err
	})
	h.late = h.late || wait.Interrupted(err)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("taking gate and placement from JobSet %s: %w; run this again, or delete the JobSet, and Trainer makes another", key, err)
	case !state.IsControlledBy(js, job):
		return nil, nil
	}
	return js, nil
}

// JobSetOf reads the JobSet of a TrainJob, or nil, also where JobSet itself is gone.
func JobSetOf(ctx context.Context, c client.Client, job *trainjob.TrainJob) (*jobsetapi.JobSet, error) {
	js, err := state.JobSetOf(ctx, c, job)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return js, err
}

// shows reports whether Trainer has brought the entry of a job that nobody will place to its JobSet.
func (h *handBack) shows(js *jobsetapi.JobSet, job *trainjob.TrainJob) bool {
	if !h.placed {
		return true
	}
	// One that cannot be read was refused by freeEntry.
	names, _ := h.field.Jobs(&job.Spec)
	return !slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return slices.Contains(names, rj.Name) && rj.Template.Spec.Template.Labels[patch.GatedLabel] != patch.Freed(rj.Name).Labels[patch.GatedLabel]
	})
}

// ungateJobSet is a patch of nothing but the gate and its label: our types may not know
// every field of a JobSet.
func ungateJobSet(js *jobsetapi.JobSet) (client.Patch, error) {
	operations := []jsonpatch.Operation{jsonpatch.NewOperation("test", "/metadata/resourceVersion", js.ResourceVersion)}
	for i, rj := range js.Spec.ReplicatedJobs {
		if !gatedReplicatedJob(rj) {
			continue
		}
		path, template := fmt.Sprintf("/spec/replicatedJobs/%d/template/spec/template", i), rj.Template.Spec.Template
		if template.Annotations == nil && template.Labels == nil {
			operations = append(operations, jsonpatch.NewOperation("add", path+"/metadata", map[string]any{}))
		}
		labels := map[string]string{}
		maps.Copy(labels, template.Labels)
		maps.Copy(labels, patch.Freed(rj.Name).Labels)
		gates := slices.DeleteFunc(slices.Clone(template.Spec.SchedulingGates), func(gate corev1.PodSchedulingGate) bool { return gate.Name == patch.AdmissionGate })
		operations = append(operations, jsonpatch.NewOperation("add", path+"/metadata/labels", labels), jsonpatch.NewOperation("add", path+"/spec/schedulingGates", gates))
	}
	data, err := json.Marshal(operations)
	return client.RawPatch(types.JSONPatchType, data), err
}

// freeChildJob reports whether there was anything to write.
func (h *handBack) freeChildJob(ctx context.Context, child *batchv1.Job, js *jobsetapi.JobSet) (bool, error) {
	index := slices.IndexFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return rj.Name == child.Labels[jobsetapi.ReplicatedJobNameKey]
	})
	if index < 0 {
		return false, nil
	}
	placed := child.DeepCopy()
	podset.PlaceTemplate(&placed.Spec.Template, &js.Spec.ReplicatedJobs[index].Template.Spec.Template)
	if equality.Semantic.DeepEqual(child.Spec.Template, placed.Spec.Template) {
		return false, nil
	}
	err := podset.WriteTemplate(ctx, h.client, child, placed)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("removing gate and placement from child Job %s: %w", client.ObjectKeyFromObject(child), err)
	}
	return true, nil
}

func gatedJob(child *batchv1.Job) bool {
	return patch.HasAdmissionGate(child.Spec.Template.Spec.SchedulingGates)
}

func gatedReplicatedJob(rj jobsetapi.ReplicatedJob) bool {
	return patch.HasAdmissionGate(rj.Template.Spec.Template.Spec.SchedulingGates)
}

// ReleaseWorkloads takes the finalizer off that keeps the quota of a worker cluster until pods are
// gone: nobody else does. For the in-tree integration it deactivates those that were to be, when their pods are gone: it would
// run them again. It tells out whose, and reports every one that it could not write.
func ReleaseWorkloads(ctx context.Context, c client.Client, out io.Writer, namespace string, inTree bool) error {
	var workloads kueue.WorkloadList
	err := c.List(ctx, &workloads, client.InNamespace(namespace))
	switch {
	case meta.IsNoMatchError(err):
		// Kueue is gone already.
		return nil
	case apierrors.IsForbidden(err):
		fmt.Fprintf(out, "Workloads were not looked at, which matters in a worker cluster of MultiKueue: %v\n", err)
		return nil
	case err != nil:
		return fmt.Errorf("listing Workloads: %w", err)
	}
	var failures error
	for i := range workloads.Items {
		wl := &workloads.Items[i]
		var done []string
		err := kueuelib.Patch(ctx, c, wl, func() (bool, error) {
			done = release(wl, inTree)
			return len(done) > 0, nil
		}, kueuelib.WithRetryOnConflict())
		switch {
		case client.IgnoreNotFound(err) != nil:
			failures = errors.Join(failures, fmt.Errorf("releasing Workload %s/%s (finalizer %s): %w; run this again", wl.Namespace, wl.Name, placeholder.Finalizer, err))
		case len(done) > 0:
			fmt.Fprintf(out, "workload %s/%s: %s\n", wl.Namespace, wl.Name, strings.Join(done, ", "))
		}
	}
	return failures
}

func release(wl *kueue.Workload, inTree bool) (done []string) {
	if controllerutil.RemoveFinalizer(wl, placeholder.Finalizer) {
		done = append(done, "finalizer removed")
	}
	if inTree && deactivation.Marked(wl) && deactivation.Pending(wl) {
		wl.Spec.Active = ptr.To(false)
		delete(wl.Annotations, deactivation.Annotation)
		done = append(done, "deactivated")
	}
	return done
}
