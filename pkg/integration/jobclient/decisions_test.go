// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"errors"
	"fmt"
	"testing"
	"time"

	// The library that the API server applies JSON patches with.
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestDecisionTests(t *testing.T) {
	const (
		queue    = "kueue.x-k8s.io/queue-name"
		prebuilt = "kueue.x-k8s.io/prebuilt-workload-name"
	)
	meta := func(labels, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Labels: labels, Annotations: annotations}
	}
	cases := map[string]struct {
		known, live metav1.ObjectMeta
		want        bool
	}{
		"the same":                      {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a"}, nil), want: true},
		"none at all":                   {want: true},
		"another label came":            {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", "b": "c"}, nil), want: true},
		"another queue":                 {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "b"}, nil)},
		"the last label went":           {known: meta(map[string]string{queue: "a"}, nil)},
		"the first label came":          {live: meta(map[string]string{queue: "a"}, nil)},
		"the time limit went":           {known: meta(map[string]string{queue: "a", "kueue.x-k8s.io/max-exec-time-seconds": "9"}, nil), live: meta(map[string]string{queue: "a"}, nil)},
		"a time limit came":             {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", "kueue.x-k8s.io/max-exec-time-seconds": "9"}, nil)},
		"a priority came":               {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", "kueue.x-k8s.io/priority-class": "p"}, nil)},
		"a prebuilt Workload came":      {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", prebuilt: "w"}, nil)},
		"the same by annotation":        {known: meta(nil, map[string]string{"a": "b"}), live: meta(nil, map[string]string{"a": "b", prebuilt: "w"})},
		"another annotation came":       {known: meta(nil, map[string]string{"a": "b"}), live: meta(nil, map[string]string{"a": "c", "d": "e"}), want: true},
		"an empty value is one":         {known: meta(map[string]string{queue: "a"}, nil), live: meta(map[string]string{queue: "a", prebuilt: ""}, nil)},
		"empty maps are none":           {known: meta(map[string]string{}, map[string]string{}), want: true},
		"an empty value that was there": {known: meta(map[string]string{queue: "a", prebuilt: ""}, nil), live: meta(map[string]string{queue: "a", prebuilt: ""}, nil), want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected decidedAlike", tc.want, decidedAlike(&tc.live, &tc.known))
			err := applied(t, &tc.known, &tc.live)
			expect.That(t, (err == nil) == tc.want, "The tests say %v, want them to hold: %t", err, tc.want)
		})
	}
}

// applied returns what the API server's library says to the tests made of known on an object.
func applied(t *testing.T, known, live *metav1.ObjectMeta) error {
	t.Helper()
	patch := expect.Must(jsonpatch.DecodePatch([]byte(expect.JSON(t, decisionTests(known)))))(t)
	for _, operation := range patch {
		_, has := operation["value"]
		expect.That(t, has, "An older API server panics at %v", operation)
	}
	_, err := patch.Apply([]byte(expect.JSON(t, map[string]any{"metadata": live})))
	return err
}

func TestBackoff(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := NewExpectations(clock)
	var waits []string
	for range 12 {
		wait := BackoffOf(r.may(jobAt(1), "start"))
		waits = append(waits, wait.String())
		clock.SetTime(clock.Now().Add(wait))
		expect.NoError(t, r.may(jobAt(1), "start"))
		r.reverted(jobAt(1), "start", "undone")
	}
	want := []string{"0s", "0s", "0s", "1s", "2s", "4s", "8s", "16s", "32s", "1m0s", "1m0s", "1m0s"}
	expect.Same(t, "Unexpected waits", want, waits)
	expect.That(t, BackoffOf(fmt.Errorf("starting: %w", r.may(jobAt(1), "start"))) != 0, "It has to wait")
	for what, err := range map[string]error{
		"another write": r.may(jobAt(1), "stop"), "another job's": r.may(inttest.Job("other"), "start"),
	} {
		expect.That(t, err == nil, "%s has to wait: %v", what, err)
	}
	r.kept(jobAt(1), "start")
	expect.NoError(t, r.may(jobAt(1), "start"))
}

func TestChanged(t *testing.T) {
	gated := changes{"runtimePatches": []byte(`[{"manager":"example.com/a"},` + inttest.Gate + `]`), "suspend": []byte("false")}
	tests := map[string]struct {
		step   changes
		stored string
		want   string
	}{
		"kept":                       {gated, `{"suspend":false,"runtimePatches":[{"manager":"example.com/a"},` + inttest.Gate + `]}`, ""},
		"somebody else's may change": {gated, `{"suspend":false,"runtimePatches":[{"manager":"example.com/b"},` + inttest.Gate + `]}`, ""},
		"ours is gone":               {gated, `{"suspend":false,"runtimePatches":[{"manager":"example.com/a"}]}`, "spec.runtimePatches"},
		"all are gone":               {gated, `{"suspend":false}`, "spec.runtimePatches"},
		"ours says something else":   {gated, `{"suspend":false,"runtimePatches":[{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[]}}}}]}`, "spec.runtimePatches"},
		"suspended again":            {gated, `{"suspend":true,"runtimePatches":[` + inttest.Gate + `]}`, "spec.suspend"},
		"only suspend was set":       {changes{"suspend": []byte("true")}, `{"suspend":true}`, ""},
		"a field was taken away":     {changes{"runtimePatches": []byte("null")}, `{}`, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var stored trainjob.Spec
			expect.NoError(t, stored.UnmarshalJSON([]byte(tc.stored)))
			expect.Same(t, "Unexpected changed", tc.want, expect.Must(tc.step.changed(&stored))(t))
		})
	}
	expect.That(t, BackoffOf(errors.New("something else")) == 0, "Another error waits for nothing")
}

