// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestGuardedPatch(t *testing.T) {
	const seen = `[{"op":"test","path":"/metadata/uid","value":"uid"},{"op":"test","path":"/metadata/generation","value":3},`
	const noLabels = `{"op":"test","path":"/metadata/labels","value":null},{"op":"test","path":"/metadata/annotations","value":null},`
	cases := map[string]struct {
		known   metav1.ObjectMeta
		merge   string
		want    string
		wantErr bool
	}{
		"a start is made under a test of the generation, and of labels that are not there": {
			merge: `{"metadata":{"resourceVersion":"7"},"spec":{"suspend":false,"runtimePatches":[{"manager":"a","x":{"zero":false}}]}}`,
			want: seen + noLabels +
				`{"op":"add","path":"/spec/runtimePatches","value":[{"manager":"a","x":{"zero":false}}]},{"op":"add","path":"/spec/suspend","value":false}]`,
		},
		"and of those that are": {
			known: metav1.ObjectMeta{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q", "a": "b"}, Annotations: map[string]string{"c": "d"}},
			merge: `{"spec":{"suspend":false}}`,
			want: seen +
				`{"op":"test","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"q"},` +
				`{"op":"test","path":"/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name","value":null},` +
				`{"op":"test","path":"/metadata/labels/kueue.x-k8s.io~1max-exec-time-seconds","value":null},` +
				`{"op":"test","path":"/metadata/labels/kueue.x-k8s.io~1priority-class","value":null},` +
				`{"op":"test","path":"/metadata/annotations/kueue.x-k8s.io~1prebuilt-workload-name","value":null},` +
				`{"op":"add","path":"/spec/suspend","value":false}]`,
		},
		"a stop is kept from a job neither by its labels nor by changes of its spec": {known: metav1.ObjectMeta{Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}},
			merge: `{"spec":{"suspend":true}}`, want: `[{"op":"test","path":"/metadata/uid","value":"uid"},{"op":"add","path":"/spec/suspend","value":true}]`},
		"a stop with the gate is for the spec that is known": {merge: `{"spec":{"suspend":true,"runtimePatches":null}}`,
			want: seen + `{"op":"remove","path":"/spec/runtimePatches"},{"op":"add","path":"/spec/suspend","value":true}]`},
		"a field that goes is removed": {merge: `{"spec":{"runtimePatches":null}}`, want: seen + `{"op":"remove","path":"/spec/runtimePatches"}]`},
		"labels are not our business":  {merge: `{"metadata":{"labels":{"a":"b"}},"spec":{"suspend":true}}`, wantErr: true},
		"nor are other fields":         {merge: `{"spec":{"trainer":{"numNodes":3}}}`, wantErr: true},
		"no JSON":                      {merge: `{`, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changes, err := specChanges([]byte(tc.merge))
			expect.Need(t, (err != nil) == tc.wantErr, "specChanges: error %v, want one: %t", err, tc.wantErr)
			if err != nil {
				return
			}
			tc.known.UID, tc.known.Generation = "uid", 3
			patch := expect.Must(guardedPatch(changes, &tc.known))(t)
			expect.Same(t, "Unexpected patch", tc.want, string(expect.Must(patch.Data(nil))(t)))
		})
	}
}

