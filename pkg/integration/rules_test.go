// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// docs/architecture.md lists the rules of each phase, in their order. One that is missing, or that comes too late, is a
// difference there.
func TestRulesAreThoseOfTheDocs(t *testing.T) {
	names := func(rules []rule) string {
		var out []string
		for _, of := range rules {
			name := runtime.FuncForPC(reflect.ValueOf(of).Pointer()).Name()
			out = append(out, name[strings.LastIndex(name, ".")+1:])
		}
		return strings.Join(out, ", ")
	}
	var lines []string
	for _, p := range []phase{phaseGone, phaseDeleting, phaseFinished, phaseSuspended, phaseRunning} {
		lines = append(lines, string(p))
		for _, part := range []struct {
			name  string
			rules []rule
		}{{"before", rulesOf(p).before}, {"always", rulesOf(p).always}, {"settled", rulesOf(p).settled}} {
			if len(part.rules) > 0 {
				lines = append(lines, fmt.Sprintf("  %-8s %s", part.name, names(part.rules)))
			}
		}
	}
	page := string(expect.Must(os.ReadFile("../../docs/architecture.md"))(t))
	want := strings.Join(lines, "\n")
	expect.That(t, strings.Contains(page, "```text\n"+want+"\n```"), "docs/architecture.md does not have the rules as they are:\n%s", want)
}

// The first rule that ends a reconcile is the last of those before jobframework's look, and an error ends it too.
func TestUntilEnd(t *testing.T) {
	wrong := errors.New("wrong")
	minute, second := result{again: time.Minute}, result{again: time.Second}
	tests := map[string]struct {
		rules []result
		want  result
		asked int
	}{
		"none has anything to say":         {rules: []result{{}, {}}, asked: 2},
		"the earliest time counts":         {rules: []result{minute, second, {}}, want: second, asked: 3},
		"one ends it":                      {rules: []result{minute, lookAgain(time.Second), second}, want: lookAgain(time.Second), asked: 2},
		"one that does not queue":          {rules: []result{unqueued(time.Second), minute}, want: unqueued(time.Second), asked: 1},
		"a view from before our own write": {rules: []result{{done: true, stale: true}, minute}, want: result{done: true, stale: true}, asked: 1},
		"one comes to an error":            {rules: []result{minute, ofError(wrong), done(nil)}, want: result{again: time.Minute, err: wrong}, asked: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			asked := 0
			var rules []rule
			for _, r := range tc.rules {
				rules = append(rules, func(context.Context, *job) result { asked++; return r })
			}
			got := untilEnd(t.Context(), &job{}, rules)
			expect.That(t, got == tc.want && asked == tc.asked, "it came to %+v by %d rules, want %+v by %d", got, asked, tc.want, tc.asked)
		})
	}
}

// A rule that brings the job into another phase is the last of the settled ones; an error keeps none of the others from
// being followed.
func TestAll(t *testing.T) {
	wrong, asked := errors.New("wrong"), 0
	fails := func(context.Context, *job) result { asked++; return ofError(wrong) }
	suspends := func(_ context.Context, j *job) result { asked++; j.Suspend(); return result{} }
	j := &job{observed: observed{TrainJob: *inttest.Job("uid")}}
	j.Spec.Suspend = new(false)
	got := all(t.Context(), j, []rule{fails, fails, suspends, fails})
	expect.That(t, errors.Is(got.err, wrong) && asked == 3, "it came to %+v by %d rules, want the error by 3", got, asked)
}

// A job is in one phase, whatever else is true of it.
func TestPhase(t *testing.T) {
	ended := inttest.True(trainer.TrainJobComplete, "")
	tests := map[phase]func(*trainjob.TrainJob){
		phaseGone: func(j *trainjob.TrainJob) { *j = trainjob.TrainJob{} },
		phaseDeleting: func(j *trainjob.TrainJob) {
			j.DeletionTimestamp = new(metav1.Now())
			j.Status.Conditions = []metav1.Condition{ended}
		},
		phaseFinished:  func(j *trainjob.TrainJob) { j.Status.Conditions = []metav1.Condition{ended} },
		phaseSuspended: func(j *trainjob.TrainJob) { j.Spec.Suspend = new(true) },
		phaseRunning:   func(j *trainjob.TrainJob) { j.Spec.Suspend = new(false) },
	}
	for want, change := range tests {
		t.Run(string(want), func(t *testing.T) {
			o := &observed{TrainJob: *inttest.Job("uid")}
			change(&o.TrainJob)
			expect.Same(t, "Unexpected phase", want, o.phase())
			expect.Same(t, "It is alive", want == phaseSuspended || want == phaseRunning, o.alive())
		})
	}
}
