// SPDX-License-Identifier: Apache-2.0

// Package jobclient reads and writes TrainJobs, and writes Workloads, under the condition that they are still what
// the manager knows (client.go, decisions.go), remembers what it wrote until the caches have
// heard of it (expectations.go), and tells refusals apart, and repeats a write that somebody
// undoes or refuses less and less often (backoff.go).
package jobclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Client writes the spec of TrainJobs under the condition that the spec is still
// the one we know, where jobframework would ask for the resourceVersion: Trainer
// writes the status right when a job starts, and every such write would be a conflict.
// Other kinds and other writes pass through.
//
// It also asks the API server itself before it calls a TrainJob missing: jobframework
// gives the quota of a missing job away, and a cache may not have heard of it.
type Client struct {
	client.Client
	live         client.Reader
	expectations *Expectations
	trainer      *peers.Trainer
	metrics      *metrics.Recorder
}

// New returns a Client that reads and writes by c, and asks live where a cache is not enough.
func New(c client.Client, live client.Reader, trainer *peers.Trainer, expectations *Expectations, recorder *metrics.Recorder) *Client {
	return &Client{Client: c, live: live, trainer: trainer, expectations: expectations, metrics: recorder}
}

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	if _, ok := obj.(*trainjob.TrainJob); ok && apierrors.IsNotFound(err) {
		return c.live.Get(ctx, key, obj, opts...)
	}
	return err
}

// Create implements client.Writer, and remembers which TrainJobs have a Workload.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if err := c.Client.Create(ctx, obj, opts...); err != nil {
		return err
	}
	if _, ok := obj.(*kueue.Workload); ok {
		if owner := metav1.GetControllerOfNoCopy(obj); owner != nil && owner.Kind == trainjob.GVK.Kind {
			c.expectations.Queued(client.ObjectKey{Namespace: obj.GetNamespace(), Name: owner.Name}, owner.UID)
		}
	}
	return nil
}

// Update implements client.Writer. jobframework knows nothing of our finalizer: where it lets a
// Workload go it takes Kueue's off, and where it makes a job the owner of one that MultiKueue copied,
// that has none yet. See remainder.
func (c *Client) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if wl, ok := obj.(*kueue.Workload); ok {
		switch goes := !wl.DeletionTimestamp.IsZero() || kueuelib.IsFinished(wl); {
		case goes && !controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName):
			controllerutil.RemoveFinalizer(wl, placeholder.Finalizer)
		case !goes && len(wl.Finalizers) == 0 && placeholder.IsCopy(wl) && metav1.GetControllerOfNoCopy(wl) != nil:
			placeholder.Hold(wl)
		}
	}
	return c.Client.Update(ctx, obj, opts...)
}

// Delete implements client.Writer. jobframework deletes a TrainJob by its name, and another one may have that by now.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if _, ok := obj.(*trainjob.TrainJob); ok {
		opts = append(opts, client.Preconditions{UID: new(obj.GetUID())})
	}
	return c.Client.Delete(ctx, obj, opts...)
}

// Patch implements client.Writer.
func (c *Client) Patch(ctx context.Context, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
	job, ok := obj.(*trainjob.TrainJob)
	if !ok || p.Type() != types.MergePatchType {
		return c.Client.Patch(ctx, obj, p, opts...)
	}
	data, err := p.Data(obj)
	if err != nil {
		return err
	}
	all, err := specChanges(data)
	if err != nil {
		return err
	}
	served, err := c.trainer.Served()
	if err != nil {
		return err
	}
	starts := string(all["suspend"]) == "false"
	for _, step := range steps(all, served) {
		if err := c.write(ctx, job, step, starts, opts...); err != nil {
			return err
		}
	}
	return nil
}

