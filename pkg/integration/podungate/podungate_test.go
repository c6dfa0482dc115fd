// SPDX-License-Identifier: Apache-2.0

package podungate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestOnlyPodsOfAdmittedJobsAreFreed(t *testing.T) {
	tests := map[string]struct {
		suspend bool
		wl      *kueue.Workload
		labels  map[string]string
		want    bool
	}{
		"its job is admitted and runs":      {wl: inttest.AdmittedOf("a"), want: true},
		"its job is suspended":              {suspend: true, wl: inttest.AdmittedOf("a")},
		"its job waits":                     {wl: inttest.WorkloadOf(inttest.Job("a"))},
		"its job is evicted":                {wl: inttest.AdmittedOf("a", inttest.Is(kueue.WorkloadEvicted, ""))},
		"a former job of that name has run": {wl: inttest.AdmittedOf("b")},
		"it is of no JobSet":                {wl: inttest.AdmittedOf("a"), labels: map[string]string{"a": "b"}},
		"it is of another job":              {wl: inttest.AdmittedOf("a"), labels: map[string]string{jobsetapi.JobSetNameKey: "other"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := inttest.Job("a")
			job.Spec.Suspend = ptr.To(tc.suspend)
			if tc.labels == nil {
				tc.labels = map[string]string{jobsetapi.JobSetNameKey: "llm"}
			}
			pod := inttest.PodOf("team", "llm", func(pod *corev1.Pod) { pod.Labels = tc.labels })
			c := inttest.Fake(job, tc.wl).Build()
			expect.Same(t, "There is an admitted TrainJob", tc.want, expect.Must((&Controller{Client: c}).admittedJob(t.Context(), pod))(t) != nil)
		})
	}
}
