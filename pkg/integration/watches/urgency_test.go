// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// A change matters by which a TrainJob is decided about.
func TestMatters(t *testing.T) {
	type change = func(client.Object)
	ofJob := func(f func(*trainjob.TrainJob)) change { return func(o client.Object) { f(o.(*trainjob.TrainJob)) } }
	ofWorkload := func(f func(*kueue.Workload)) change { return func(o client.Object) { f(o.(*kueue.Workload)) } }
	ofJobSet := func(f func(*jobsetapi.JobSet)) change { return func(o client.Object) { f(o.(*jobsetapi.JobSet)) } }
	ofChild := func(f func(*batchv1.Job)) change { return func(o client.Object) { f(o.(*batchv1.Job)) } }
	running := batchv1.JobStatus{Active: 2, StartTime: ptr.To(metav1.Now())}
	tests := map[string]struct {
		of     client.Object
		change change
		want   bool
	}{
		"a spec":        {of: &batchv1.Job{}, change: func(o client.Object) { o.SetGeneration(2) }, want: true},
		"a label":       {of: &kueue.Workload{}, change: func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, want: true},
		"an annotation": {of: &kueue.Workload{}, change: func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }, want: true},
		"a finalizer":   {of: &jobsetapi.JobSet{}, change: func(o client.Object) { o.SetFinalizers([]string{"a"}) }, want: true},
		"a deletion":    {of: &jobsetapi.JobSet{}, change: func(o client.Object) { o.SetDeletionTimestamp(ptr.To(metav1.Now())) }, want: true},
		"the end of a TrainJob": {of: &trainjob.TrainJob{}, change: ofJob(func(j *trainjob.TrainJob) {
			j.Status.Conditions = []metav1.Condition{inttest.True(trainer.TrainJobComplete, "")}
		}), want: true},
		"a child Job is ready": {of: &trainjob.TrainJob{}, change: ofJob(func(j *trainjob.TrainJob) {
			j.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: ptr.To[int32](1)}}
		}), want: true},
		"a child Job has pods, Trainer says": {of: &trainjob.TrainJob{Status: trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{{Name: "node"}}}}, change: ofJob(func(j *trainjob.TrainJob) { j.Status.JobsStatus[0].Active = ptr.To[int32](1) })},
		"a Workload is admitted":             {of: &kueue.Workload{}, change: ofWorkload(inttest.Is(kueue.WorkloadAdmitted, "")), want: true},
		"a Workload loses its admission":     {of: inttest.AdmittedOf("uid"), change: ofWorkload(func(wl *kueue.Workload) { wl.Status.Admission = nil }), want: true},
		"a Workload's pods are ready":        {of: inttest.AdmittedOf("uid"), change: ofWorkload(inttest.Is(kueue.WorkloadPodsReady, ""))},
		"a Workload's pods are ready no more": {of: inttest.AdmittedOf("uid", inttest.Is(kueue.WorkloadPodsReady, "")), change: ofWorkload(func(wl *kueue.Workload) {
			wl.Status.Conditions = slices.DeleteFunc(wl.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
		}), want: true},
		"a JobSet is suspended": {of: &jobsetapi.JobSet{}, change: ofJobSet(func(js *jobsetapi.JobSet) {
			js.Status.Conditions = []metav1.Condition{inttest.True(string(jobsetapi.JobSetSuspended), "")}
		}), want: true},
		"a Workload has lost a pod":           {of: inttest.AdmittedOf("uid", inttest.Is(kueue.WorkloadPodsReady, "")), change: ofWorkload(inttest.Isnt(kueue.WorkloadPodsReady, "")), want: true},
		"a Workload waits for another reason": {of: waits("Pending", "no quota"), change: ofWorkload(func(wl *kueue.Workload) { wl.Status.Conditions[0].Reason = "Inadmissible" }), want: true},
		"a Workload waits, in other words":    {of: waits("Pending", "no quota"), change: ofWorkload(func(wl *kueue.Workload) { wl.Status.Conditions[0].Message = "still no quota" })},
		"a JobSet has no active Jobs any more": {of: &jobsetapi.JobSet{Status: jobsetapi.JobSetStatus{ReplicatedJobsStatus: []jobsetapi.ReplicatedJobStatus{{Active: 1}}}},
			change: ofJobSet(func(js *jobsetapi.JobSet) { js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{}} }), want: true},
		"a JobSet is over": {of: &jobsetapi.JobSet{}, change: ofJobSet(func(js *jobsetapi.JobSet) { js.Status.TerminalState = "Completed" }), want: true},
		"a JobSet counts ready Jobs": {of: &jobsetapi.JobSet{}, change: ofJobSet(func(js *jobsetapi.JobSet) {
			js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Ready: 1}}
		})},
		"a Job has its first pod": {of: &batchv1.Job{}, change: ofChild(func(child *batchv1.Job) { child.Status = running }), want: true},
		"a Job has its last pod no more": {of: &batchv1.Job{Spec: batchv1.JobSpec{Suspend: ptr.To(true)}, Status: batchv1.JobStatus{Active: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: "True"}}}},
			change: ofChild(func(child *batchv1.Job) { child.Status.Active = 0 }), want: true},
		"a Job's pods are ready":      {of: &batchv1.Job{Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Ready = ptr.To[int32](2) })},
		"one of many pods has failed": {of: &batchv1.Job{Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Active, child.Status.Failed = 1, 1 })},
		"a Job lacks a pod":           {of: &batchv1.Job{Spec: batchv1.JobSpec{Parallelism: ptr.To[int32](2)}, Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Active = 1 }), want: true},
		"a pod has succeeded":         {of: &batchv1.Job{Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Succeeded = 1 }), want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			after := tc.of.DeepCopyObject().(client.Object)
			tc.change(after)
			expect.Same(t, "It matters", tc.want, matters(tc.of, after))
		})
	}
	expect.Same(t, "What does not matter is looked at later", true, idlePeriod > 10*batchPeriod && batchPeriod < time.Second)
}

// waits returns a Workload that Kueue has not reserved quota for.
func waits(reason, message string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	return wl
}
