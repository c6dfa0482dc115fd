// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
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
	type row struct {
		known   metav1.ObjectMeta
		merge   string
		want    string
		wantErr bool
	}
	expect.Rows(t, map[string]row{
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
	}, func(t *testing.T, tc row) {
		changes, err := specChanges([]byte(tc.merge))
		expect.Need(t, (err != nil) == tc.wantErr, "specChanges: error %v, want one: %t", err, tc.wantErr)
		if err != nil {
			return
		}
		tc.known.UID, tc.known.Generation = "uid", 3
		patch := guardedPatch(changes, string(changes["suspend"]) == "false", &tc.known)
		expect.Same(t, "Unexpected patch", tc.want, string(expect.Must(patch.Data(nil))(t)))
	})
}

// The answer to the first step of a start has the labels of now: whoever held the job meanwhile would be passed over.
func TestEachStepOfAStartGoesByTheLabelsThatItWasDecidedBy(t *testing.T) {
	job := jobAt(1)
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "q"}
	var sent []string
	c := clientOn(t, interceptor.NewClient(inttest.Fake(job.DeepCopy()).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			sent = append(sent, string(expect.Must(p.Data(obj))(t)))
			return c.Patch(ctx, obj, p, opts...)
		},
	}), nil)
	c.trainer.Set(t.Context(), trainjob.Trainer22, nil)
	_ = c.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"runtimePatches":[{"manager":"m"}],"suspend":false}}`)))
	const test = `{"op":"test","path":"/metadata/labels/kueue.x-k8s.io~1queue-name","value":"q"}`
	expect.Same(t, "Steps that test the queue, of all", []bool{true, true}, expect.Each(sent, func(patch string) bool { return strings.Contains(patch, test) }))
}

func TestFailedTest(t *testing.T) {
	test := apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", "testing value failed", 0, false)
	invalid := apierrors.NewInvalid(trainjob.GVK.GroupKind(), "job", field.ErrorList{field.Required(field.NewPath("spec"), "")})
	expect.Answers(t, failedTest, map[string]expect.Row[error, bool]{
		"a failed test":                     {In: test, Want: true},
		"an invalid object is another case": {In: invalid},
		"so is a conflict of others":        {In: apierrors.NewConflict(schema.GroupResource{}, "job", errors.New("changed"))},
		"and anything else":                 {In: errors.New("network")},
		"nothing":                           {},
	})
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
	type row struct {
		live         *trainjob.TrainJob
		err          error
		wantConflict bool
	}
	expect.Rows(t, map[string]row{
		"somebody was faster":              {live: jobAt(4), err: overtaken, wantConflict: true},
		"the queue is another by now":      {live: labelled, err: overtaken, wantConflict: true},
		"a webhook's refusal looks alike":  {live: jobAt(3), err: overtaken},
		"another job has the name by now":  {live: namesake, err: overtaken, wantConflict: true},
		"anything else stays what it was ": {live: jobAt(4), err: errors.New("network")},
	}, func(t *testing.T, tc row) {
		c := clientOn(t, nil, inttest.Fake(tc.live).Build())
		expect.Same(t, "It is a conflict", tc.wantConflict, apierrors.IsConflict(c.refused(t.Context(), jobAt(3), &jobAt(3).ObjectMeta, tc.err)))
		newer := tc.wantConflict && tc.live.Generation > 3
		expect.That(t, c.expectations.Satisfied(jobAt(3)) != newer, "A view must be waited for if, and only if, there is a newer one")
	})
}

func TestSteps(t *testing.T) {
	start := changes{"suspend": json.RawMessage("false"), "runtimePatches": json.RawMessage("[]")}
	stop := changes{"suspend": json.RawMessage("true"), "runtimePatches": json.RawMessage("[]")}
	resume := changes{"suspend": json.RawMessage("false")}
	type row struct {
		all    changes
		served trainjob.TrainerVersion
		want   []changes
	}
	expect.Rows(t, map[string]row{
		"a start in one request":                 {all: start, served: trainjob.Trainer23, want: []changes{start}},
		"a start in two, placed while suspended": {all: start, served: trainjob.Trainer22, want: []changes{{"runtimePatches": json.RawMessage("[]")}, resume}},
		"overrides, when the CRD is replaced meanwhile": {served: trainjob.Trainer23,
			all:  changes{"suspend": json.RawMessage("false"), "podTemplateOverrides": json.RawMessage("[]")},
			want: []changes{{"podTemplateOverrides": json.RawMessage("[]")}, resume}},
		"a job that is placed already": {all: resume, served: trainjob.Trainer21, want: []changes{resume}},
		"a stop":                       {all: stop, served: trainjob.Trainer21, want: []changes{stop}},
	}, func(t *testing.T, tc row) { expect.Same(t, "Unexpected requests", tc.want, steps(tc.all, tc.served)) })
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
	type row struct {
		step changes
		// dropped makes the API server one that does not have the field.
		dropped      bool
		wantConflict bool
	}
	expect.Rows(t, map[string]row{
		"a field that is stored":                 {step: changes{"podTemplateOverrides": json.RawMessage(`[{"targetJobs":[]}]`)}},
		"a field that the API server drops":      {step: changes{"podTemplateOverrides": json.RawMessage(`[{"targetJobs":[]}]`)}, dropped: true, wantConflict: true},
		"entries that the API server drops":      {step: changes{"runtimePatches": json.RawMessage(`[{"manager":"a"}]`)}, dropped: true, wantConflict: true},
		"the last entry is taken away":           {step: changes{"runtimePatches": json.RawMessage(`null`)}},
		"the last override is taken away":        {step: changes{"podTemplateOverrides": json.RawMessage(`null`)}},
		"a write that has nothing to do with it": {step: changes{"suspend": json.RawMessage(`true`)}, dropped: true},
	}, func(t *testing.T, tc row) {
		job := jobAt(1)
		expect.NoError(t, json.Unmarshal([]byte(`{"runtimePatches":[{"manager":"b"}],"podTemplateOverrides":[{"targetJobs":[]}]}`), &job.Spec))
		c := clientAnswered(t, job, func(spec *trainjob.Spec) {
			if tc.dropped {
				*spec = trainjob.Spec{Suspend: spec.Suspend}
			}
		})
		err := c.write(t.Context(), job.DeepCopy(), tc.step, false)
		expect.That(t, apierrors.IsConflict(err) == tc.wantConflict && (err != nil) == tc.wantConflict,
			"write returned %v, want a conflict: %t", err, tc.wantConflict)
	})
}

// A start of which nobody knows what became may be under way, and the job has its quota for so long.
func TestStartIsExpectedUnlessItIsRefused(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[error, bool]{
		"it is written":                         {In: kit.ErrAnswered, Want: true},
		"the answer is lost":                    {In: errors.New("network"), Want: true},
		"it is forbidden":                       {In: apierrors.NewForbidden(Resource, "llm", errors.New("no"))},
		"Trainer has not heard of the last pod": {In: apierrors.NewForbidden(Resource, "llm", errors.New("the ReplicatedJob node is still active"))},
	}, func(t *testing.T, tc expect.Row[error, bool]) {
		stored := inttest.Fake(jobAt(1)).Build()
		c := clientOn(t, kit.Writes(stored, func(w kit.Write) error {
			w.Object.SetGeneration(2)
			w.Object.(*trainjob.TrainJob).Spec.Suspend = new(false)
			return tc.In
		}), stored)
		err := c.write(t.Context(), jobAt(1), changes{"suspend": json.RawMessage(`false`)}, true)
		expect.Same(t, "It fails", !errors.Is(tc.In, kit.ErrAnswered), err != nil)
		_, starts := c.expectations.StoppedBeforeResume(jobAt(2))
		expect.Same(t, "It may be started", tc.Want, starts)
		expect.Same(t, "A view from before it is as new", err != nil, c.expectations.Satisfied(jobAt(1)))
	})
}

// A write that is refused again and again is retried later and later. After one that succeeds this begins anew, and a conflict
// is retried at once.
func TestRefusedWriteWaits(t *testing.T) {
	stored := inttest.Fake(jobAt(2)).Build()
	var answer error
	writes, suspends := 0, changes{"suspend": json.RawMessage(`true`)}
	c := clientOn(t, kit.Writes(stored, func(w kit.Write) error {
		writes++
		w.Object.(*trainjob.TrainJob).Spec.Suspend = new(true)
		return answer
	}), stored)
	tries := func(with error) int {
		answer, writes = with, 0
		for range 2 * freeFailures {
			_ = c.write(t.Context(), jobAt(1), suspends, false)
		}
		return writes
	}
	overtaken := apierrors.NewGenericServerResponse(422, "", schema.GroupResource{}, "", "testing value failed", 0, false)
	forbidden := apierrors.NewForbidden(Resource, "llm", errors.New("no"))
	expect.Same(t, "Writes of a view that was overtaken", 2*freeFailures, tries(overtaken))
	expect.Same(t, "Writes that are refused", freeFailures, tries(forbidden))
	expect.Same(t, "Writes that have to wait", 0, tries(kit.ErrAnswered))
	c.expectations.clock.(*clocktesting.FakePassiveClock).SetTime(time.Now().Add(time.Minute))
	expect.Same(t, "Writes that are kept", 2*freeFailures, tries(kit.ErrAnswered))
	expect.Same(t, "Writes that are refused since", freeFailures, tries(forbidden))
}

func TestWriteInVainIsCounted(t *testing.T) {
	job := jobAt(1)
	registry := prometheus.NewRegistry()
	c := clientAnswered(t, job, func(spec *trainjob.Spec) { spec.Suspend = nil })
	c.metrics = metrics.NewRecorder(registry, metrics.QueueLabels{})
	err := c.write(t.Context(), job.DeepCopy(), changes{"suspend": json.RawMessage(`true`)}, false)
	expect.That(t, BackoffOf(err) != 0, "write returned %v, want to be told to wait", err)
	expect.Same(t, "Unexpected number of writes", 1, expect.Must(testutil.GatherAndCount(registry, metrics.Writes.Name))(t))
}

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

// What is made again under a name is not deleted in place of what had it. Workloads are deleted so by who knows them.
func TestDeletesAreOfWhatIsKnown(t *testing.T) {
	wl := inttest.WorkloadOf(inttest.Job("a"))
	wl.UID = "wl"
	plain := func(obj client.Object) func(client.Client) error {
		return func(c client.Client) error { return c.Delete(t.Context(), obj) }
	}
	known := func(c client.Client) error { return DeleteWorkload(t.Context(), c, wl, "%s") }
	expect.Rows(t, map[string]expect.Row[func(client.Client) error, types.UID]{
		"a TrainJob": {In: plain(inttest.Job("a")), Want: "a"}, "a Workload": {In: plain(wl)}, "a Workload that is known": {In: known, Want: "wl"},
	}, func(t *testing.T, tc expect.Row[func(client.Client) error, types.UID]) {
		var asked client.DeleteOptions
		noting := interceptor.NewClient(inttest.Fake().Build(), interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
				asked.ApplyOptions(opts)
				return nil
			},
		})
		expect.NoError(t, tc.In(clientOn(t, noting, noting)))
		expect.Same(t, "Unexpected UID that is asked for", tc.Want, ptr.Deref(ptr.Deref(asked.Preconditions, metav1.Preconditions{}).UID, ""))
	})
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
	goes := func(wl *kueue.Workload) *kueue.Workload {
		wl.DeletionTimestamp = new(metav1.Unix(1, 0))
		return wl
	}
	local := copied(true)
	local.Labels = nil
	expect.Rows(t, map[string]expect.Row[*kueue.Workload, []string]{
		"a copy that gets its owner":          {In: copied(true), Want: []string{kueues, ours}},
		"a copy without an owner":             {In: copied(false)},
		"a Workload of this cluster":          {In: local},
		"a copy that is held":                 {In: copied(true, kueues, ours), Want: []string{kueues, ours}},
		"a copy that MultiKueue lets go":      {In: copied(true, ours), Want: []string{ours}},
		"a finished copy that Kueue held":     {In: finished(copied(true, kueues, ours)), Want: []string{kueues, ours}},
		"a deleted copy that is let go":       {In: goes(copied(true, ours, mine)), Want: []string{mine}},
		"a deleted copy that Kueue holds":     {In: goes(copied(true, kueues, ours)), Want: []string{kueues, ours}},
		"a finished copy that is let go":      {In: finished(copied(true, ours, mine)), Want: []string{mine}},
		"a finished copy that was never held": {In: finished(copied(true))},
	}, func(t *testing.T, tc expect.Row[*kueue.Workload, []string]) {
		wl := tc.In
		stored := inttest.Fake(wl).Build()
		inttest.Reload(t, stored, wl)
		expect.NoError(t, (&Client{Client: stored}).Update(t.Context(), wl))
		expect.Same(t, "Unexpected finalizers", tc.Want, wl.Finalizers)
	})
}

func TestDecisionTests(t *testing.T) {
	const (
		queue    = "kueue.x-k8s.io/queue-name"
		prebuilt = "kueue.x-k8s.io/prebuilt-workload-name"
	)
	meta := func(labels, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Labels: labels, Annotations: annotations}
	}
	type row struct {
		known, live metav1.ObjectMeta
		want        bool
	}
	expect.Rows(t, map[string]row{
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
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected decidedAlike", tc.want, decidedAlike(&tc.live, &tc.known))
		err := applied(t, &tc.known, &tc.live)
		expect.That(t, (err == nil) == tc.want, "The tests say %v, want them to hold: %t", err, tc.want)
	})
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
	type row struct {
		step   changes
		stored string
		want   string
	}
	expect.Rows(t, map[string]row{
		"kept":                       {gated, `{"suspend":false,"runtimePatches":[{"manager":"example.com/a"},` + inttest.Gate + `]}`, ""},
		"somebody else's may change": {gated, `{"suspend":false,"runtimePatches":[{"manager":"example.com/b"},` + inttest.Gate + `]}`, ""},
		"ours is gone":               {gated, `{"suspend":false,"runtimePatches":[{"manager":"example.com/a"}]}`, "spec.runtimePatches"},
		"all are gone":               {gated, `{"suspend":false}`, "spec.runtimePatches"},
		"ours says something else":   {gated, `{"suspend":false,"runtimePatches":[{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[]}}}}]}`, "spec.runtimePatches"},
		"suspended again":            {gated, `{"suspend":true,"runtimePatches":[` + inttest.Gate + `]}`, "spec.suspend"},
		"only suspend was set":       {changes{"suspend": []byte("true")}, `{"suspend":true}`, ""},
		"a field was taken away":     {changes{"runtimePatches": []byte("null")}, `{}`, ""},
	}, func(t *testing.T, tc row) {
		var stored trainjob.Spec
		expect.NoError(t, stored.UnmarshalJSON([]byte(tc.stored)))
		expect.Same(t, "Unexpected changed", tc.want, expect.Must(tc.step.changed(&stored))(t))
	})
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
	e.Queued(key, "uid")
	expect.That(t, e.Outdated(key, old), "a version is not outdated any more, since something else is known of the job")
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
	expect.Answers(t, ConflictingWorkload, map[string]expect.Row[error, string]{
		"a Workload was overtaken": {In: apierrors.NewConflict(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("modified")), Want: "wl"},
		"a TrainJob was":           {In: apierrors.NewConflict(Resource, "llm", errors.New("modified"))},
		"a Workload was refused":   {In: apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("no"))},
		"nothing happened":         {},
	})
}

// What somebody changed since we looked is looked at again first.
func TestWorkloadThatChangedMeanwhileStays(t *testing.T) {
	wl := inttest.WorkloadOf(inttest.Job("a"))
	c := inttest.Fake(wl).WithStatusSubresource(wl).Build()
	inttest.Reload(t, c, wl)
	marked := kit.With(wl.DeepCopy(), func(wl *kueue.Workload) { wl.Annotations = map[string]string{"a": "b"} })
	expect.NoError(t, c.Update(t.Context(), marked.DeepCopy()))
	for what, err := range map[string]error{
		"it goes":                       GiveUpWorkload(t.Context(), c, wl),
		"it is changed by an old view":  PatchWorkload(t.Context(), c, wl, marked, "%s"),
		"its status is, by an old view": PatchWorkloadStatus(t.Context(), c, wl, marked, "%s"),
	} {
		expect.That(t, apierrors.IsConflict(err), "%s: %v", what, err)
	}
}
