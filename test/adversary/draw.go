// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// weights say how often a resource or a verb is drawn, in the place of 1.
type weights map[string]int

// drawn is how often without hints: what a TrainJob's way to its pods is made of before all.
var drawn = weights{
	"trainjobs": 8, "jobsets": 6, "jobs": 6, "pods": 8, "workloads": 3, "trainingruntimes": 3, "localqueues": 2, "configmaps": 2,
	"patch": 4, "create": 3, "update": 2, "delete": 2,
}

func (w weights) of(name string) int {
	if n, ok := w[name]; ok {
		return n
	}
	return 1
}

func (d *drawer) pickWeighted(names []string, by weights) string {
	var all []string
	for _, name := range names {
		all = append(all, slices.Repeat([]string{name}, by.of(name))...)
	}
	return pick(d.Rand, all)
}

// action draws one of the tenant's, in the words of this walk.
func (d *drawer) action(resources []resource, by weights) (action, bool) {
	byName := map[string][]resource{}
	for _, r := range resources {
		byName[r.Resource] = append(byName[r.Resource], r)
	}
	r := pick(d.Rand, byName[d.pickWeighted(slices.Sorted(maps.Keys(byName)), by)])
	a := action{
		After: time.Duration(d.IntN(100)) * time.Millisecond, Resource: r.arg(), Subresource: r.subresource,
		Propagation: pick(d.Rand, []string{"Background", "Foreground", "Orphan"}),
		Grace:       pick(d.Rand, []*int64{nil, nil, new(int64(0)), new(int64(5)), new(int64(3600))}),
	}
	there := ofResource(d.live, r.Resource)
	what := d.pickWeighted(r.verbs, by)
	if len(there) == 0 {
		if what != "create" || r.subresource != "" {
			return a, false
		}
		a.Verb, a.Body = create, encode(d.made(r))
		return a, true
	}
	obj := pick(d.Rand, there)
	a.Name = obj.GetName()
	switch what {
	case "create":
		a.Verb, a.Body = create, encode(d.copied(obj, r))
	case "delete":
		a.Verb = remove
	case "deletecollection":
		a.Verb, a.Name = deleteCollection, ""
	default:
		return d.write(a, obj, what)
	}
	return a, true
}

// write draws a change of an object, and the request that makes it.
func (d *drawer) write(a action, obj *unstructured.Unstructured, what string) (action, bool) {
	section := pick(d.Rand, []string{"spec", "spec", "metadata"})
	switch {
	case a.Subresource == "status":
		section = "status"
	case a.Subresource != "":
		section = "spec"
	case obj.Object["spec"] == nil && section == "spec":
		section = pick(d.Rand, slices.Sorted(maps.Keys(obj.Object)))
	}
	c, ok := d.change(obj, section)
	if !ok || len(c.path) == 1 && slices.Contains([]string{"apiVersion", "kind", "metadata"}, c.path[0]) {
		return a, false
	}
	merged, back, operations, err := c.patches(obj.Object)
	a.Verb, a.Body = update, merged
	if err != nil || what == "update" {
		return a, err == nil
	}
	if d.one(8) && merged != "{}" {
		a.Verb, a.Back = merge, back
		return a, true
	}
	switch a.Verb = pick(d.Rand, []verb{merge, jsonPatch, apply, applyForce}); a.Verb {
	case jsonPatch:
		a.Body = operations
	case apply, applyForce:
		own := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(merged), &own.Object); err != nil {
			return a, false
		}
		own.SetGroupVersionKind(obj.GroupVersionKind())
		own.SetName(obj.GetName())
		a.Body = encode(own.Object)
	}
	return a, true
}

// made draws an object of a kind of which there is none.
func (d *drawer) made(r resource) map[string]any {
	out := map[string]any{"apiVersion": r.kind.GroupVersion().String(), "kind": r.kind.Kind, "metadata": map[string]any{"name": pick(d.Rand, names)}}
	of := d.schemas.kinds[r.kind]
	for _, section := range d.schemas.fields(of) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, section) {
			out[section] = d.any(d.schemas.resolve(d.schemas.field(of, section)), 0)
		}
	}
	return out
}