func TestFailedTest(t *testing.T) {
	test := apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", "testing value failed", 0, false)
	invalid := apierrors.NewInvalid(trainjob.GVK.GroupKind(), "job", field.ErrorList{field.Required(field.NewPath("spec"), "")})
	cases := map[string]struct {
		err  error
		want bool
	}{
		"a failed test":                     {err: test, want: true},
		"an invalid object is another case": {err: invalid},
		"so is a conflict of others":        {err: apierrors.NewConflict(schema.GroupResource{}, "job", errors.New("changed"))},
		"and anything else":                 {err: errors.New("network")},
		"nothing":                           {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected failedTest", tc.want, failedTest(tc.err)) })
	}
}

func TestExpectations(t *testing.T) {
	e, job := ledFrom(time.Time{}), jobAt
	expect.That(t, e.Satisfied(job(1)), "A job that we never wrote must be seen as it is")
	e.wrote(job(3))
	expect.That(t, !e.Satisfied(job(2)), "A view older than our write must not count")
	expect.That(t, e.Satisfied(job(3)) && e.of(job(3)).wanted.at.IsZero(), "Our write must be seen and forgotten")
	e.wrote(job(5))
	another := job(1)
	another.UID = "another"
	expect.That(t, e.Satisfied(another), "A new job of the same name must be seen as it is")
	e.wrote(job(5))
	e.Forget(client.ObjectKeyFromObject(job(5)))
	expect.That(t, len(e.byName) == 0, "A job that is gone must be forgotten")
	e.wrote(job(5))
	e.clock.(*clocktesting.FakePassiveClock).SetTime(e.clock.Now().Add(OverdueAfter))
	expect.That(t, e.Satisfied(job(4)), "A write must not be waited for that was lost")
}

func TestRefused(t *testing.T) {
	overtaken := apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", "testing value failed", 0, false)
	labelled, namesake := jobAt(3), jobAt(3)
	labelled.Labels, namesake.UID = map[string]string{"kueue.x-k8s.io/queue-name": "other"}, "new"
	cases := map[string]struct {
		live         *trainjob.TrainJob
		err          error
		wantConflict bool
	}{
		"somebody was faster":              {live: jobAt(4), err: overtaken, wantConflict: true},
		"the queue is another by now":      {live: labelled, err: overtaken, wantConflict: true},
		"a webhook's refusal looks alike":  {live: jobAt(3), err: overtaken},
		"another job has the name by now":  {live: namesake, err: overtaken, wantConflict: true},
		"anything else stays what it was ": {live: jobAt(4), err: errors.New("network")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := clientOn(t, nil, inttest.Fake(tc.live).Build())
			expect.Same(t, "It is a conflict", tc.wantConflict, apierrors.IsConflict(c.refused(t.Context(), jobAt(3), &jobAt(3).ObjectMeta, tc.err)))
			newer := tc.wantConflict && tc.live.Generation > 3
			expect.That(t, c.expectations.Satisfied(jobAt(3)) != newer, "A view must be waited for if, and only if, there is a newer one")
		})
	}
}

