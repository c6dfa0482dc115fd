// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// newReconciler returns a reconciler for a cluster with one runtime, "torch", and objects.
func newReconciler(t *testing.T, objects ...client.Object) (*attempt, *events.FakeRecorder) {
	t.Helper()
	env := newEnvironmentOn(t)
	recorder := events.NewFakeRecorder(10)
	env.live, env.Recorder = inttest.PodsByPhase(env.client), jobevents.New(recorder)
	for _, obj := range objects {
		if err := env.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	r := &attempt{env: env}
	r.framework = frameworkOf(r)
	return r, recorder
}

func frameworkOf(r *attempt) *jobframework.JobReconciler {
	return jobframework.NewReconciler(r.env.client, r.env.Recorder.ForFramework())
}

func reconcileOnce(t *testing.T, r *attempt) (ctrl.Result, *trainjob.TrainJob) {
	t.Helper()
	key := client.ObjectKey{Namespace: "ns", Name: "job"}
	result, err := r.reconcile(t.Context(), ctrl.Request{NamespacedName: key}, &job{env: r.env})
	if err != nil && !errors.Is(err, errOldView) {
		t.Fatal(err)
	}
	var stored trainjob.TrainJob
	if err := r.env.client.Get(t.Context(), key, &stored); err != nil {
		t.Fatal(err)
	}
	return result, &stored
}

// A TrainJob that was made while the webhook was away must not get child Jobs without the gate.
func TestGateComesBeforeTheQueue(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	stored.CreationTimestamp, stored.Spec.RuntimeRef.Name = metav1.Now(), "torch"
	r, _ := newReconciler(t, stored)
	reads := 0
	r.env.Runtimes.Live = interceptor.NewClient(r.env.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.ConfigMap); ok {
				reads++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	result, gated := reconcileOnce(t, r)
	if !r.env.Field.HoldsGate(&gated.Spec) || result.RequeueAfter == 0 {
		t.Errorf("The TrainJob has patches %v and is looked at again in %s, want the gate and to wait", gated.Spec.RuntimePatches, result.RequeueAfter)
	}
	reads = 0
	if _, again := reconcileOnce(t, r); again.ResourceVersion != gated.ResourceVersion || reads > 0 {
		t.Errorf("A TrainJob that has the gate is written, or its runtime read %d times", reads)
	}
}

// kubectl replace --force deletes a TrainJob and makes it again at once.
func TestFormerWorkloadGivesItsQuotaBack(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	stored.CreationTimestamp, stored.Spec.RuntimeRef.Name = metav1.Now(), "torch"
	wl := inttest.WorkloadOf("former", true)
	wl.Namespace, wl.OwnerReferences[0].Name, wl.Finalizers = "ns", "job", []string{kueue.ResourceInUseFinalizerName}
	r, _ := newReconciler(t, stored, wl)
	if err := r.env.client.Delete(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	if _, err := (&reconciler{env: r.env}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)}); err != nil {
		t.Fatal(err)
	}
	if err := r.env.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); !apierrors.IsNotFound(err) {
		t.Errorf("The former job's Workload is still there (%v), with finalizers %v", err, wl.Finalizers)
	}
	var left kueue.WorkloadList
	if err := r.env.client.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
		t.Errorf("The new job queues before its child Jobs are there: %v, %v", left.Items, err)
	}
}

// A start is told by one event, with the flavors, and one that repeats another is told, too.
func TestEveryStartIsToldOnce(t *testing.T) {
	stored, js := disagreeing(true, true, true, time.Now())
	stored.Spec.RuntimeRef.Name = "torch"
	r, recorder := newReconciler(t, stored, js)
	r.env.trainer = serving.NewTrainer(serving.NewTrainJobs(nil))
	r.env.trainer.Set(t.Context(), trainjob.Trainer23, nil)
	r.env.Defaults = servedDefaults(t)
	reconcileOnce(t, r)
	admit(t, r.env.client)
	_, started := reconcileOnce(t, r)
	if started.Suspended() {
		t.Fatal("An admitted job was not started")
	}
	// The user suspends it, which holds no job that is admitted.
	started.Spec.Suspend = ptr.To(true)
	if err := r.env.client.Update(t.Context(), started); err != nil {
		t.Fatal(err)
	}
	reconcileOnce(t, r)
	const start = "Normal Started Admitted from queue q by ClusterQueue gpus: node 1 pod on no flavor, it requests nothing"
	if diff := cmp.Diff([]string{start, start}, eventsSoFar(recorder, " Started ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// admit gives quota to the one Workload.
func admit(t *testing.T, c client.Client) {
	t.Helper()
	changeWorkload(t, c, giveQuota)
}

// changeWorkload changes the one Workload.
func changeWorkload(t *testing.T, c client.Client, change func(*kueue.Workload)) {
	t.Helper()
	var list kueue.WorkloadList
	if err := c.List(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("there are %d Workloads, want one; error: %v", len(list.Items), err)
	}
	change(&list.Items[0])
	if err := c.Update(t.Context(), &list.Items[0]); err != nil {
		t.Fatal(err)
	}
}

func giveQuota(wl *kueue.Workload) {
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition})
	}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{{Name: "node", Count: ptr.To[int32](1)}}}
}

