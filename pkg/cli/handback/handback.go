// SPDX-License-Identifier: Apache-2.0

// Package handback is the command that hands waiting TrainJobs to Kueue's in-tree
// integration.
package handback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// jobSetWithin is how long a JobSet may take to lose its gate for good.
const jobSetWithin = 30 * time.Second

const handBackLong = `Take the admission gate of kueue-trainer off TrainJobs that wait in a queue.

Kueue's in-tree integration frees no pod of that gate: a TrainJob that waited under
kueue-trainer would be admitted by it and never get a running pod. Run this when the
in-tree integration is switched on and before kueue-trainer is uninstalled; meanwhile
kueue-trainer stands aside and still frees pods that were faster.
In a manager cluster of MultiKueue, TrainJobs that wait for another cluster get the empty
patch entry that the in-tree integration starts none without. In a worker cluster, Workloads
lose the finalizer that only kueue-trainer takes off.
Running TrainJobs are left alone, and running it again changes nothing. It fails where the
in-tree integration could not stop one, or would keep the quota of one that it stops.`

const handBackExample = `  # Every namespace
  kubectl trainjob hand-back --all-namespaces

  # One team
  kubectl trainjob hand-back -n team-a`

// Flags are kubectl's, as far as they are used here: what uninstall takes of this package does without.
type Flags interface {
	ClientIn(all bool) (client.WithWatch, string, error)
}

// NewCommand returns the command.
func NewCommand(flags Flags, streams genericiooptions.IOStreams) *cobra.Command {
	allNamespaces := false
	cmd := &cobra.Command{
		Use:     "hand-back",
		Short:   "Take kueue-trainer's gate off waiting TrainJobs, before Kueue's in-tree integration takes over",
		Long:    handBackLong,
		Example: handBackExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, namespace, err := flags.ClientIn(allNamespaces)
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, streams.Out, namespace)
		},
	}
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "the TrainJobs of every namespace")
	return cmd
}

// run frees what it can, unless the manager is active.
func run(ctx context.Context, c client.Client, out io.Writer, namespace string) error {
	if err := managerIdle(ctx, c, Of{Namespace: namespace}); err != nil {
		return err
	}
	return errors.Join(Free(ctx, c, out, Of{Namespace: namespace}), entryless(ctx, c, out, namespace), ReleaseWorkloads(ctx, c, out, namespace))
}

// ReleaseWorkloads takes the finalizer off that keeps the quota of a worker cluster until pods are
// gone: nobody else does. It tells out whose, and reports every one that it could not take.
func ReleaseWorkloads(ctx context.Context, c client.Client, out io.Writer, namespace string) error {
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
		if !controllerutil.ContainsFinalizer(wl, placeholder.Finalizer) {
			continue
		}
		if err := releaseWorkload(ctx, c, client.ObjectKeyFromObject(wl)); err != nil {
			failures = errors.Join(failures, fmt.Errorf("taking finalizer %s off Workload %s/%s: %w; run this again", placeholder.Finalizer, wl.Namespace, wl.Name, err))
			continue
		}
		fmt.Fprintf(out, "workload %s/%s: finalizer removed\n", wl.Namespace, wl.Name)
	}
	return failures
}

func releaseWorkload(ctx context.Context, c client.Client, key types.NamespacedName) error {
	return client.IgnoreNotFound(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var wl kueue.Workload
		if err := c.Get(ctx, key, &wl); err != nil {
			return err
		}
		before := wl.DeepCopy()
		controllerutil.RemoveFinalizer(&wl, placeholder.Finalizer)
		return c.Patch(ctx, &wl, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}))
}

// Of says which TrainJobs are freed.
type Of struct {
	// Namespace of the TrainJobs; empty: all.
	Namespace string
	// Placed has those freed as well that wait with the placement of their last admission, where
	// nobody will write another one.
	Placed bool
}

// Free takes the gate off waiting TrainJobs, and tells out which these are. It reports
// everything that it could not free. A manager that is active would put the gate back.
func Free(ctx context.Context, c client.Client, out io.Writer, of Of) error {
	h, jobs, err := list(ctx, c, of)
	if err != nil {
		return err
	}
	if !of.Placed && h.served >= trainjob.Trainer22 {
		if h.respelt, err = respelt(ctx, c, of.Namespace); err != nil {
			return err
		}
	}
	var failures error
	changed := 0
	for i := range jobs {
		what, err := h.handBack(ctx, &jobs[i])
		if err == nil {
			err = h.unwritable(&jobs[i], what != "")
		}
		failures = errors.Join(failures, err)
		if what != "" && err == nil {
			fmt.Fprintf(out, "trainjob %s/%s: %s\n", jobs[i].Namespace, jobs[i].Name, what)
			changed++
		}
	}
	fmt.Fprintf(out, "%d of %d TrainJobs changed\n", changed, len(jobs))
	return failures
}

