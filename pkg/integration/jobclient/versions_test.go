// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestOutdatedVersionsAreLeftAlone(t *testing.T) {
	key := types.NamespacedName{Namespace: "team", Name: "llm"}
	old, current := []Version{{"uid", "wl", "5"}}, []Version{{"uid", "wl", "6"}}
	e := ledFrom(time.Time{})
	expect.That(t, !e.Outdated(key, old), "a version is outdated before anybody said so")
	e.Outdate(key, old)
	expect.That(t, e.Outdated(key, old) && !e.Outdated(types.NamespacedName{Namespace: "other", Name: "llm"}, old),
		"a version that was overtaken is not outdated, or another job's is")
	expect.That(t, !e.Outdated(key, current), "the newer version is outdated")

	e.Outdate(key, old)
	e.old[key][old[0]] = time.Now().Add(-time.Minute)
	expect.That(t, !e.Outdated(key, old), "a version is outdated for ever, although nothing newer came")

	others := []Version{{"other", "other", "1"}}
	e.Outdate(key, old)
	e.Outdate(key, others)
	expect.That(t, e.Outdated(key, append(others, old...)) && e.Outdated(key, append(others, current...)),
		"with several Workloads, one that is still old does not count")
	expect.That(t, !e.Outdated(key, []Version{{"other", "other", "2"}, current[0]}), "all Workloads are newer, and still outdated")
}

func TestOvertakenWorkload(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
	}{
		"a Workload was overtaken": {err: apierrors.NewConflict(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("modified")), want: "wl"},
		"a TrainJob was":           {err: apierrors.NewConflict(Resource, "llm", errors.New("modified"))},
		"a Workload was refused":   {err: apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("no"))},
		"nothing happened":         {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected overtakenWorkload", tc.want, ConflictingWorkload(tc.err))
		})
	}
}