// eventsSoFar returns those that contain a text.
func eventsSoFar(recorder *events.FakeRecorder, text string) []string {
	var found []string
	for {
		select {
		case event := <-recorder.Events:
			if strings.Contains(event, text) {
				found = append(found, event)
			}
		default:
			return found
		}
	}
}

// A job that waits for something is looked at when its time comes, and not before those
// about which Kueue has decided meanwhile.
func TestWhatWaitsIsNotFirst(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	stored.Spec.RuntimeRef.Name = "torch"
	r, _ := newReconciler(t, stored)
	result, err := (&reconciler{env: r.env}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)})
	if err != nil || result.RequeueAfter == 0 || ptr.Deref(result.Priority, decidedPriority) != 0 {
		t.Errorf("Reconcile() = %+v, %v; want to come again with priority 0", result, err)
	}
}

// A job that runs is what its JobSet and that one's Jobs have, whenever they were made.
func TestRunningJobStaysWithinItsQuota(t *testing.T) {
	tests := map[string]struct {
		replicas, parallelism int32
		pods                  int32
		inactive, kept, old   bool
	}{
		"the JobSet is what the job was admitted for":         {replicas: 1, parallelism: 1, kept: true},
		"the JobSet has more Jobs":                            {replicas: 2, parallelism: 1},
		"the JobSet has more pods":                            {replicas: 1, parallelism: 2},
		"a Job that the cache has from before it was scaled":  {replicas: 1, parallelism: 1, pods: 2, old: true, kept: true},
		"somebody scaled a Job":                               {replicas: 1, parallelism: 1, pods: 2},
		"the job was deactivated meanwhile, and stops anyway": {replicas: 2, parallelism: 1, inactive: true, kept: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(false, false, false, time.Now().Add(-time.Hour))
			js.UID = "js"
			js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node", Replicas: tc.replicas}}
			js.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = &tc.parallelism
			child := doneJob(js)
			child.Labels[jobsetapi.ReplicatedJobNameKey] = "node"
			child.Spec.Parallelism, child.Status = ptr.To(max(tc.pods, tc.parallelism)), batchv1.JobStatus{Active: 1}
			wl := inttest.WorkloadOf(stored.UID, true)
			wl.Namespace, wl.OwnerReferences[0].Name = stored.Namespace, stored.Name
			wl.Spec.PodSets = []kueue.PodSet{{Name: "node", Count: 1}}
			wl.Spec.Active = ptr.To(!tc.inactive)
			r, _ := newReconciler(t, js, child, wl)
			if tc.old {
				// What the cache has of it is older than what the API server has.
				now, _ := newReconciler(t, unstored(js), scaledTo(unstored(child), 1))
				r.env.live = now.env.client
			}
			if err := r.ensureWithinQuota(t.Context(), &job{TrainJob: *stored, env: r.env}); err != nil {
				t.Fatal(err)
			}
			err := r.env.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl)
			if kept := err == nil; kept != tc.kept {
				t.Errorf("The job keeps its Workload: %t, want %t; %v", kept, tc.kept, err)
			}
		})
	}
}

// unstored returns an object as before it was stored.
func unstored[T client.Object](obj T) T {
	out := obj.DeepCopyObject().(T)
	out.SetResourceVersion("")
	return out
}

func scaledTo(child *batchv1.Job, pods int32) *batchv1.Job {
	child.Spec.Parallelism = &pods
	return child
}

// servedDefaults are those of Kueue's Workload CRD. Without a schema, PodSets are empty.
func servedDefaults(t *testing.T) *podsets.Defaults {
	t.Helper()
	crd := moduleYAML(t, "sigs.k8s.io/kueue", "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml", &apiextensionsv1.CustomResourceDefinition{})
	defaults, err := podset.NewDefaults(crd, kueue.SchemeGroupVersion.Version)
	if err != nil {
		t.Fatal(err)
	}
	return podsets.FixedDefaults(defaults)
}