func TestStoppedBeforeResume(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(100, 0))
	e := NewExpectations(clock)
	_, pending := e.StoppedBeforeResume(jobAt(1))
	expect.That(t, !pending, "A job that was never resumed is expected to be")
	e.ExpectResume(jobAt(1))
	_, pending = e.StoppedBeforeResume(jobAt(1))
	expect.That(t, !pending, "A view from before the resume tells of a stop")
	at, pending := e.StoppedBeforeResume(jobAt(3))
	expect.That(t, pending && at.Equal(clock.Now()), "Stopped at %s, %t; want %s, when the stop was seen", at, pending, clock.Now())
	seen := clock.Now()
	clock.SetTime(seen.Add(time.Minute))
	at, _ = e.StoppedBeforeResume(jobAt(3))
	expect.That(t, at.Equal(seen), "At a second look it stopped at %s, want %s", at, seen)
	e.SawResumed(jobAt(3))
	_, pending = e.StoppedBeforeResume(jobAt(3))
	expect.That(t, !pending, "A resume that was seen is still expected")
	refused := e.ExpectResume(jobAt(4))
	refused()
	_, pending = e.StoppedBeforeResume(jobAt(5))
	expect.That(t, !pending, "A resume that was refused is expected")
}

func TestOutdatedVersionsAreLeftAlone(t *testing.T) {
	key := types.NamespacedName{Namespace: "team", Name: "llm"}
	at := func(uid types.UID, version string) []*kueue.Workload {
		return []*kueue.Workload{{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}}
	}
	old, current := at("uid", "5"), at("uid", "6")
	e := ledFrom(time.Time{})
	expect.That(t, !e.Outdated(key, old), "a version is outdated before anybody said so")
	e.Outdate(key, old[0])
	expect.That(t, e.Outdated(key, old) && !e.Outdated(types.NamespacedName{Namespace: "other", Name: "llm"}, old),
		"a version that was overtaken is not outdated, or another job's is")
	expect.That(t, !e.Outdated(key, current), "the newer version is outdated")

	e.Outdate(key, old[0])
	e.byName[key].old[versionOf(old[0])] = time.Now().Add(-time.Minute)
	expect.That(t, !e.Outdated(key, old), "a version is outdated for ever, although nothing newer came")

	others := at("other", "1")
	e.Outdate(key, old[0])
	e.Outdate(key, others[0])
	expect.That(t, e.Outdated(key, append(others, old...)) && e.Outdated(key, append(others, current...)),
		"with several Workloads, one that is still old does not count")
	expect.That(t, !e.Outdated(key, append(at("other", "2"), current...)), "all Workloads are newer, and still outdated")
}

func TestOvertakenWorkload(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
	}{
		"a Workload was overtaken": {err: apierrors.NewConflict(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("modified")), want: "wl"},
		"a TrainJob was":           {err: apierrors.NewConflict(Resource, "llm", errors.New("modified"))},
		"a Workload was refused":   {err: apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("no"))},
		"nothing happened":         {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected overtakenWorkload", tc.want, ConflictingWorkload(tc.err))
		})
	}
}
