// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func trainJob(queue string, conditions ...metav1.Condition) *trainjob.TrainJob {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}}
	if queue != "" {
		job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue}
	}
	job.Status.Conditions = conditions
	return job
}

func condition(kind, status, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Message: message}
}

func workload(conditions ...metav1.Condition) *kueue.Workload {
	return &kueue.Workload{Status: kueue.WorkloadStatus{Conditions: conditions}}
}

// in returns the Workload an admission.
func in(clusterQueue string, wl *kueue.Workload, flavors ...string) *kueue.Workload {
	wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}
	for _, flavor := range flavors {
		wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, kueue.PodSetAssignment{
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": kueue.ResourceFlavorReference(flavor)},
		})
	}
	return wl
}

func jobSet(replicas, parallelism int32) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Replicas: replicas, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Parallelism: ptr.To(parallelism)}}}}
	return js
}

func completing(js *jobsetapi.JobSet, completions int32) *jobsetapi.JobSet {
	js.Spec.ReplicatedJobs[0].Template.Spec.Completions = &completions
	return js
}

func pods(phases ...corev1.PodPhase) (made []corev1.Pod) {
	for _, phase := range phases {
		made = append(made, corev1.Pod{Status: corev1.PodStatus{Phase: phase}})
	}
	return made
}

func managedBy(job *trainjob.TrainJob, manager string) *trainjob.TrainJob {
	job.Spec.ManagedBy = &manager
	return job
}

func assigned(wl *kueue.Workload, worker string) *kueue.Workload {
	wl.Status.ClusterName = &worker
	return wl
}

func TestProgress(t *testing.T) {
	dispatched := managedBy(trainJob("q"), kueue.MultiKueueControllerName)
	leaving := pods(corev1.PodRunning)
	leaving[0].DeletionTimestamp = ptr.To(metav1.Now())
	deactivated := workload(condition("Evicted", "True", "the Workload is deactivated"))
	deactivated.Spec.Active = ptr.To(false)
	checked := in("cq", workload(condition("QuotaReserved", "True", "")))
	checked.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "prov", State: kueue.CheckStatePending, Message: "nodes come"}}
	rejected := checked.DeepCopy()
	rejected.Status.AdmissionChecks[0].State = kueue.CheckStateRejected
	admitted := func() *kueue.Workload {
		return in("cq", workload(condition("QuotaReserved", "True", ""), condition("Admitted", "True", "")), "h100", "h100", "cpu")
	}
	const (
		queued   = "+ submitted: trainjob ns/job\n+ queued: LocalQueue q"
		reserved = queued + "\n+ quota reserved: ClusterQueue cq"
	)
	cases := map[string]struct {
		view view
		// want has a line for each step, with + where it is done, and the failure.
		want string
	}{
		"in a namespace that Kueue does not manage": {view: view{job: trainJob("q")}, want: `
+ submitted: trainjob ns/job
- pods created
- pods running`},
		"just created": {view: view{job: kit.With(trainJob("q"), func(job *trainjob.TrainJob) { job.Spec.Suspend = ptr.To(true) })}, want: `
+ submitted: trainjob ns/job
- queued: waits for its Workload
- quota reserved
- admitted
- pods created
- pods running`},
		"waiting": {view: view{job: trainJob("q"), workload: workload(condition("QuotaReserved", "False", "no quota left")), jobSet: jobSet(1, 2)}, want: queued + `
- quota reserved: no quota left
- admitted
- pods created: 0 of 2 pods
- pods running: 0 of 2 pods`},
		"evicted": {view: view{job: trainJob("q"), workload: workload(condition("QuotaReserved", "False", "no quota left"), condition("Evicted", "True", "preempted")), pods: leaving, jobSet: jobSet(1, 1)}, want: queued + `
- quota reserved: evicted: preempted
- admitted
- pods created: 0 of 1 pod
- pods running: 0 of 1 pod`},
		"behind an admission check": {view: view{job: trainJob("q"), workload: checked}, want: reserved + `
- admitted: waits for admission check prov: nodes come
- pods created
- pods running`},
		"admitted": {view: view{job: trainJob("q"), workload: admitted(), jobSet: jobSet(2, 2), pods: pods(corev1.PodPending, corev1.PodRunning)}, want: reserved + `
+ admitted: flavor cpu, h100
- pods created: 2 of 4 pods
- pods running: 1 of 4 pods`},
		"running; a pod that is done counts": {view: view{job: trainJob("q"), workload: admitted(), jobSet: jobSet(1, 2), pods: pods(corev1.PodSucceeded, corev1.PodRunning)}, want: reserved + `
+ admitted: flavor cpu, h100
+ pods created: 2 of 2 pods
+ pods running: 2 of 2 pods`},
		"taken to other clusters, and none has it yet": {view: view{job: dispatched, workload: checked}, want: reserved + `
- admitted: waits for admission check prov: nodes come
- in a worker`},
		"assigned to another cluster, and about to be admitted": {view: view{job: dispatched, workload: assigned(in("cq", workload(condition("QuotaReserved", "True", ""))), "west")}, want: reserved + `
- admitted
- in a worker`},
		"in another cluster": {view: view{job: dispatched, workload: assigned(admitted(), "west")}, want: reserved + `
+ admitted: flavor cpu, h100
+ in a worker: cluster west`},
		"running, with fewer completions than parallelism": {view: view{job: trainJob(""), jobSet: completing(jobSet(1, 4), 2), pods: pods(corev1.PodRunning, corev1.PodRunning)}, want: `
+ submitted: trainjob ns/job
+ pods created: 2 of 2 pods
+ pods running: 2 of 2 pods`},
		"complete, without a queue": {view: view{job: trainJob("", condition(trainer.TrainJobComplete, "True", ""))}, want: `
+ submitted: trainjob ns/job
+ pods created
+ pods running: it is complete`},
		"failed": {view: view{job: trainJob("", condition(trainer.TrainJobFailed, "True", "backoff limit"))}, want: `
+ submitted: trainjob ns/job
- pods created
- pods running
it failed: backoff limit`},
		"deactivated": {view: view{job: trainJob("q"), workload: deactivated}, want: queued + `
- quota reserved: evicted: the Workload is deactivated
- admitted
- pods created
- pods running
its Workload was deactivated: the Workload is deactivated`},
		"rejected": {view: view{job: trainJob("q"), workload: rejected}, want: reserved + `
- admitted: waits for admission check prov: nodes come
- pods created
- pods running
admission check prov rejected it: nodes come`},
		"deleted": {want: `
+ submitted
- pods running
it was deleted`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := progressOf(tc.view)
			var lines []string
			for _, s := range p.steps {
				mark := "-"
				if s.done {
					mark = "+"
				}
				lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", mark, s.name, s.detail), ": "))
			}
			if p.failure != "" {
				lines = append(lines, p.failure)
			}
			expect.Same(t, "Unexpected progress", strings.TrimSpace(tc.want), strings.Join(lines, "\n"))
		})
	}
}

