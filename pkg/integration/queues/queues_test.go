// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

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
	}, func(t *testing.T, tc row) {
		got, err := New(inttest.Fake(tc.cached...).Build(), inttest.Fake(tc.stored...).Build(), nil).LeadsToMultiKueue(t.Context(), "ns", "q")
		expect.That(t, err == nil && got == tc.want, "LeadsToMultiKueue() = %t, %v; want %t", got, err, tc.want)
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
		want           error
	}
	expect.Rows(t, map[string]row{
		"a queue that leads there":                     {cached: there},
		"a queue that does not":                        {cached: nowhere, stored: nowhere, want: ErrNoOtherCluster},
		"a check that the cache has not heard of":      {cached: nowhere, stored: there},
		"a queue that is not there, and may come":      {cached: nil, stored: nil},
		"a ClusterQueue that is gone in the meantime":  {cached: nowhere, stored: []client.Object{queue}},
		"a check that the cache has and that may stay": {cached: there, stored: nowhere},
	}, func(t *testing.T, tc row) {
		job := queuedJob()
		job.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
		err := New(inttest.Fake(tc.cached...).Build(), inttest.Fake(tc.stored...).Build(), nil).Reachable(t.Context(), job)
		expect.That(t, errors.Is(err, tc.want), "Reachable() = %v, want %v", err, tc.want)
	})
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
		expect.Same(t, "Unexpected LeadsToMultiKueue of queue "+name, false,
			expect.Must(New(nowhere, live, nil).LeadsToMultiKueue(t.Context(), "ns", name))(t))
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
	type row struct {
		there []client.Object
		want  bool
	}
	expect.Rows(t, map[string]row{
		"no queue":                        {},
		"no ClusterQueue":                 {there: []client.Object{local(nil)}},
		"neither is stopped":              {there: []client.Object{local(nil), cluster(nil)}},
		"neither is stopped any more":     {there: []client.Object{local(runs), cluster(runs)}},
		"the LocalQueue is held":          {there: []client.Object{local(holds), cluster(runs)}, want: true},
		"it is, and has no ClusterQueue":  {there: []client.Object{local(drains)}, want: true},
		"the ClusterQueue is held":        {there: []client.Object{local(runs), cluster(holds)}, want: true},
		"the ClusterQueue is drained too": {there: []client.Object{local(nil), cluster(drains)}, want: true},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected Stopped", tc.want,
			expect.Must(New(inttest.Fake(tc.there...).Build(), nil, nil).Stopped(t.Context(), queuedJob()))(t))
	})
}
