// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestBackoff(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := NewBackoff(clock)
	var waits []string
	for range 12 {
		wait := BackoffOf(r.may("job", "start"))
		waits = append(waits, wait.String())
		clock.SetTime(clock.Now().Add(wait))
		expect.NoError(t, r.may("job", "start"))
		r.InVain("job", "start", "undone")
	}
	want := []string{"0s", "0s", "0s", "1s", "2s", "4s", "8s", "16s", "32s", "1m0s", "1m0s", "1m0s"}
	expect.Same(t, "Unexpected waits", want, waits)
	expect.That(t, BackoffOf(fmt.Errorf("starting: %w", r.may("job", "start"))) != 0, "It has to wait")
	for what, err := range map[string]error{
		"another write": r.may("job", "stop"), "another job's": r.may("other", "start"),
	} {
		expect.That(t, err == nil, "%s has to wait: %v", what, err)
	}
	r.kept("job", "start")
	expect.NoError(t, r.may("job", "start"))
	r.InVain("job", "start", "undone")
	r.Forget("job")
	expect.That(t, len(r.vain) == 0, "What is remembered must go with the job")
}

// What starts, stops and starts again on the same flavor writes the same, at any speed.
func TestKeptWritesAreFree(t *testing.T) {
	r := NewBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for range 100 {
		for _, write := range []string{"start", "suspend", "gate"} {
			expect.NoError(t, r.may("job", write))
			r.kept("job", write)
		}
	}
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
