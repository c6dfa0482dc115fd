// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// TestSaved has who only looks know what the manager has saved, what a Workload tells since, and that
// another one is gone.
func TestSaved(t *testing.T) {
	b := NewBook(at(0))
	facts := Facts{WaitsForPods: true}
	runs, deleted := newObject("runs").reserve(10).admit(10).ready(20), newObject("deleted").reserve(10).admit(10).ready(10)
	for _, o := range []object{runs, deleted} {
		b.Observe(Read(o.Workload, facts), at(30), at(0))
	}
	b.Gone("deleted", at(40), at(40))
	b.Observe(Read(newObject("lost").reserve(40).admit(40).ready(40).Workload, facts), at(45), at(0))
	s := newStage(t, saved(encoded(t, b, at(50))))

	got := expect.Must(LoadSaved(t.Context(), s, "kueue-trainer-system"))(t)
	expect.That(t, got.Began.Equal(at(0)), "Began at %s", got.Began)
	totals := got.Totals([]Reading{Read(runs.evict(70).Workload, facts)}, func(uid types.UID) bool { return uid == "runs" }, at(80))
	sums := map[string]float64{}
	for _, total := range totals {
		if total.Resource == "nvidia.com/gpu" {
			sums[total.Is] += total.Seconds / 16
		}
	}
	want := map[string]float64{"waiting": 10, "running": 50 + 30 + 10, "stopping": 10, "deleted": 30 + 10}
	expect.Same(t, "Unexpected seconds of 16 GPUs", want, sums)
	expect.Same(t, "Writes of who only looks", 0, s.writes)

	_, err := LoadSaved(t.Context(), s, "elsewhere")
	expect.That(t, apierrors.IsNotFound(err), "LoadSaved of another namespace = %v", err)
	_, err = LoadSaved(t.Context(), newStage(t, saved([]byte("?"))), "kueue-trainer-system")
	expect.Says(t, err, "ConfigMap kueue-trainer-system/kueue-trainer-ledger: ")
}