func TestDisplay(t *testing.T) {
	steps := func(reached int) progress {
		p := progress{steps: []step{{name: "submitted"}, {name: "queued", detail: "LocalQueue q"}, {name: "quota reserved", detail: "no quota\nat all, for a long time"}}}
		for i := range reached {
			p.steps[i].done = true
		}
		return p
	}
	waiting := func(why string) progress {
		p := steps(2)
		p.steps[2].detail, p.steps[2].waits = why, true
		return p
	}
	failed := steps(1)
	failed.failure = "it failed"
	cases := map[string]struct {
		width int
		shown []progress
		want  string
	}{
		"a line for each step as it is reached": {
			shown: []progress{steps(1), steps(1), steps(3)},
			want:  "   0.0s  submitted\n   2.0s  queued          LocalQueue q\n   2.0s  quota reserved  no quota at all, for a long time\n",
		},
		"and one when it goes back": {
			shown: []progress{steps(2), steps(1), steps(2)},
			want:  "   0.0s  submitted\n   0.0s  queued          LocalQueue q\n   1.0s  back to submitted: LocalQueue q\n   2.0s  queued          LocalQueue q\n",
		},
		"what the next step waits for, once": {
			shown: []progress{waiting("no quota\nfor it"), waiting("no quota\nfor it"), waiting("no flavor"), steps(3)},
			want: "   0.0s  submitted\n   0.0s  queued          LocalQueue q\n   0.0s  waits           quota reserved: no quota for it\n" +
				"   2.0s  waits           quota reserved: no flavor\n   3.0s  quota reserved  no quota at all, for a long time\n",
		},
		"a terminal's lines change in their place, and wrap as it would": {
			width: 48, shown: []progress{steps(1), steps(2), steps(3)},
			want: "✓ submitted          0.0s\n… queued                   LocalQueue q\n  quota reserved\n" +
				"\x1b[3A\x1b[J✓ submitted          0.0s\n✓ queued             1.0s  LocalQueue q\n… quota reserved           no quota at all, for\n                           a long time\n" +
				"\x1b[4A\x1b[J✓ submitted          0.0s\n✓ queued             1.0s  LocalQueue q\n✓ quota reserved     2.0s  no quota at all, for\n                           a long time\n",
		},
		"a narrow terminal": {
			width: 30, shown: []progress{steps(2)},
			want: "✓ submitted          0.0s\n✓ queued             0.0s\n  LocalQueue q\n… quota reserved\n  no quota at all, for a long\n  time\n",
		},
		"a step that is never reached": {
			width: 80, shown: []progress{failed},
			want: "✓ submitted          0.0s\n✗ queued                   LocalQueue q\n  quota reserved\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			start := time.Now()
			d := newDisplay(&out, start)
			d.width = tc.width
			for i, p := range tc.shown {
				d.show(p, start.Add(time.Duration(i)*time.Second))
			}
			expect.Same(t, "Unexpected output", tc.want, out.String())
		})
	}
}
