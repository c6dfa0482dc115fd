// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"errors"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTroubles(t *testing.T) {
	job := inttest.Job("a")
	warn := func(reason string) func(*Recorder) {
		return func(r *Recorder) { r.Warn(job, reason, ActionStart, errors.New("why")) }
	}
	looked := func(r *Recorder) { r.Looked("a") }
	tests := map[string]struct {
		do   []func(*Recorder)
		want string
	}{
		"nothing was told":                     {},
		"a look that is not over":              {do: []func(*Recorder){warn(ReasonCannotStart)}},
		"a Warning":                            {do: []func(*Recorder){warn(ReasonCannotStart), looked}, want: ReasonCannotStart},
		"a Warning that is no news":            {do: []func(*Recorder){warn(ReasonCannotStart), looked, warn(ReasonCannotStart), looked}, want: ReasonCannotStart},
		"the first of two":                     {do: []func(*Recorder){warn(ReasonCannotStart), warn(ReasonRefused), looked}, want: ReasonCannotStart},
		"the next look found nothing":          {do: []func(*Recorder){warn(ReasonCannotStart), looked, looked}},
		"a state that somebody means":          {do: []func(*Recorder){func(r *Recorder) { r.WarnOfState(job, ActionQueue, ReasonDeactivated, "why") }, looked}},
		"what comes right by itself":           {do: []func(*Recorder){warn(ReasonCheckRetries), looked}},
		"a migration":                          {do: []func(*Recorder){func(r *Recorder) { r.Note("a", ReasonNotAlone) }, looked}},
		"what is told and is no trouble":       {do: []func(*Recorder){func(r *Recorder) { r.Eventf(job, nil, corev1.EventTypeNormal, ReasonStarted, ActionStart, "x") }, looked}},
		"what nobody is told, but still holds": {do: []func(*Recorder){func(r *Recorder) { r.Note("a", ReasonNotStarted) }, looked}, want: ReasonNotStarted},
		"another TrainJob":                     {do: []func(*Recorder){func(r *Recorder) { r.Note("b", ReasonNotStarted); r.Looked("b") }, looked}},
		"a TrainJob that is gone":              {do: []func(*Recorder){warn(ReasonCannotStart), looked, func(r *Recorder) { r.Forget("a") }}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := New(&events.FakeRecorder{})
			for _, do := range tc.do {
				do(r)
			}
			expect.Same(t, "Unexpected Trouble", tc.want, r.Trouble("a"))
		})
	}
}