// copied draws a look-alike of an object, with one thing changed, under a name that another may come to
// need; of a subresource, what that takes.
func (d *drawer) copied(obj *unstructured.Unstructured, r resource) map[string]any {
	if r.subresource != "" {
		out := d.made(r)
		out["metadata"] = map[string]any{"name": obj.GetName()}
		return out
	}
	out := obj.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp", "generateName"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	if obj.GetKind() == "Job" {
		// The API server sets these for every Job.
		unstructured.RemoveNestedField(out.Object, "spec", "selector")
		for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"} {
			unstructured.RemoveNestedField(out.Object, "spec", "template", "metadata", "labels", label)
		}
	}
	if d.one(2) {
		unstructured.RemoveNestedField(out.Object, "spec", "nodeName")
	}
	out.SetName(d.otherName(obj))
	section := pick(d.Rand, []string{"spec", "metadata"})
	if c, ok := d.change(out, section); ok && len(c.path) > 1 {
		c.applyTo(out.Object)
	}
	return out.Object
}

// names are those of the jobs that are made in a walk. Child Jobs of the first two have one name.
var names = []string{"a", "a-b", "first", "second"}

// otherName is the name of an object as that of one that does not exist yet, or a new one.
func (d *drawer) otherName(obj *unstructured.Unstructured) string {
	for _, name := range names {
		if strings.HasPrefix(obj.GetName(), name) && d.one(2) {
			return pick(d.Rand, names) + strings.TrimPrefix(obj.GetName(), name)
		}
	}
	return fmt.Sprintf("%s-%d", obj.GetName(), d.IntN(9))
}

// mostBeside is how many actions of a walk are repeated at a time.
const mostBeside = 2

// random takes n steps and returns them in symbols.
func (w *walk) random(ctx context.Context, r *rand.Rand, known *schemas, n int, hints weights) []action {
	var done []action
	by := maps.Clone(drawn)
	maps.Copy(by, hints)
	for len(done) < n && ctx.Err() == nil {
		live := w.seen()
		d := &drawer{Rand: r, schemas: known, live: live}
		a, ok := d.step(w, by)
		if !ok {
			continue
		}
		if w.beside == mostBeside {
			a.Back = ""
		}
		a.Name, a.Body, a.Back = w.abstract(a.Name, live), w.abstract(a.Body, live), w.abstract(a.Back, live)
		done = append(done, a)
		w.do(ctx, a)
	}
	return done
}

// step draws what happens next: a job is made, ends or is preempted, or the tenant does something.
func (d *drawer) step(w *walk, by weights) (action, bool) {
	jobs := len(ofResource(d.live, "trainjobs"))
	after := time.Duration(d.IntN(300)) * time.Millisecond
	what := d.IntN(20)
	switch {
	case jobs == 0 || jobs < 3 && d.one(10):
		return action{After: after, Verb: create, Resource: "trainjobs.v1alpha1.trainer.kubeflow.org", Body: encode(d.job(w.Namespace))}, true
	case what == 0:
		return action{After: after, Verb: finish, Name: pick(d.Rand, names), Body: pick(d.Rand, []string{"succeeded", "succeeded", "failed"})}, true
	case what == 1:
		return action{After: after, Verb: neighbour, Name: pick(d.Rand, []string{"", "high-{SUFFIX}"})}, true
	}
	return d.action(w.resources, by)
}

func (d *drawer) job(namespace string) map[string]any {
	job := kit.TrainJob(namespace, pick(d.Rand, names)).Queue("queue").GPUs(quota)
	if d.one(2) {
		job.PodAnnotations("example.com/user", "localcluster/terminate-after", pick(d.Rand, []string{"6s", "16s"}), "node")
	}
	if d.one(3) {
		job.Spec.RuntimeRef = trainer.RuntimeRef{APIGroup: &trainer.GroupVersion.Group, Kind: new("TrainingRuntime"), Name: "two"}
		job.GPUs("4")
	}
	if d.one(8) {
		// Trainer makes more than a JobSet of this one.
		job.Runtime("deepspeed-distributed")
	}
	if d.one(4) {
		job.Finalizers = []string{"example.com/mine"}
	}
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job.Obj())
	if err != nil {
		panic(err) // A type that does not convert is ours.
	}
	delete(obj, "status")
	obj["apiVersion"], obj["kind"] = trainer.GroupVersion.String(), "TrainJob"
	return obj
}