// steps splits the start of a job where Trainer wants it in two requests: up to 2.2.0 it
// lets a TrainJob change its patches only if it is suspended afterwards. Whoever dies
// between the two leaves a placed job suspended, which the next reconcile resumes.
//
// Overrides are always written before the start: when the CRD was replaced meanwhile, the
// API server drops them, and that has to be seen before the job runs without.
func steps(all changes, served trainjob.TrainerVersion) []changes {
	_, overrides := all["podTemplateOverrides"]
	if served >= trainjob.Trainer23 && !overrides || string(all["suspend"]) != "false" || len(all) == 1 {
		return []changes{all}
	}
	placed := maps.Clone(all)
	delete(placed, "suspend")
	return []changes{placed, {"suspend": all["suspend"]}}
}

// write changes fields of the spec in one request, which starts the job or is a step to that.
func (c *Client) write(ctx context.Context, job *trainjob.TrainJob, step changes, starts bool, opts ...client.PatchOption) error {
	// What was decoded from JSON can be encoded.
	what, _ := json.Marshal(step)
	if err := c.expectations.may(job, string(what)); err != nil {
		return err
	}
	refused := func() {}
	if string(step["suspend"]) == "false" {
		refused = c.expectations.ExpectResume(job)
	}
	known := job.ObjectMeta.DeepCopy()
	if err := c.Client.Patch(ctx, job, guardedPatch(step, starts, &job.ObjectMeta), opts...); err != nil {
		refusal := c.refused(ctx, job, known, err)
		if decides(refusal) || TrainerLags(refusal) {
			refused()
		}
		if decides(refusal) && refusal == err { //nolint:errorlint // the very same error: anything else is a view that was overtaken
			c.expectations.reverted(&trainjob.TrainJob{ObjectMeta: *known}, string(what),
				fmt.Sprintf("a write of kueue-trainer is refused again and again, and repeated less and less often: %v", refusal))
		}
		return refusal
	}
	c.expectations.wrote(job)
	changed := c.compare(job, step, string(what))
	if step.sets("podTemplateOverrides") && job.Spec.PodTemplateOverrides == nil ||
		step.sets("runtimePatches") && job.Spec.RuntimePatches == nil {
		return apierrors.NewConflict(Resource, job.Name, errDropped)
	}
	return changed
}

// compare takes note whether the write of a step is stored as it was meant, and returns
// backoffError where it is not: whatever runs then, its user has to know.
func (c *Client) compare(job *trainjob.TrainJob, step changes, what string) error {
	field, err := step.changed(&job.Spec)
	if err != nil {
		return err
	}
	if field == "" {
		c.expectations.kept(job, what)
		return nil
	}
	c.expectations.reverted(job, what, undone(field))
	c.metrics.Wrote(Resource.Resource, metrics.WriteInVain)
	return &backoffError{wait: max(minWait, BackoffOf(c.expectations.may(job, what))), why: undone(field)}
}

// refused tells a view that was overtaken, which is a conflict, from other refusals that
// look like it: a webhook may answer 422 as well.
func (c *Client) refused(ctx context.Context, job *trainjob.TrainJob, known *metav1.ObjectMeta, refusal error) error {
	if !failedTest(refusal) {
		return refusal
	}
	live := &trainjob.TrainJob{}
	err := c.live.Get(ctx, client.ObjectKeyFromObject(job), live)
	if err == nil && live.UID != known.UID {
		return apierrors.NewConflict(Resource, job.Name, refusal)
	}
	if err != nil || live.Generation <= known.Generation && decidedAlike(&live.ObjectMeta, known) {
		return refusal
	}
	c.expectations.expect(live)
	return apierrors.NewConflict(Resource, job.Name, refusal)
}

// Resource is that of TrainJobs, for errors about them.
var Resource = schema.GroupResource{Group: trainjob.GVK.Group, Resource: "trainjobs"}

// errDropped is what happens while Trainer is upgraded: our view of the CRD is older, or
// newer, than what the API server goes by.
var errDropped = errors.New("the API server does not have the field that the patches were written to")

