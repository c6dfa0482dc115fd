// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/features"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The queue of the jobs, and its ClusterQueue behind MultiKueue and not.
var (
	queue  = kit.LocalQueue("ns", "q", "cq")
	behind = inttest.ClusterQueue("remote")
	here   = inttest.ClusterQueue()
	check  = inttest.Check("remote", kueue.MultiKueueControllerName)
)

// selects are the settings of a Kueue that manages the namespaces with a label.
func selects(s *kueueconfig.Settings) {
	s.ManagedJobsNamespaceSelector.MatchLabels = map[string]string{"kueue": "on"}
}

func queuedJob() *trainjob.TrainJob {
	return &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{kueueconstants.QueueLabel: "q"}}}
}

func TestLeadsToMultiKueue(t *testing.T) {
	type row struct {
		cached, stored []client.Object
		want           bool
	}
	expect.Rows(t, map[string]row{
		"a queue that leads there":                       {cached: []client.Object{queue, behind, check}, want: true},
		"a queue that the cache has not heard of yet":    {stored: []client.Object{queue, behind, check}, want: true},
		"a check that the cache has not heard of yet":    {cached: []client.Object{queue, behind}, stored: []client.Object{queue, behind, check}, want: true},
		"a queue of this cluster, which need not ask":    {cached: []client.Object{queue, here}, stored: []client.Object{queue, behind, check}},
		"a queue that is not there":                      {},
		"a ClusterQueue that the cache has not heard of": {cached: []client.Object{queue}, stored: []client.Object{queue, behind, check}, want: true},
		"a queue of which the first check leads there":   {cached: []client.Object{queue, inttest.ClusterQueue("remote", "local"), check, inttest.Check("local", "example.com/c")}, want: true},
	}, func(t *testing.T, tc row) {
		got, err := New(inttest.Fake(tc.cached...).Build(), inttest.Fake(tc.stored...).Build(), nil).LeadsToMultiKueue(t.Context(), "ns", "q")
		expect.That(t, err == nil && got == tc.want, "LeadsToMultiKueue() = %t, %v; want %t", got, err, tc.want)
	})
}

func TestManages(t *testing.T) {
	all := func(s *kueueconfig.Settings) { s.ManageJobsWithoutQueueName = true }
	inside := kit.With(kit.Namespace("ns"), func(ns *corev1.Namespace) { ns.Labels = map[string]string{"kueue": "on"} })
	outside := kit.Namespace("ns")
	type row struct {
		settings       func(*kueueconfig.Settings)
		withoutQueue   bool
		deleted        bool
		cached, stored []client.Object
		unreadable     bool
		want           bool
	}
	expect.Rows(t, map[string]row{
		"a job with a queue": {want: true},
		"a job that is being deleted, as Kueue's own webhooks have it": {deleted: true},
		"a job without":                                                 {withoutQueue: true},
		"a job without, where these are managed":                        {settings: all, withoutQueue: true, want: true, cached: []client.Object{outside}},
		"a namespace that Kueue manages":                                {settings: selects, cached: []client.Object{inside}, want: true},
		"a namespace that it does not":                                  {settings: selects, cached: []client.Object{outside}},
		"a namespace that the cache has not heard of, and is managed":   {settings: selects, stored: []client.Object{inside}, want: true},
		"a namespace that the cache has not heard of, and is not":       {settings: selects, stored: []client.Object{outside}},
		"a namespace that cannot be read is not taken for one of these": {settings: selects, unreadable: true},
		"nor is it for a job without a queue":                           {settings: kit.All(selects, all), withoutQueue: true, unreadable: true},
	}, func(t *testing.T, tc row) {
		job := queuedJob()
		if tc.withoutQueue {
			job.Labels = nil
		}
		if tc.deleted {
			job.DeletionTimestamp = new(metav1.Now())
		}
		c := kit.Gets(inttest.Fake(tc.cached...).Build(), func(client.Object, client.ObjectKey) error {
			if tc.unreadable {
				return kit.Forbidden("namespaces")
			}
			return nil
		})
		settings := testenv.Kueue(kit.All(tc.settings))
		got, err := New(c, inttest.Fake(tc.stored...).Build(), settings).Manages(t.Context(), job)
		expect.That(t, got == tc.want && (err != nil) == tc.unreadable, "Manages() = %t, %v; want %t, an error: %t", got, err, tc.want, tc.unreadable)
	})
}

// jobframework reads the owners that it takes for Kueue's, by caches that the manager may not fill.
func TestManagesWithoutLookingAtOwners(t *testing.T) {
	job := queuedJob()
	job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: new(true)}}
	c := kit.Gets(inttest.Fake().Build(), func(obj client.Object, _ client.ObjectKey) error { return fmt.Errorf("asked for %T", obj) })
	managed, err := New(c, c, testenv.Kueue()).Manages(t.Context(), job)
	expect.That(t, managed && err == nil, "Manages() = %t, %v", managed, err)
}

