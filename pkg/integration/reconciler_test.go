// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// newReconciler gives a reconciler for a cluster with one runtime, "torch", and objects.
func newReconciler(t *testing.T, objects ...client.Object) (*reconciler, *events.FakeRecorder) {
	t.Helper()
	d, _ := newHandlers(t)
	recorder := events.NewFakeRecorder(10)
	env := d.env
	env.live, env.recorder, env.field = env.client, newOnceRecorder(recorder), patch.Of(trainjob.Trainer23)
	for _, obj := range objects {
		if err := env.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	r := &reconciler{env: env}
	r.framework = frameworkOf(r)
	return r, recorder
}

func frameworkOf(r *reconciler) *jobframework.JobReconciler {
	return jobframework.NewReconciler(r.env.client, r.env.recorder)
}

func reconcileOnce(t *testing.T, r *reconciler) (ctrl.Result, *trainjob.TrainJob) {
	t.Helper()
	key := client.ObjectKey{Namespace: "ns", Name: "job"}
	result, err := r.reconcile(t.Context(), ctrl.Request{NamespacedName: key}, &job{env: r.env})
	if err != nil {
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
	r.env.runtimes.Live = interceptor.NewClient(r.env.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*corev1.ConfigMap); ok {
				reads++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	result, gated := reconcileOnce(t, r)
	if !r.env.field.HoldsGate(&gated.Spec) || result.RequeueAfter == 0 {
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
	wl := ownedBy("former", true)
	wl.Namespace, wl.OwnerReferences[0].Name, wl.Finalizers = "ns", "job", []string{kueue.ResourceInUseFinalizerName}
	r, _ := newReconciler(t, stored, wl)
	if err := r.env.client.Delete(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)}); err != nil {
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