// changes are new values of fields of a TrainJob's spec, by the fields' names.
type changes map[string]json.RawMessage

// sets reports whether the field gets a value; one that is removed is null.
func (c changes) sets(field string) bool {
	return c[field] != nil && string(c[field]) != "null"
}

// ownFields are the fields of a TrainJob's spec that the manager writes. None of them
// holds an object, so a merge patch always gives them whole.
var ownFields = []string{"managedBy", "podTemplateOverrides", "runtimePatches", "suspend"}

// specChanges returns the fields of the spec that a merge patch changes.
func specChanges(merge []byte) (changes, error) {
	var patch struct {
		Metadata map[string]any `json:"metadata"`
		Spec     changes        `json:"spec"`
	}
	if err := json.Unmarshal(merge, &patch); err != nil {
		return nil, err
	}
	delete(patch.Metadata, "resourceVersion")
	if len(patch.Metadata) > 0 {
		return nil, fmt.Errorf("patch of a TrainJob changes more than its spec: %s", merge)
	}
	for field := range patch.Spec {
		if !slices.Contains(ownFields, field) {
			return nil, fmt.Errorf("patch of a TrainJob changes spec.%s, which is not ours: %s", field, merge)
		}
	}
	return patch.Spec, nil
}

// guardedPatch makes a JSON patch that tests the generation first: the API server counts
// it up with every change of a spec. It does not for labels, so a start tests those as well
// that decide which admission is the job's, in each of its steps: the answer to one is what the next one knows. A stop tests
// neither: nobody shall be able to put it off by changing the job again and again.
func guardedPatch(step changes, starts bool, known *metav1.ObjectMeta) client.Patch {
	ops := []jsonpatch.JsonPatchOperation{
		// Another job of the same name has the same generations.
		jsonpatch.NewOperation("test", "/metadata/uid", known.UID),
	}
	if len(step) > 1 || string(step["suspend"]) != "true" {
		ops = append(ops, jsonpatch.NewOperation("test", "/metadata/generation", known.Generation))
	}
	if starts {
		ops = append(ops, decisionTests(known)...)
	}
	for _, field := range slices.Sorted(maps.Keys(step)) {
		op := jsonpatch.NewOperation("add", "/spec/"+field, step[field])
		if !step.sets(field) {
			op = jsonpatch.NewOperation("remove", "/spec/"+field, nil)
		}
		ops = append(ops, op)
	}
	// What was decoded from JSON can be encoded.
	data, _ := json.Marshal(ops)
	return client.RawPatch(types.JSONPatchType, data)
}

// PatchWorkload writes what was changed of a Workload, if that is still stored as wl. An error says by format what was done to
// which one.
func PatchWorkload(ctx context.Context, c client.Client, wl, changed *kueue.Workload, format string) error {
	return of(wl, format, c.Patch(ctx, changed, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{})))
}

// PatchWorkloadStatus is PatchWorkload for the status.
func PatchWorkloadStatus(ctx context.Context, c client.Client, wl, changed *kueue.Workload, format string) error {
	return of(wl, format, c.Status().Patch(ctx, changed, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{})))
}

// DeleteWorkload deletes a Workload, unless it is gone. An error says by format which one.
func DeleteWorkload(ctx context.Context, c client.Client, wl *kueue.Workload, format string) error {
	return of(wl, format, client.IgnoreNotFound(c.Delete(ctx, wl, client.Preconditions{UID: &wl.UID})))
}

// GiveUpWorkload deletes a Workload, unless it is gone, if it is still stored as we know it.
func GiveUpWorkload(ctx context.Context, c client.Client, wl *kueue.Workload) error {
	err := c.Delete(ctx, wl, client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
	return of(wl, "giving up Workload %s", client.IgnoreNotFound(err))
}

// of has an error say by format what was done to a Workload.
func of(wl *kueue.Workload, format string, err error) error {
	if err != nil {
		return fmt.Errorf(format+": %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}
