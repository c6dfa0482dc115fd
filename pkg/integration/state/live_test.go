// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func going(wl *kueue.Workload) {
	wl.DeletionTimestamp, wl.Finalizers = new(metav1.Now()), []string{"test/hold"}
}

func TestStillAdmitted(t *testing.T) {
	foreign := inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "b" })
	type live = []client.Object
	expect.Rows(t, map[string]expect.Row[live, bool]{
		"it is":                           {In: live{inttest.AdmittedOf("a")}, Want: true},
		"it waits":                        {In: live{inttest.WorkloadOf(inttest.Job("a"))}, Want: false},
		"the Workload is being deleted":   {In: live{inttest.AdmittedOf("a", going)}, Want: false},
		"the admission is a former job's": {In: live{inttest.AdmittedOf("b")}, Want: false},
		"there is no Workload":            {In: nil, Want: false},
		"somebody else's has its name":    {In: live{foreign}, Want: false},
		"the job has another time limit":  {In: live{inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(60)) })}, Want: false},
	}, func(t *testing.T, tc expect.Row[live, bool]) {
		got, err := state.StillAdmitted(t.Context(), inttest.Fake(tc.In...).Build(), inttest.Job("a"))
		expect.That(t, err == nil && got == tc.Want, "StillAdmitted() = %t, %v; want %t", got, err, tc.Want)
	})
}

func TestAdmissionStands(t *testing.T) {
	other := func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "other" }
	provisioned := func(request string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "nodes", State: kueue.CheckStateReady,
				PodSetUpdates: []kueue.PodSetUpdate{{Name: "node", Annotations: map[string]string{"request": request}}}}}
		}
	}
	type live = []client.Object
	admitted, nodes := inttest.AdmittedOf("a"), inttest.AdmittedOf("a", provisioned("1"))
	type row struct{ cached, live *kueue.Workload }
	for want, rows := range map[bool]map[string]row{
		true: {
			"the admission stands":          {admitted, inttest.AdmittedOf("a")},
			"a check adds the same to pods": {nodes, inttest.AdmittedOf("a", provisioned("1"))},
		},
		false: {
			"it adds what it did not before": {nodes, inttest.AdmittedOf("a", provisioned("2"))},
			"it is gone":                     {admitted, inttest.AdmittedOf("a", kit.Isnt(kueue.WorkloadAdmitted, ""))},
			"it is another one":              {admitted, inttest.AdmittedOf("a", other)},
			"it is another Workload's":       {admitted, inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.UID = "next" })},
			"the Workload is gone":           {admitted, inttest.AdmittedOf("another")},
			"the Workload is being deleted":  {admitted, inttest.AdmittedOf("a", going)},
		},
	} {
		expect.Rows(t, rows, func(t *testing.T, tc row) {
			got, err := state.AdmissionStands(t.Context(), inttest.Fake(tc.live).Build(), tc.cached)
			expect.That(t, err == nil && got == want, "AdmissionStands() = %t, %v; want %t", got, err, want)
		})
	}
}

func TestAFormerJobIsNotCurrent(t *testing.T) {
	job := inttest.Job("a")
	js := inttest.JobSetOf(job, true)
	job.Spec.Suspend = new(true)
	live := inttest.Fake(job, js).Build()
	former := job.DeepCopy()
	former.UID, former.ResourceVersion = "former", "0"
	current, err := state.AreCurrent(t.Context(), live, former, js)
	expect.That(t, err == nil && !current, "AreCurrent() = %t, %v", current, err)
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
				child.OwnerReferences[0].Kind = "X"
			}
			jobs = append(jobs, child)
		}
		asked, seen := 0, 0
		expect.NoError(t, state.EachChildJob(t.Context(), inPages(inttest.Fake(jobs...).Build(), &asked), js, func(*batchv1.Job) { seen++ }))
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
		expect.NoError(t, state.EachJobNamed(t.Context(), live, "ns", names, func(*metav1.PartialObjectMetadata) { seen++ }))
		expect.Same(t, "Unexpected number of Jobs", tc.want, seen)
		expect.Same(t, "Unexpected number of requests", tc.asked, asked)
	})
}
