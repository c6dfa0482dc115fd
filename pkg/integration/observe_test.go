// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What jobframework decides, it decides by the same Workloads as everything around it, whatever became of them since.
func TestJobframeworkHasWhatWasObserved(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored, inttest.WorkloadOf(stored, func(wl *kueue.Workload) { wl.Annotations = map[string]string{"example.com/note": "as observed"} }))
	j := expect.Must(r.deps.observe(t.Context(), jobKey))(t)
	changeWorkload(t, r.deps.client, func(wl *kueue.Workload) { wl.Annotations["example.com/note"] = "newer" })
	c := frozen{r.deps.client, j}

	for range 2 {
		var list kueue.WorkloadList
		expect.NoError(t, c.List(t.Context(), &list, client.InNamespace("ns"), jobframework.OwnerReferenceIndexFieldMatcher(trainjob.GVK, "job")))
		expect.Need(t, len(list.Items) == 1, "there are %d Workloads, want one", len(list.Items))
		expect.Same(t, "Unexpected note", "as observed", list.Items[0].Annotations["example.com/note"])
		// It changes what it lists, and the objects are those of the cache.
		list.Items[0].Annotations["example.com/note"] = "changed"
	}
	var others kueue.WorkloadList
	expect.NoError(t, c.List(t.Context(), &others, client.InNamespace("ns")))
	expect.Same(t, "Unexpected note of a Workload that is listed otherwise", "newer", others.Items[0].Annotations["example.com/note"])
}

func TestJobThatWasGoneIsNotFound(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t)
	j := expect.Must(r.deps.observe(t.Context(), jobKey))(t)
	expect.NoError(t, r.deps.client.Create(t.Context(), stored))
	err := frozen{r.deps.client, j}.Get(t.Context(), jobKey, j.Object())
	expect.That(t, apierrors.IsNotFound(err) && j.UID == "", "Get returns %v and UID %q, want not found", err, j.UID)
}

// jobframework reads a prebuilt Workload by its name.
func TestJobframeworkHasThePrebuiltWorkloadAsObserved(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored, inttest.WorkloadOf(stored))
	j := expect.Must(r.deps.observe(t.Context(), jobKey))(t)
	wl := theWorkload(t, r.deps.client)
	changeWorkload(t, r.deps.client, evicted)
	other := inttest.WorkloadOf(inttest.Job("other"))
	other.Namespace = jobKey.Namespace
	expect.NoError(t, r.deps.client.Create(t.Context(), other))

	client := frozen{r.deps.client, j}
	inttest.Reload(t, client, wl)
	expect.That(t, !kueuelib.IsEvicted(wl), "jobframework sees an eviction that the reconcile did not")
	inttest.Reload(t, client, other)
}

// A copy that was evicted has lost our finalizer; a run without it would leave no quota for its pods.
func TestWorkloadIsHeldBeforeItsJobStarts(t *testing.T) {
	stored, js := suspendedJob()
	r, _ := newReconciler(t, stored, js)
	reconcileOnce(t, r)
	changeWorkload(t, r.deps.client, kit.All(giveQuota, kit.Copied, kit.Held))
	_, job := reconcileOnce(t, r)
	expect.That(t, job.Suspended() && controllerutil.ContainsFinalizer(theWorkload(t, r.deps.client), placeholder.Finalizer),
		"The first look starts the job: %t; finalizers %v", !job.Suspended(), theWorkload(t, r.deps.client).Finalizers)
	_, job = reconcileOnce(t, r)
	expect.That(t, !job.Suspended(), "The next look does not start the job")
}

// There may be records of ten thousands of TrainJobs.
func TestRecordsAreKeptForWhatTheySay(t *testing.T) {
	r := &records{}
	r.of(jobKey, "uid").alone = true
	expect.That(t, r.of(jobKey, "uid").alone, "What was noted is forgotten")
	r.trim(jobKey)
	expect.Same(t, "Unexpected number of records that say something", 1, len(known(r)))
	expect.That(t, !r.of(jobKey, "another").alone, "Another TrainJob of the name has the record of the first")
	r.trim(jobKey)
	expect.Same(t, "Unexpected number of records that say nothing", 0, len(known(r)))
	r.of(jobKey, "").alone = true
	expect.Same(t, "Unexpected number of records of what is gone", 0, len(known(r)))
	r.of(jobKey, "uid").alone = true
	r.Delete(jobKey)
	expect.Same(t, "Unexpected number of records that were forgotten", 0, len(known(r)))
}

// The API server is asked whether a TrainJob is gone only where a Workload hangs on the answer.
func TestMissingJobIsAskedForWhereItMatters(t *testing.T) {
	for _, workloads := range [][]client.Object{nil, {inttest.AdmittedOf("uid")}} {
		r, _ := newReconciler(t, workloads...)
		asked := 0
		r.deps.client = kit.Gets(r.deps.client, func(obj client.Object, _ client.ObjectKey) error {
			if _, is := obj.(*trainjob.TrainJob); is {
				asked++
			}
			return nil
		})
		j := expect.Must(r.deps.observe(t.Context(), client.ObjectKeyFromObject(inttest.Job("uid"))))(t)
		expect.Same(t, "It is there", false, j.UID != "")
		expect.Same(t, "Number of requests, one for Workloads that are there", len(workloads), asked)
	}
}
