// SPDX-License-Identifier: Apache-2.0

package integration

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
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
	cases := map[string]struct{ own, strange, asked int }{
		"a job has a few child Jobs": {own: 3, asked: 1},
		"it has many":                {own: 12, asked: 2},
		"somebody labels Jobs":       {own: 1, strange: 12, asked: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var jobs []client.Object
			for i := range tc.own + tc.strange {
				child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: fmt.Sprintf("j-%02d", i), Labels: map[string]string{jobsetapi.JobSetNameKey: js.Name}}}
				if i >= tc.strange {
					child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))}
				}
				jobs = append(jobs, child)
			}
			asked, seen := 0, 0
			expect.NoError(t, eachChildJob(t.Context(), inPages(inttest.Fake(jobs...).Build(), &asked), js, func(*batchv1.Job) { seen++ }))
			expect.Same(t, "Unexpected number of Jobs", tc.own, seen)
			expect.Same(t, "Unexpected number of requests", tc.asked, asked)
		})
	}
}

func TestEachJobNamed(t *testing.T) {
	cases := map[string]struct{ names, asked, want int }{
		"one name, one request":           {names: 1, asked: 1, want: 1},
		"a few, of which some are there":  {names: 10, asked: 10, want: 10},
		"many, and so all Jobs there are": {names: 100, asked: 3, want: 25},
		"none, and nothing is asked":      {},
	}
	var jobs []client.Object
	for i := range 25 {
		jobs = append(jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i)}})
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
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
}