func TestSteps(t *testing.T) {
	start := changes{"suspend": json.RawMessage("false"), "runtimePatches": json.RawMessage("[]")}
	stop := changes{"suspend": json.RawMessage("true"), "runtimePatches": json.RawMessage("[]")}
	resume := changes{"suspend": json.RawMessage("false")}
	cases := map[string]struct {
		all    changes
		served trainjob.TrainerVersion
		want   []changes
	}{
		"a start in one request": {all: start, served: trainjob.Trainer23, want: []changes{start}},
		"a start in two, placed while suspended": {all: start, served: trainjob.Trainer22,
			want: []changes{{"runtimePatches": json.RawMessage("[]")}, resume}},
		"overrides, when the CRD is replaced meanwhile": {served: trainjob.Trainer23,
			all:  changes{"suspend": json.RawMessage("false"), "podTemplateOverrides": json.RawMessage("[]")},
			want: []changes{{"podTemplateOverrides": json.RawMessage("[]")}, resume}},
		"a job that is placed already": {all: resume, served: trainjob.Trainer21, want: []changes{resume}},
		"a stop":                       {all: stop, served: trainjob.Trainer21, want: []changes{stop}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected requests", tc.want, steps(tc.all, tc.served)) })
	}
}

func TestChangedBy(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	e := NewExpectations(clock)
	job := jobAt(1)
	for _, step := range []struct {
		what       string
		at         int64
		generation int64
		wrote      bool
		want       int64
	}{
		{what: "seen first", at: 2, generation: 1, want: 2},
		{what: "seen again", at: 3, generation: 1, want: 2},
		{what: "written by us", at: 4, generation: 2, wrote: true, want: 4},
		{what: "our write is seen", at: 5, generation: 2, want: 5},
		{what: "nothing changed for long", at: 500, generation: 2, want: 5},
		{what: "changed by somebody else", at: 501, generation: 3, want: 501},
	} {
		clock.SetTime(time.Unix(step.at, 0))
		job.Generation = step.generation
		if step.wrote {
			e.wrote(job)
		} else {
			e.Satisfied(job)
		}
		expect.Same(t, step.what+": unexpected ChangedBy", step.want, e.ChangedBy(job).Unix())
	}
	expect.Same(t, "When we wrote it", int64(4), e.WroteBy(job).Unix())
	expect.Same(t, "When we wrote another one of its name: before this process", int64(1), e.WroteBy(inttest.Job("other")).Unix())
}

func TestWrite(t *testing.T) {
	cases := map[string]struct {
		step changes
		// dropped makes the API server one that does not have the field.
		dropped      bool
		wantConflict bool
	}{
		"a field that is stored":                 {step: changes{"podTemplateOverrides": json.RawMessage(`[{"targetJobs":[]}]`)}},
		"a field that the API server drops":      {step: changes{"podTemplateOverrides": json.RawMessage(`[{"targetJobs":[]}]`)}, dropped: true, wantConflict: true},
		"entries that the API server drops":      {step: changes{"runtimePatches": json.RawMessage(`[{"manager":"a"}]`)}, dropped: true, wantConflict: true},
		"the last entry is taken away":           {step: changes{"runtimePatches": json.RawMessage(`null`)}},
		"the last override is taken away":        {step: changes{"podTemplateOverrides": json.RawMessage(`null`)}},
		"a write that has nothing to do with it": {step: changes{"suspend": json.RawMessage(`true`)}, dropped: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := jobAt(1)
			expect.NoError(t, json.Unmarshal([]byte(`{"runtimePatches":[{"manager":"b"}],"podTemplateOverrides":[{"targetJobs":[]}]}`), &job.Spec))
			c := clientAnswered(t, job, func(spec *trainjob.Spec) {
				if tc.dropped {
					*spec = trainjob.Spec{Suspend: spec.Suspend}
				}
			})
			err := c.write(t.Context(), job.DeepCopy(), tc.step)
			expect.That(t, apierrors.IsConflict(err) == tc.wantConflict && (err != nil) == tc.wantConflict,
				"write returned %v, want a conflict: %t", err, tc.wantConflict)
		})
	}
}

func TestWriteInVainIsCounted(t *testing.T) {
	job := jobAt(1)
	registry := prometheus.NewRegistry()
	c := clientAnswered(t, job, func(spec *trainjob.Spec) { spec.Suspend = nil })
	c.metrics = metrics.NewRecorder(registry, metrics.QueueLabels{})
	err := c.write(t.Context(), job.DeepCopy(), changes{"suspend": json.RawMessage(`true`)})
	expect.That(t, BackoffOf(err) != 0, "write returned %v, want to be told to wait", err)
	expect.Same(t, "Unexpected number of writes", 1, expect.Must(testutil.GatherAndCount(registry, metrics.Writes.Name))(t))
}

// jobAt is a TrainJob of a generation.
func jobAt(generation int64) *trainjob.TrainJob {
	job := inttest.Job("uid")
	job.Generation = generation
	return job
}

// clientOn returns the client of a manager that has led for ever, beside Trainer 2.3.
func clientOn(t *testing.T, cached client.Client, live client.Reader) *Client {
	t.Helper()
	served := peers.NewTrainer(peers.NewTrainJobs(nil))
	served.Set(t.Context(), trainjob.Trainer23, nil)
	return New(cached, live, served, ledFrom(time.Time{}), inttest.Metrics())
}

