// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestBackoff(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := NewBackoff(clock)
	var waits []string
	for range 12 {
		wait := BackoffOf(r.may("job", "start"))
		waits = append(waits, wait.String())
		clock.SetTime(clock.Now().Add(wait))
		if err := r.may("job", "start"); err != nil {
			t.Fatalf("After the wait: %v", err)
		}
		r.InVain("job", "start", "undone")
	}
	want := []string{"0s", "0s", "0s", "1s", "2s", "4s", "8s", "16s", "32s", "1m0s", "1m0s", "1m0s"}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("Unexpected waits (-want,+got):\n%s", diff)
	}
	if BackoffOf(fmt.Errorf("starting: %w", r.may("job", "start"))) == 0 {
		t.Error("It has to wait")
	}
	for what, err := range map[string]error{
		"another write": r.may("job", "stop"), "another job's": r.may("other", "start"),
	} {
		if err != nil {
			t.Errorf("%s has to wait: %v", what, err)
		}
	}
	r.kept("job", "start")
	if err := r.may("job", "start"); err != nil {
		t.Errorf("It was kept, and has to wait: %v", err)
	}
	r.InVain("job", "start", "undone")
	r.Forget("job")
	if len(r.vain) > 0 {
		t.Error("What is remembered must go with the job")
	}
}

// What starts, stops and starts again on the same flavor writes the same, at any speed.
func TestKeptWritesAreFree(t *testing.T) {
	r := NewBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for range 100 {
		for _, write := range []string{"start", "suspend", "gate"} {
			inttest.Must(t, r.may("job", write))
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
			inttest.Must(t, stored.UnmarshalJSON([]byte(tc.stored)))
			got, err := tc.step.changed(&stored)
			if err != nil || got != tc.want {
				t.Errorf("changed() = %q, %v; want %q", got, err, tc.want)
			}
		})
	}
	if BackoffOf(errors.New("something else")) != 0 {
		t.Error("Another error waits for nothing")
	}
}
