// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// dispatched returns a reconciler for a TrainJob that MultiKueue runs in another cluster.
func dispatched(t *testing.T, change func(*trainjob.TrainJob)) *attempt {
	t.Helper()
	stored, _ := disagreeing(true, true, true, time.Now())
	stored.Spec.RuntimeRef.Name, stored.Spec.ManagedBy = "torch", ptr.To(kueue.MultiKueueControllerName)
	if change != nil {
		change(stored)
	}
	r, _ := newReconciler(t, stored)
	r.env.Defaults = servedDefaults(t)
	return r
}

// reconciled returns the TrainJob after a reconcile. jobframework fails to give the quota back
// afterwards: the fake API server has no status of Workloads to write.
func reconciled(t *testing.T, r *attempt) *trainjob.TrainJob {
	t.Helper()
	key := client.ObjectKey{Namespace: "ns", Name: "job"}
	if _, err := r.reconcile(t.Context(), ctrl.Request{NamespacedName: key}, &job{env: r.env}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	stored := &trainjob.TrainJob{}
	if err := r.env.client.Get(t.Context(), key, stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

// admittedOn has quota given to a Workload, and MultiKueue say where it runs.
func admittedOn(cluster string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		giveQuota(wl)
		wl.Status.ClusterName = &cluster
	}
}

func evicted(wl *kueue.Workload) {
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
		Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedByAdmissionCheck})
}

// What MultiKueue copies to a worker has to be the user's alone, at any time.
func TestJobOfAnotherClusterGetsNoEntry(t *testing.T) {
	r := dispatched(t, nil)
	steps := []struct {
		what      string
		change    func(*kueue.Workload)
		suspended bool
	}{
		{what: "it waits", suspended: true},
		{what: "it is admitted", change: admittedOn("west")},
		{what: "it runs"},
		{what: "its cluster is lost", change: evicted, suspended: true},
	}
	for _, step := range steps {
		if step.change != nil {
			changeWorkload(t, r.env.client, step.change)
		}
		stored := reconciled(t, r)
		if r.env.Field.Has(&stored.Spec) {
			t.Errorf("%s: it has an entry of ours: %v", step.what, stored.Spec.RuntimePatches)
		}
		if stored.Suspended() != step.suspended {
			t.Errorf("%s: it is suspended: %t, want %t", step.what, stored.Suspended(), step.suspended)
		}
	}
}

// Releases before this one gave it the gate, which does no harm here.
func TestJobOfAnotherClusterKeepsTheEntryThatItHas(t *testing.T) {
	var before trainjob.Spec
	r := dispatched(t, func(job *trainjob.TrainJob) {
		if _, err := patch.Of(trainjob.Trainer23).Set(&job.Spec, []patch.Placement{patch.Gated("node")}); err != nil {
			t.Fatal(err)
		}
		before = job.DeepCopy().Spec
	})
	reconciled(t, r)
	changeWorkload(t, r.env.client, admittedOn("west"))
	started := reconciled(t, r)
	if !r.env.Field.Same(&before, &started.Spec) || started.Suspended() {
		t.Errorf("It is suspended: %t, and its patches are %v, want %v", started.Suspended(), started.Spec.RuntimePatches, before.RuntimePatches)
	}
}

// Its user resumes it without quota: Trainer makes nothing of it, and there is no gate to write.
func TestJobOfAnotherClusterIsSuspendedWithoutQuota(t *testing.T) {
	r := dispatched(t, nil)
	stored := reconciled(t, r)
	stored.Spec.Suspend = ptr.To(false)
	if err := r.env.client.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	if stopped := reconciled(t, r); !stopped.Suspended() || r.env.Field.Has(&stopped.Spec) {
		t.Errorf("It is suspended: %t, with patches %v", stopped.Suspended(), stopped.Spec.RuntimePatches)
	}
}

func TestDispatchIsTold(t *testing.T) {
	cases := map[string]struct {
		cluster *string
		want    string
	}{
		"to a cluster that MultiKueue names": {cluster: ptr.To("west"), want: "Admitted from queue team by ClusterQueue gpus, and runs in cluster west"},
		"to one that it does not":            {want: "Admitted from queue team by ClusterQueue gpus, and runs in another cluster"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"},
				Status: kueue.WorkloadStatus{ClusterName: tc.cluster, Admission: &kueue.Admission{ClusterQueue: "gpus"}}}
			if diff := cmp.Diff(tc.want, dispatchedMessage(wl)); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

// MultiKueue deletes Workload and TrainJob of a run, and sends the same job again at once.
func TestJobSentAgainWaitsForThePodsOfItsFormerRun(t *testing.T) {
	pod := func(jobSet string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod",
				Labels:          map[string]string{jobsetapi.JobSetNameKey: "job", jobsetapi.JobSetUIDKey: jobSet},
				OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job-node-0", UID: "j", Controller: new(true)}}},
			Spec:   corev1.PodSpec{NodeName: "node"},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	cases := map[string]struct {
		origin string
		pod    *corev1.Pod
		want   bool
	}{
		"a pod of the former run":              {origin: "manager", pod: pod("former"), want: true},
		"a pod of its own":                     {origin: "manager", pod: pod("js")},
		"no pod":                               {origin: "manager"},
		"a job of this cluster, without quota": {pod: pod("former")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(true, true, true, time.Now())
			js.UID = "js"
			if tc.origin != "" {
				stored.Labels[kueue.MultiKueueOriginLabel] = tc.origin
			}
			objects := []client.Object{stored, js}
			if tc.pod != nil {
				objects = append(objects, tc.pod)
			}
			r, _ := newReconciler(t, objects...)
			j := &job{TrainJob: *stored, env: r.env, key: client.ObjectKeyFromObject(stored)}
			if o := j.awaitPodsOfFormer(t.Context()); o.err != nil || o.done != tc.want || (o.again > 0) != tc.want {
				t.Errorf("awaitPodsOfFormer() = %+v, want to wait: %t", o, tc.want)
			}
		})
	}
}
