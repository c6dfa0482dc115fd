// SPDX-License-Identifier: Apache-2.0

package podungate

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestOnlyPodsOfAdmittedJobsAreFreed(t *testing.T) {
	type row struct {
		suspend bool
		wl      *kueue.Workload
		labels  map[string]string
		want    bool
	}
	expect.Rows(t, map[string]row{
		"its job is admitted and runs":      {wl: inttest.AdmittedOf("a"), want: true},
		"its job is suspended":              {suspend: true, wl: inttest.AdmittedOf("a")},
		"its job waits":                     {wl: inttest.WorkloadOf(inttest.Job("a"))},
		"its job is evicted":                {wl: inttest.AdmittedOf("a", kit.Is(kueue.WorkloadEvicted, ""))},
		"a former job of that name has run": {wl: inttest.AdmittedOf("b")},
		"it is of no JobSet":                {wl: inttest.AdmittedOf("a"), labels: map[string]string{"a": "b"}},
		"it is of another job":              {wl: inttest.AdmittedOf("a"), labels: map[string]string{jobsetapi.JobSetNameKey: "other"}},
	}, func(t *testing.T, tc row) {
		job := inttest.Job("a")
		job.Spec.Suspend = new(tc.suspend)
		if tc.labels == nil {
			tc.labels = map[string]string{jobsetapi.JobSetNameKey: "llm"}
		}
		pod := inttest.PodOf("team", "llm", func(pod *corev1.Pod) { pod.Labels = tc.labels })
		c := inttest.Fake(job, tc.wl).Build()
		admitted, _, err := (&Controller{Client: c}).admittedJob(t.Context(), pod)
		expect.That(t, err == nil && (admitted != nil) == tc.want, "admittedJob() = %v, %v; want one: %t", admitted, err, tc.want)
	})
}

// Labels say of which TrainJob a pod is; whose it is, the UIDs of its owners.
func TestOnlyPodsOfAJobsOwnAreFreed(t *testing.T) {
	ofJobSet := func(uid types.UID) *batchv1.Job {
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "j"}}
		child.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "llm", UID: uid, Controller: new(true)}}
		return child
	}
	js := func(job *trainjob.TrainJob) *jobsetapi.JobSet { return inttest.JobSetOf(job, false) }
	type row struct {
		child  *batchv1.Job
		jobSet *jobsetapi.JobSet
		want   bool
	}
	expect.Rows(t, map[string]row{
		"its Job is of the TrainJob's JobSet":     {child: ofJobSet("js"), jobSet: js(inttest.Job("a")), want: true},
		"its Job is somebody's own":               {child: kit.With(ofJobSet("js"), func(j *batchv1.Job) { j.OwnerReferences = nil }), jobSet: js(inttest.Job("a"))},
		"its Job is of another JobSet":            {child: ofJobSet("other"), jobSet: js(inttest.Job("a"))},
		"the JobSet is of a former TrainJob":      {child: ofJobSet("js"), jobSet: js(inttest.Job("former"))},
		"the JobSet is somebody's own":            {child: ofJobSet("js"), jobSet: kit.With(js(inttest.Job("a")), func(js *jobsetapi.JobSet) { js.OwnerReferences = nil })},
		"another Job of that name has come since": {child: kit.With(ofJobSet("js"), func(j *batchv1.Job) { j.UID = "next" }), jobSet: js(inttest.Job("a"))},
	}, func(t *testing.T, tc row) {
		view := state.View{JobSet: tc.jobSet, Jobs: []batchv1.Job{*tc.child}}
		expect.Same(t, "The pod is made from the Job of the TrainJob", tc.want, madeFrom(view, inttest.Job("a"), inttest.PodOf("team", "llm")) != nil)
	})
}
