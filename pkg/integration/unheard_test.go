// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ownedBy makes a Workload of a TrainJob "llm", with quota or without.
func ownedBy(uid types.UID, admitted bool) *kueue.Workload {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: uid}}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "wl",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)},
	}}
	if admitted {
		wl.Status.Conditions = []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue},
		}
	}
	return wl
}

func clientOf(t *testing.T, objs ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, trainjob.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).
		WithIndex(&kueue.Workload{}, jobframework.OwnerReferenceIndexKey(trainjob.GVK), func(obj client.Object) []string {
			return []string{metav1.GetControllerOf(obj).Name}
		}).Build()
}

func TestUnheard(t *testing.T) {
	tests := map[string]struct {
		cached, live *kueue.Workload
		want         bool
	}{
		"the cache knows the admission":       {cached: ownedBy("a", true), live: ownedBy("a", true)},
		"the cache knows no Workload":         {live: ownedBy("a", true), want: true},
		"the cache knows it without quota":    {cached: ownedBy("a", false), live: ownedBy("a", true), want: true},
		"it has no quota":                     {cached: ownedBy("a", false), live: ownedBy("a", false)},
		"the admission is a former job's":     {live: ownedBy("b", true)},
		"the cache has not heard of its loss": {cached: ownedBy("a", true), live: ownedBy("a", false)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			env := &environment{client: clientOf(t, some(tc.cached)...), live: clientOf(t, some(tc.live)...)}
			job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}}
			got, err := env.unheard(context.Background(), job)
			if err != nil || got != tc.want {
				t.Errorf("unheard() = %t, %v; want %t", got, err, tc.want)
			}
		})
	}
}

func TestConfirm(t *testing.T) {
	const uid = types.UID("a")
	otherFlavor := ownedBy(uid, true)
	otherFlavor.Status.Admission = &kueue.Admission{ClusterQueue: "other"}
	tests := map[string]struct {
		cached, live *kueue.Workload
		want         error
	}{
		"the admission stands":        {cached: ownedBy(uid, true), live: ownedBy(uid, true)},
		"it is gone":                  {cached: ownedBy(uid, true), live: ownedBy(uid, false), want: errOutdated},
		"it is another one":           {cached: ownedBy(uid, true), live: otherFlavor, want: errOutdated},
		"the Workload is gone":        {cached: ownedBy(uid, true), want: errOutdated},
		"there is nothing to confirm": {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			env := &environment{live: clientOf(t, some(tc.live)...)}
			if got := env.confirm(context.Background(), tc.cached); !errors.Is(got, tc.want) {
				t.Errorf("confirm() = %v, want %v", got, tc.want)
			}
		})
	}
}

func some(wl *kueue.Workload) []client.Object {
	if wl == nil {
		return nil
	}
	return []client.Object{wl}
}

func TestMissingTrainJobIsAskedForLive(t *testing.T) {
	key := client.ObjectKey{Namespace: "team", Name: "llm"}
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	c := &specClient{Client: clientOf(t), live: clientOf(t, job)}
	if err := c.Get(context.Background(), key, &trainjob.TrainJob{}); err != nil {
		t.Errorf("a TrainJob that the cache has not heard of: %v", err)
	}
	c.live = clientOf(t)
	if err := c.Get(context.Background(), key, &trainjob.TrainJob{}); !apierrors.IsNotFound(err) {
		t.Errorf("a TrainJob that is gone: %v", err)
	}
}
