// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
	r.deps.Defaults = servedDefaults(t)
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

// inPages lists page by page as the API server does, and counts what it is asked. A page of more objects than a few
// of a megabyte each is refused.
func inPages(c client.Client, asked *int) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			*asked++
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			*asked++
			var options client.ListOptions
			options.ApplyOptions(opts)
			if options.Limit == 0 || options.Limit > 10 {
				return errors.New("a list that has no end")
			}
			if err := c.List(ctx, list, &client.ListOptions{Namespace: options.Namespace, LabelSelector: options.LabelSelector}); err != nil {
				return err
			}
			all, err := apimeta.ExtractList(list)
			if err != nil {
				return err
			}
			from, _ := strconv.Atoi(options.Continue)
			to := min(from+int(options.Limit), len(all))
			if list.SetContinue(""); to < len(all) {
				list.SetContinue(strconv.Itoa(to))
			}
			return apimeta.SetList(list, all[from:to])
		},
	})
}

func TestEachChildJob(t *testing.T) {
	js := inttest.JobSetOf(inttest.Job("a"), false)
	type row struct{ own, strange, asked int }
	expect.Rows(t, map[string]row{
		"a job has a few child Jobs": {own: 3, asked: 1},
		"it has many":                {own: 12, asked: 2},
		"somebody labels Jobs":       {own: 1, strange: 12, asked: 2},
	}, func(t *testing.T, tc row) {
		var jobs []client.Object
		for i := range tc.own + tc.strange {
			child := kit.ChildJob(js, fmt.Sprintf("%02d", i))
			if i < tc.strange {
				child.OwnerReferences = nil
			}
			jobs = append(jobs, child)
		}
		asked, seen := 0, 0
		expect.NoError(t, eachChildJob(t.Context(), inPages(inttest.Fake(jobs...).Build(), &asked), js, func(*batchv1.Job) { seen++ }))
		expect.Same(t, "Unexpected number of Jobs", tc.own, seen)
		expect.Same(t, "Unexpected number of requests", tc.asked, asked)
	})
}

func TestEachJobNamed(t *testing.T) {
	var jobs []client.Object
	for i := range 25 {
		jobs = append(jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i)}})
	}
	type row struct{ names, asked, want int }
	expect.Rows(t, map[string]row{
		"one name, one request":           {names: 1, asked: 1, want: 1},
		"a few, of which some are there":  {names: 10, asked: 10, want: 10},
		"many, and so all Jobs there are": {names: 100, asked: 3, want: 25},
		"none, and nothing is asked":      {},
	}, func(t *testing.T, tc row) {
		names := sets.New[string]()
		for i := range tc.names {
			names.Insert(fmt.Sprint(i))
		}
		asked, seen := 0, 0
		live := inPages(inttest.Fake(jobs...).Build(), &asked)
		expect.NoError(t, eachJobNamed(t.Context(), live, "ns", names, func(*metav1.PartialObjectMetadata) { seen++ }))
		expect.Same(t, "Unexpected number of Jobs", tc.want, seen)
		expect.Same(t, "Unexpected number of requests", tc.asked, asked)
	})
}
