// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func clientOf(t *testing.T, objs ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, trainjob.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
}

func TestStillAdmitted(t *testing.T) {
	going := inttest.WorkloadOf("a", true)
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"test/hold"}
	foreign := inttest.WorkloadOf("a", true)
	foreign.OwnerReferences[0].UID = "b"
	tests := map[string]struct {
		live *kueue.Workload
		want bool
	}{
		"it is":                           {live: inttest.WorkloadOf("a", true), want: true},
		"it waits":                        {live: inttest.WorkloadOf("a", false)},
		"the Workload is being deleted":   {live: going},
		"the admission is a former job's": {live: inttest.WorkloadOf("b", true)},
		"there is no Workload":            {},
		"somebody else's has its name":    {live: foreign},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			live := clientOf(t, some(tc.live)...)
			job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}}
			got, err := stillAdmitted(context.Background(), live, job)
			if err != nil || got != tc.want {
				t.Errorf("stillAdmitted() = %t, %v; want %t", got, err, tc.want)
			}
		})
	}
}

func TestConfirm(t *testing.T) {
	const uid = types.UID("a")
	otherFlavor := inttest.WorkloadOf(uid, true)
	otherFlavor.Status.Admission = &kueue.Admission{ClusterQueue: "other"}
	tests := map[string]struct {
		cached, live *kueue.Workload
		want         error
	}{
		"the admission stands": {cached: inttest.WorkloadOf(uid, true), live: inttest.WorkloadOf(uid, true)},
		"it is gone":           {cached: inttest.WorkloadOf(uid, true), live: inttest.WorkloadOf(uid, false), want: errOutdated},
		"it is another one":    {cached: inttest.WorkloadOf(uid, true), live: otherFlavor, want: errOutdated},
		"the Workload is gone": {cached: inttest.WorkloadOf(uid, true), want: errOutdated},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			live := clientOf(t, some(tc.live)...)
			if got := confirm(context.Background(), live, tc.cached); !errors.Is(got, tc.want) {
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
