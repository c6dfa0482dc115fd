// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	mergepatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// do carries an action out. That the API server refuses it is an answer like another.
func (w *walk) do(ctx context.Context, a action) {
	select {
	case <-time.After(a.After):
	case <-ctx.Done():
		return
	}
	live, symbolic := w.seen(), a
	a.Name, a.Body = w.concrete(a.Name, live), w.concrete(a.Body, live)
	err := w.request(ctx, a)
	w.note(a, answerOf(err))
	if a.Back != "" && err == nil {
		w.beside++
		go w.repeat(symbolic)
	}
}

func answerOf(err error) string {
	if err == nil {
		return "done"
	}
	return string(apierrors.ReasonForError(err)) + " " + err.Error()
}

func (w *walk) note(a action, answer string) {
	fmt.Fprintf(w.log, "%s %s %s %s %.300s: %.300s\n", time.Now().Format("15:04:05.000"), a.Verb, a.Resource, a.Name, a.Body, answer)
}

// pause is between the requests of what is repeated: many more of them, by several tenants, and two cores do nothing else.
const pause = 25 * time.Millisecond

// repeat takes a patch back and makes it again, in turn, of whatever has the name by then.
func (w *walk) repeat(a action) {
	bodies := []string{a.Back, a.Body}
	answers := map[string]int{}
	for n := 0; ; n++ {
		select {
		case <-time.After(pause):
		case <-w.repeated.Done():
			w.note(a, fmt.Sprintf("repeated %d times: %v", n, answers))
			return
		}
		live := w.seen()
		next := a
		next.Name, next.Body = w.concrete(a.Name, live), w.concrete(bodies[n%2], live)
		answers[string(apierrors.ReasonForError(w.request(w.repeated, next)))]++
	}
}

func (w *walk) request(ctx context.Context, a action) error {
	w.sent.Add(1)
	on := w.asTenant.Resource(a.gvr()).Namespace(w.Namespace)
	var subresources []string
	if a.Subresource != "" {
		subresources = []string{a.Subresource}
	}
	switch a.Verb {
	case finish:
		return w.end(ctx, a.Name, a.Body)
	case neighbour:
		return w.toggle(ctx, a.Name)
	case create:
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(a.Body), &obj.Object); err != nil {
			return err
		}
		obj.SetNamespace(w.Namespace)
		_, err := on.Create(ctx, obj, metav1.CreateOptions{}, subresources...)
		return err
	case update:
		return w.update(ctx, on, a, subresources)
	case merge, jsonPatch, apply, applyForce:
		options := metav1.PatchOptions{}
		kind := map[verb]types.PatchType{merge: types.MergePatchType, jsonPatch: types.JSONPatchType, apply: types.ApplyPatchType, applyForce: types.ApplyPatchType}[a.Verb]
		if kind == types.ApplyPatchType {
			options.FieldManager, options.Force = "tenant", new(a.Verb == applyForce)
		}
		_, err := on.Patch(ctx, a.Name, kind, []byte(a.Body), options, subresources...)
		return err
	}
	propagation := metav1.DeletionPropagation(a.Propagation)
	options := metav1.DeleteOptions{PropagationPolicy: &propagation, GracePeriodSeconds: a.Grace}
	if a.Verb == deleteCollection {
		return on.DeleteCollection(ctx, options, metav1.ListOptions{})
	}
	return on.Delete(ctx, a.Name, options, subresources...)
}

// update sends the whole object as it is to be after a merge patch.
func (w *walk) update(ctx context.Context, on dynamic.ResourceInterface, a action, subresources []string) error {
	obj, err := on.Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	merged, err := mergepatch.MergePatch([]byte(encode(obj.Object)), []byte(a.Body))
	if err != nil {
		return err
	}
	if err := obj.UnmarshalJSON(merged); err != nil {
		return err
	}
	_, err = on.Update(ctx, obj, metav1.UpdateOptions{}, subresources...)
	return err
}

// end ends the pods of a TrainJob.
func (w *walk) end(ctx context.Context, job, how string) error {
	var errs []error
	for _, pod := range w.Pods(ctx, job) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"localcluster/finish":%q}}}`, how))
		errs = append(errs, client.IgnoreNotFound(w.Patch(ctx, &pod, patch)))
	}
	return errors.Join(errs...)
}

// toggle starts the neighbour's TrainJob, or deletes the one that is there.
func (w *walk) toggle(ctx context.Context, priority string) error {
	job := w.neighbour.Job("toggled").GPUs(quota)
	if priority != "" {
		job.Priority(priority)
	}
	err := w.Create(ctx, job.Obj())
	if apierrors.IsAlreadyExists(err) {
		return w.Delete(ctx, job.Obj())
	}
	return err
}