// Try asks the API server whether it takes a change of the TrainJobs that Free would write, and writes nothing. It
// reports the first that it does not take.
func Try(ctx context.Context, c client.Client, of Of) error {
	h, jobs, err := list(ctx, client.NewDryRunClient(c), of)
	if err != nil {
		return err
	}
	for i := range jobs {
		job := &jobs[i]
		if !job.DeletionTimestamp.IsZero() || job.Finished() || !job.Suspended() || !h.frees(job) {
			continue
		}
		err := h.dropEntry(ctx, job)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("TrainJob %s/%s cannot be changed: %w; fix that, or delete the TrainJob", job.Namespace, job.Name, err)
		}
	}
	return nil
}

// list returns the TrainJobs, and what changes them by c.
func list(ctx context.Context, c client.Client, of Of) (*handBack, []trainjob.TrainJob, error) {
	served, err := installed.Generation(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	var jobs trainjob.List
	if err := c.List(ctx, &jobs, client.InNamespace(of.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing TrainJobs: %w", err)
	}
	return &handBack{client: c, served: served, field: patch.Of(served), placed: of.Placed}, jobs.Items, nil
}

// managerIdle refuses to work against a manager that would put the gate back: it must be
// uninstalled, or stand aside for the in-tree integration. It may act in some namespaces only, so those are asked about, too,
// where TrainJobs have the gate.
func managerIdle(ctx context.Context, c client.Client, of Of) error {
	h, jobs, err := list(ctx, c, of)
	if err != nil {
		return err
	}
	namespaces := []string{metav1.NamespaceDefault}
	for i := range jobs {
		if h.field.HoldsGate(&jobs[i].Spec) && !slices.Contains(namespaces, jobs[i].Namespace) {
			namespaces = append(namespaces, jobs[i].Namespace)
		}
	}
	for _, namespace := range namespaces {
		job, err := trainjob.DryRun(ctx, c, namespace, trainjob.ProbeQueue)
		if namespace != metav1.NamespaceDefault && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
			// A ResourceQuota that is used up, or a namespace that is being deleted.
			continue
		}
		if err != nil {
			return fmt.Errorf("asking the API server what becomes of a queued TrainJob in namespace %s: %w", namespace, err)
		}
		if h.field.HoldsGate(&job.Spec) {
			return errors.New("kueue-trainer is active and would put the gate back: switch Kueue's in-tree integration on first, " +
				"see docs/in-tree.md, or uninstall kueue-trainer")
		}
	}
	return nil
}

type handBack struct {
	client client.Client
	// served is the generation of Trainer that the cluster serves, field is its field.
	served trainjob.TrainerVersion
	field  patch.Field
	// placed is Of.Placed.
	placed bool
	// respelt are the TrainJobs that have to be created again, with the field why. They lose their entry, or the in-tree
	// integration adds another to their manifest, and the API server refuses that.
	respelt map[types.UID]string
}

// handBack makes of one TrainJob what others can start, and returns what it did.
func (h *handBack) handBack(ctx context.Context, job *trainjob.TrainJob) (string, error) {
	if !job.DeletionTimestamp.IsZero() || job.Finished() {
		return "", nil
	}
	freed, err := h.free(ctx, job)
	if err != nil {
		return "", err
	}
	// Also one that lost its entry to a run that was stopped, whose Jobs have had the gate until now.
	made, err := h.makeEntry(ctx, job, freed)
	switch {
	case err != nil:
		return "", err
	case freed:
		return "gate removed", nil
	case made:
		return "entry made", nil
	}
	return "", nil
}

// createAgain says what to do with a TrainJob that nobody can start.
func createAgain(job *trainjob.TrainJob, why string) error {
	return fmt.Errorf("TrainJob %s/%s has to be created again (kubectl -n %s get trainjob %s -o yaml | kubectl replace --force -f -): %s",
		job.Namespace, job.Name, job.Namespace, job.Name, why)
}

// unwritable returns an error for a TrainJob in a queue, or that was freed, which the in-tree integration can neither start
// nor stop.
func (h *handBack) unwritable(job *trainjob.TrainJob, freed bool) error {
	queued := freed || job.Labels[kueueconstants.QueueLabel] != "" || h.field.Has(&job.Spec)
	field := h.respelt[job.UID]
	if field == "" || !queued || !job.DeletionTimestamp.IsZero() || job.Finished() {
		return nil
	}
	why := field + " is not spelt as Kubernetes writes it, such as nvidia.com/gpu: 8 for \"8\", or readOnly: false or value: \"\" (take such out), " +
		"and cannot change: the in-tree integration writes a TrainJob whole, and the API server refuses that"
	if job.Suspended() {
		return createAgain(job, why+", so it would be admitted and never start")
	}
	return fmt.Errorf("TrainJob %s/%s runs, and the in-tree integration could not stop it, for a preemption say: let it end, or delete it "+
		"and create it again: %s", job.Namespace, job.Name, why)
}

// makeEntry adds the manager's entry, empty, to a TrainJob in a queue that has none: one that waits for another cluster
// was created without, and one may have lost it to a setEntry that was stopped. The in-tree integration starts no job
// that has none (RunWithPodSetsInfo).
func (h *handBack) makeEntry(ctx context.Context, job *trainjob.TrainJob, freed bool) (bool, error) {
	queued := freed || job.ManagedExternally() || job.Labels[kueueconstants.QueueLabel] != ""
	if h.placed || h.respelt[job.UID] != "" || h.served < trainjob.Trainer22 || !queued || !job.Suspended() || h.field.Has(&job.Spec) {
		return false, nil
	}
	if err := h.setEntry(ctx, job, nil); err != nil {
		return false, fmt.Errorf("making the in-tree integration's entry of TrainJob %s: %w", client.ObjectKeyFromObject(job), err)
	}
	return true, nil
}

// free takes the gate off one TrainJob: its entry first, then its JobSet, then the child
// Jobs, which JobSet never takes anything from.
func (h *handBack) free(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	entry, err := h.freeEntry(ctx, job)
	if err != nil || !job.Suspended() {
		return entry, err
	}
	children, err := h.freeChildJobs(ctx, job)
	return entry || children, err
}

// frees reports whether the entry of a TrainJob is to be replaced.
func (h *handBack) frees(job *trainjob.TrainJob) bool {
	return (h.placed || h.respelt[job.UID] != "") && job.Suspended() && h.field.Has(&job.Spec) || h.field.HoldsGate(&job.Spec)
}

func (h *handBack) freeEntry(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	key := client.ObjectKeyFromObject(job)
	if !h.frees(job) {
		return false, nil
	}
	if !job.Suspended() {
		return false, fmt.Errorf("TrainJob %s was resumed without quota, its pods hold the gate: suspend it and run this again: "+
			"kubectl -n %s patch trainjob %s --type merge -p '{\"spec\":{\"suspend\":true}}'", key, job.Namespace, job.Name)
	}
	if h.respelt[job.UID] != "" {
		if err := h.dropEntry(ctx, job); err != nil {
			return false, fmt.Errorf("removing the entry of TrainJob %s: %w", key, err)
		}
		return true, nil
	}
	placements, err := patch.AllFreed(h.field, &job.Spec)
	if err != nil {
		return false, fmt.Errorf("TrainJob %s: %w", key, err)
	}
	freed := job.DeepCopy()
	if changed, err := h.field.Set(&freed.Spec, placements); err != nil || !changed {
		return false, err
	}
	err = h.setEntry(ctx, job, placements)
	if apierrors.IsInvalid(err) {
		return false, createAgain(job, "it cannot be changed any more, so the in-tree integration could not start it either: "+err.Error())
	}
	if err != nil {
		return false, fmt.Errorf("removing the gate from the entry of TrainJob %s: %w", key, err)
	}
	return true, nil
}

// setEntry replaces the entry, in two writes: Trainer's webhook leaves an entry alone that is new and has a time. Whoever
// is stopped between the writes has a TrainJob without an entry, which waits, and makes it by the same command.
func (h *handBack) setEntry(ctx context.Context, job *trainjob.TrainJob, placements []patch.Placement) error {
	if h.served >= trainjob.Trainer22 && h.field.Has(&job.Spec) {
		if err := h.dropEntry(ctx, job); err != nil {
			return err
		}
	}
	return h.write(ctx, job, func(spec *trainjob.Spec) error {
		if _, err := h.field.Set(spec, placements); err != nil {
			return err
		}
		return patch.Stamp(spec.RuntimePatches, metav1.Now())
	})
}

func (h *handBack) dropEntry(ctx context.Context, job *trainjob.TrainJob) error {
	return h.write(ctx, job, func(spec *trainjob.Spec) error {
		h.field.Drop(spec)
		return nil
	})
}

func (h *handBack) write(ctx context.Context, job *trainjob.TrainJob, change func(*trainjob.Spec) error) error {
	before := job.DeepCopy()
	if err := change(&job.Spec); err != nil {
		return err
	}
	return h.client.Patch(ctx, job, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// freeChildJobs brings the suspended child Jobs to the pod templates of the JobSet.
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
	changed := false
	for i := range children.Items {
		child := &children.Items[i]
		if !metav1.IsControlledBy(child, js) || !ptr.Deref(child.Spec.Suspend, false) || !patch.HasAdmissionGate(child.Spec.Template.Spec.SchedulingGates) {
			continue
		}
		if err := h.freeChildJob(ctx, child, js); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// freeJobSet takes the gate off the JobSet, also where Trainer cannot: the in-tree
// integration may have emptied our entry, of which Trainer's server-side apply makes
// "metadata: null". The label stays, with another value, for the same reason. Trainer may
// be applying an older entry, so we look again until the gate stays away. Nil means that
// there is no JobSet, or none of this TrainJob.
func (h *handBack) freeJobSet(ctx context.Context, job *trainjob.TrainJob) (*jobsetapi.JobSet, error) {
	js := &jobsetapi.JobSet{}
	key := client.ObjectKeyFromObject(job)
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, jobSetWithin, true, func(ctx context.Context) (bool, error) {
		if err := h.client.Get(ctx, key, js); err != nil {
			return true, err
		}
		if !metav1.IsControlledBy(js, job) || !slices.ContainsFunc(js.Spec.ReplicatedJobs, gatedReplicatedJob) {
			return true, nil
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
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("taking the gate from JobSet %s: %w; run this again", key, err)
	case !metav1.IsControlledBy(js, job):
		return nil, nil
	}
	return js, nil
}

// ungateJobSet is a patch of nothing but the gate and its label: our types may not know
// every field of a JobSet.
func ungateJobSet(js *jobsetapi.JobSet) (client.Patch, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	operations := []operation{{Op: "test", Path: "/metadata/resourceVersion", Value: js.ResourceVersion}}
	for i, rj := range js.Spec.ReplicatedJobs {
		if !gatedReplicatedJob(rj) {
			continue
		}
		template := fmt.Sprintf("/spec/replicatedJobs/%d/template/spec/template", i)
		gates := slices.DeleteFunc(slices.Clone(rj.Template.Spec.Template.Spec.SchedulingGates), func(gate corev1.PodSchedulingGate) bool {
			return gate.Name == patch.AdmissionGate
		})
		operations = append(operations, operation{Op: "add", Path: template + "/spec/schedulingGates", Value: &gates})
		labels := maps.Clone(rj.Template.Spec.Template.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, patch.Freed(rj.Name).Labels)
		if rj.Template.Spec.Template.Annotations == nil && rj.Template.Spec.Template.Labels == nil {
			operations = append(operations, operation{Op: "add", Path: template + "/metadata", Value: map[string]any{}})
		}
		operations = append(operations, operation{Op: "add", Path: template + "/metadata/labels", Value: labels})
	}
	data, err := json.Marshal(operations)
	return client.RawPatch(types.JSONPatchType, data), err
}

func (h *handBack) freeChildJob(ctx context.Context, child *batchv1.Job, js *jobsetapi.JobSet) error {
	index := slices.IndexFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return rj.Name == child.Labels[jobsetapi.ReplicatedJobNameKey]
	})
	if index < 0 {
		return nil
	}
	placed := child.DeepCopy()
	podset.PlaceTemplate(&placed.Spec.Template, &js.Spec.ReplicatedJobs[index].Template.Spec.Template)
	err := h.client.Patch(ctx, placed, client.MergeFrom(child))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the gate from child Job %s: %w", client.ObjectKeyFromObject(child), err)
	}
	return nil
}

func gatedReplicatedJob(rj jobsetapi.ReplicatedJob) bool {
	return patch.HasAdmissionGate(rj.Template.Spec.Template.Spec.SchedulingGates)
}