// clientAnswered returns the same of an API server that has a TrainJob, and changes what it answers.
func clientAnswered(t *testing.T, job *trainjob.TrainJob, change func(*trainjob.Spec)) *Client {
	t.Helper()
	stored := inttest.Fake(job).Build()
	return clientOn(t, interceptor.NewClient(stored, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, obj, p, opts...)
			change(&obj.(*trainjob.TrainJob).Spec)
			return err
		},
	}), stored)
}

// ledFrom returns the expectations of a process that has led from a time on.
func ledFrom(began time.Time) *Expectations {
	clock := clocktesting.NewFakePassiveClock(began)
	e := NewExpectations(clock)
	clock.SetTime(time.Now())
	return e
}

func TestMissingTrainJobIsAskedForLive(t *testing.T) {
	job := inttest.Job("a")
	key := client.ObjectKeyFromObject(job)
	c := clientOn(t, inttest.Fake().Build(), inttest.Fake(job).Build())
	err := c.Get(t.Context(), key, &trainjob.TrainJob{})
	expect.That(t, err == nil, "a TrainJob that the cache has not heard of: %v", err)
	c.live = inttest.Fake().Build()
	err = c.Get(t.Context(), key, &trainjob.TrainJob{})
	expect.That(t, apierrors.IsNotFound(err), "a TrainJob that is gone: %v", err)
}

func TestTrainJobsAreDeletedByUID(t *testing.T) {
	for obj, want := range map[client.Object]types.UID{inttest.Job("a"): "a", inttest.WorkloadOf(inttest.Job("a")): ""} {
		var asked client.DeleteOptions
		noting := interceptor.NewClient(inttest.Fake(obj.DeepCopyObject().(client.Object)).Build(), interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
				asked.ApplyOptions(opts)
				return nil
			},
		})
		expect.NoError(t, clientOn(t, noting, noting).Delete(t.Context(), obj))
		expect.Same(t, "Unexpected UID that is asked for", want, ptr.Deref(ptr.Deref(asked.Preconditions, metav1.Preconditions{}).UID, ""))
	}
}

// jobframework takes Kueue's finalizer off what it lets go, and makes TrainJobs the owners of copies.
func TestUpdateOfAWorkload(t *testing.T) {
	const kueues, ours, mine = kueue.ResourceInUseFinalizerName, placeholder.Finalizer, "example.com/mine"
	copied := func(owned bool, finalizers ...string) *kueue.Workload {
		wl := inttest.WorkloadOf(inttest.Job("1"))
		wl.Labels, wl.Finalizers = map[string]string{kueue.MultiKueueOriginLabel: "fleet"}, finalizers
		if !owned {
			wl.OwnerReferences = nil
		}
		return wl
	}
	finished := func(wl *kueue.Workload) *kueue.Workload {
		kit.Is(kueue.WorkloadFinished, "")(wl)
		return wl
	}
	local := copied(true)
	local.Labels = nil
	for name, tc := range map[string]struct {
		wl   *kueue.Workload
		want []string
	}{
		"a copy that gets its owner":          {wl: copied(true), want: []string{kueues, ours}},
		"a copy without an owner":             {wl: copied(false)},
		"a Workload of this cluster":          {wl: local},
		"a copy that is held":                 {wl: copied(true, kueues, ours), want: []string{kueues, ours}},
		"a copy that MultiKueue lets go":      {wl: copied(true, ours), want: []string{ours}},
		"a finished copy that Kueue held":     {wl: finished(copied(true, kueues, ours)), want: []string{kueues, ours}},
		"a finished copy that is let go":      {wl: finished(copied(true, ours, mine)), want: []string{mine}},
		"a finished copy that was never held": {wl: finished(copied(true))},
	} {
		t.Run(name, func(t *testing.T) {
			wl := tc.wl
			stored := inttest.Fake(wl).Build()
			inttest.Reload(t, stored, wl)
			expect.NoError(t, (&Client{Client: stored}).Update(t.Context(), wl))
			expect.Same(t, "Unexpected finalizers", tc.want, wl.Finalizers)
		})
	}
}
