// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The looks of a start without an answer, by the times that the view asks for.
func TestInTreeWaits(t *testing.T) {
	start := time.Unix(0, 0)
	now, view := start, inTreeView{}
	var waits []time.Duration
	for now.Sub(start) < 2*time.Minute {
		view = view.unheard(errors.New("no answer"), now)
		wait := view.wait(now)
		waits, now = append(waits, wait.Truncate(100*time.Millisecond)), now.Add(wait)
	}
	ms := time.Millisecond
	want := append([]time.Duration{200 * ms, 400 * ms, 800 * ms, 1600 * ms}, slices.Repeat([]time.Duration{2 * time.Second}, 14)...)
	expect.Same(t, "Unexpected waits", append(want, slices.Repeat([]time.Duration{inTreeEvery}, 3)...), waits)
	expect.Same(t, "It stands aside: unexpected wait", inTreeRetry, view.heard(true).wait(now))
	expect.Same(t, "All is well: unexpected wait", inTreeEvery, view.heard(false).wait(now))
}

func TestInTreeAnswerHolds(t *testing.T) {
	start := time.Unix(0, 0)
	refused := errors.New("refused")
	tests := map[string]struct {
		view       inTreeView
		at         time.Duration
		want       answer
		wantSilent bool
	}{
		"nobody has looked":                  {want: answerUnknown},
		"no answer yet":                      {view: inTreeView{}.unheard(refused, start), at: 29 * time.Second, want: answerUnknown},
		"no answer for long":                 {view: inTreeView{}.unheard(refused, start), at: 30 * time.Second, want: answerUnknown, wantSilent: true},
		"the time counts from the first one": {view: inTreeView{}.unheard(refused, start).unheard(refused, start.Add(time.Minute)), at: 30 * time.Second, want: answerUnknown, wantSilent: true},
		"off":                                {view: inTreeView{}.heard(false), at: time.Hour, want: answerOff},
		"an answer ends the silence":         {view: inTreeView{}.unheard(refused, start).heard(true), at: time.Hour, want: answerActive},
		"an answer holds although none has come since":   {view: inTreeView{}.heard(false).unheard(refused, start), at: time.Second, want: answerOff},
		"but people hear that none has come for so long": {view: inTreeView{}.heard(false).unheard(refused, start), at: time.Minute, want: answerOff, wantSilent: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.That(t, tc.view.answer == tc.want && tc.view.silent(start.Add(tc.at)) == tc.wantSilent,
				"answer %s, silent %v; want %s, %v", tc.view.answer, tc.view.silent(start.Add(tc.at)), tc.want, tc.wantSilent)
		})
	}
}

func TestInTreeUnknownRemedy(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"no runtime": {trainjob.ErrNoRuntime, "create a ClusterTrainingRuntime, or a TrainingRuntime in namespace ours"},
		"a webhook that cannot be reached": {
			apierrors.NewInternalError(errors.New(`failed calling webhook "mtrainjob.kb.io": no endpoints available for service "kueue-webhook-service"`)),
			"look at the Service and the pods behind webhook mtrainjob.kb.io",
		},
		"a webhook that refuses": {
			apierrors.NewForbidden(trainJobsResource, "dry-run", errors.New(`admission webhook "policy.example.com" denied the request: no`)),
			"let webhook policy.example.com accept such a TrainJob in namespace ours, or add a ClusterTrainingRuntime that it accepts",
		},
		"a quota": {
			apierrors.NewForbidden(trainJobsResource, "dry-run", errors.New("exceeded quota: no-trainjobs, requested: count/trainjobs=1")),
			"take TrainJobs out of the ResourceQuotas of namespace ours",
		},
		"no permission": {
			apierrors.NewForbidden(trainJobsResource, "", errors.New(`User "us" cannot create resource "trainjobs"`)),
			"let the manager's ServiceAccount create trainjobs in namespace ours, as config/rbac has it, and let no policy refuse that",
		},
		"anything else": {context.DeadlineExceeded, "look at the API server's answer"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected inTreeUnknownRemedy", tc.want, inTreeUnknownRemedy("ours", fmt.Errorf("asking: %w", tc.err)))
		})
	}
}
