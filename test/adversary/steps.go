// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"context"
	"math/rand/v2"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// mostBeside is how many actions of a walk are repeated at a time.
const mostBeside = 2

// random takes n steps and returns them in symbols.
func (w *walk) random(ctx context.Context, r *rand.Rand, known *schemas, n int, hints weights) []action {
	var done []action
	by := drawn.with(hints)
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
	jobs := 0
	for _, obj := range d.live {
		if obj.GetKind() == "TrainJob" {
			jobs++
		}
	}
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

// job draws a TrainJob as users make them.
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
