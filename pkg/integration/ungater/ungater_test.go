// SPDX-License-Identifier: Apache-2.0

package ungater

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestOnlyPodsOfAdmittedJobsAreFreed(t *testing.T) {
	evicted := inttest.WorkloadOf("a", true)
	evicted.Status.Conditions = append(evicted.Status.Conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue})
	tests := map[string]struct {
		suspend bool
		wl      *kueue.Workload
		labels  map[string]string
		want    bool
	}{
		"its job is admitted and runs":      {wl: inttest.WorkloadOf("a", true), want: true},
		"its job is suspended":              {suspend: true, wl: inttest.WorkloadOf("a", true)},
		"its job waits":                     {wl: inttest.WorkloadOf("a", false)},
		"its job is evicted":                {wl: evicted},
		"a former job of that name has run": {wl: inttest.WorkloadOf("b", true)},
		"it is of no JobSet":                {wl: inttest.WorkloadOf("a", true), labels: map[string]string{"a": "b"}},
		"it is of another job":              {wl: inttest.WorkloadOf("a", true), labels: map[string]string{jobsetapi.JobSetNameKey: "other"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}}
			job.Spec.Suspend = ptr.To(tc.suspend)
			if tc.labels == nil {
				tc.labels = map[string]string{jobsetapi.JobSetNameKey: "llm"}
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm-0", Labels: tc.labels}}
			c := inttest.ByOwner(fake.NewClientBuilder().WithScheme(inttest.Scheme(t))).WithObjects([]client.Object{job, tc.wl}...).Build()
			got, err := (&Ungater{Client: c}).admittedJob(t.Context(), pod)
			if err != nil || (got != nil) != tc.want {
				t.Errorf("admittedJob = %v, %v; want one: %t", got, err, tc.want)
			}
		})
	}
}