func TestReachable(t *testing.T) {
	there, nowhere := []client.Object{queue, behind, check}, []client.Object{queue, here}
	type row struct {
		cached, stored []client.Object
		served         trainjob.TrainerVersion
		want           error
	}
	expect.Rows(t, map[string]row{
		"a queue that leads there":                      {cached: there},
		"a Trainer that would run the job here as well": {cached: there, served: trainjob.Trainer22, want: ErrNoOtherCluster},
		"a queue that does not":                         {cached: nowhere, stored: nowhere, want: ErrNoOtherCluster},
		"a check that the cache has not heard of":       {cached: nowhere, stored: there},
		"a queue that is not there, and may come":       {cached: nil, stored: nil},
		"a ClusterQueue that is gone in the meantime":   {cached: nowhere, stored: []client.Object{queue}},
		"a check that the cache has and that may stay":  {cached: there, stored: nowhere},
		"a queue that the cache has not heard of":       {stored: nowhere},
	}, func(t *testing.T, tc row) {
		job := queuedJob()
		job.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
		q := New(inttest.Fake(tc.cached...).Build(), inttest.Fake(tc.stored...).Build(), nil)
		served := cmp.Or(tc.served, trainjob.Trainer23)
		err := q.Reachable(t.Context(), job, served)
		expect.That(t, errors.Is(err, tc.want), "Reachable() = %v, want %v", err, tc.want)
		expect.NoError(t, q.Reachable(t.Context(), queuedJob(), served))
	})
}

func TestDispatchable(t *testing.T) {
	there, nowhere := []client.Object{queue, behind, check}, []client.Object{queue, here}
	type row struct {
		cluster   []client.Object
		off       bool
		managedBy *string
		want      error
	}
	expect.Rows(t, map[string]row{
		"a queue of this cluster":                       {cluster: nowhere},
		"a queue that leads to others":                  {cluster: there, want: ErrOnlyHere},
		"one that does, for a job that others may run":  {cluster: there, managedBy: new(kueue.MultiKueueControllerName)},
		"one that does, where Kueue dispatches nothing": {cluster: there, off: true},
	}, func(t *testing.T, tc row) {
		features.SetFeatureGateDuringTest(t, features.MultiKueue, !tc.off)
		job, c := queuedJob(), inttest.Fake(tc.cluster...).Build()
		job.Spec.ManagedBy = tc.managedBy
		err := New(c, c, nil).Dispatchable(t.Context(), job, "q")
		expect.That(t, errors.Is(err, tc.want), "Dispatchable() = %v, want %v", err, tc.want)
	})
}

// A job stays what it is created as.
func TestCheckThatCannotBeReadIsNoAnswer(t *testing.T) {
	c := kit.Gets(inttest.Fake(queue, behind, check).Build(), func(obj client.Object, _ client.ObjectKey) error {
		if _, is := obj.(*kueue.AdmissionCheck); is {
			return kit.Forbidden("admissionchecks")
		}
		return nil
	})
	_, err := New(c, c, nil).LeadsToMultiKueue(t.Context(), "ns", "q")
	expect.Says(t, err, "forbidden")
}

// The caches keep no managed fields.
func TestLabelledAtAsksTheAPIServer(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	labelled := kit.With(kit.Namespace("ns"), func(ns *corev1.Namespace) {
		ns.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:kueue":{}}}}`)}}
	})
	live := kit.Gets(inttest.Fake().Build(), func(obj client.Object, _ client.ObjectKey) error {
		labelled.DeepCopyInto(obj.(*corev1.Namespace))
		return kit.ErrAnswered
	})
	got := expect.Must(New(inttest.Fake(kit.Namespace("ns")).Build(), live, testenv.Kueue(selects)).LabelledAt(t.Context(), "ns"))(t)
	expect.That(t, got.Equal(at), "LabelledAt() = %s, want %s", got, at)
}

// A client refuses to ask the API server for an object without a name.
func TestNobodyIsAskedForWhatHasNoName(t *testing.T) {
	nowhere := inttest.Fake(kit.LocalQueue("ns", "q", "")).Build()
	live := kit.Gets(nowhere, func(obj client.Object, key client.ObjectKey) error {
		if key.Name == "" {
			return fmt.Errorf("a %T without a name was asked for", obj)
		}
		return nil
	})
	for _, name := range []string{"", "q"} {
		expect.Same(t, "Unexpected LeadsToMultiKueue of queue "+name, false, expect.Must(New(nowhere, live, nil).LeadsToMultiKueue(t.Context(), "ns", name))(t))
	}
}

func TestStopped(t *testing.T) {
	local := func(policy *kueue.StopPolicy) client.Object {
		return &kueue.LocalQueue{ObjectMeta: queue.ObjectMeta, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq", StopPolicy: policy}}
	}
	cluster := func(policy *kueue.StopPolicy) client.Object {
		return &kueue.ClusterQueue{ObjectMeta: here.ObjectMeta, Spec: kueue.ClusterQueueSpec{StopPolicy: policy}}
	}
	runs, holds, drains := new(kueue.None), new(kueue.Hold), new(kueue.HoldAndDrain)
	expect.Rows(t, map[string]expect.Row[[]client.Object, bool]{
		"no queue":                        {},
		"no ClusterQueue":                 {In: []client.Object{local(nil)}},
		"neither is stopped":              {In: []client.Object{local(nil), cluster(nil)}},
		"neither is stopped any more":     {In: []client.Object{local(runs), cluster(runs)}},
		"the LocalQueue is held":          {In: []client.Object{local(holds), cluster(runs)}, Want: true},
		"it is, and has no ClusterQueue":  {In: []client.Object{local(drains)}, Want: true},
		"the ClusterQueue is held":        {In: []client.Object{local(runs), cluster(holds)}, Want: true},
		"the ClusterQueue is drained too": {In: []client.Object{local(nil), cluster(drains)}, Want: true},
	}, func(t *testing.T, tc expect.Row[[]client.Object, bool]) {
		expect.Same(t, "Unexpected Stopped", tc.Want, expect.Must(New(inttest.Fake(tc.In...).Build(), nil, nil).Stopped(t.Context(), queuedJob()))(t))
	})
}
