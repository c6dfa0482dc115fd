// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestOutdatedVersionsAreLeftAlone(t *testing.T) {
	key := types.NamespacedName{Namespace: "team", Name: "llm"}
	old, current := []version{{"uid", "wl", "5"}}, []version{{"uid", "wl", "6"}}
	e := ledSince(time.Time{})
	if e.outdated(key, old) {
		t.Error("a version is outdated before anybody said so")
	}
	e.outdate(key, old)
	if !e.outdated(key, old) || e.outdated(types.NamespacedName{Namespace: "other", Name: "llm"}, old) {
		t.Error("a version that was overtaken is not outdated, or another job's is")
	}
	if e.outdated(key, current) {
		t.Error("the newer version is outdated")
	}

	e.outdate(key, old)
	e.old[key][old[0]] = time.Now().Add(-time.Minute)
	if e.outdated(key, old) {
		t.Error("a version is outdated for ever, although nothing newer came")
	}

	others := []version{{"other", "other", "1"}}
	e.outdate(key, old)
	e.outdate(key, others)
	if !e.outdated(key, append(others, old...)) || !e.outdated(key, append(others, current...)) {
		t.Error("with several Workloads, one that is still old does not count")
	}
	if e.outdated(key, []version{{"other", "other", "2"}, current[0]}) {
		t.Error("all Workloads are newer, and still outdated")
	}
}

func TestOvertakenWorkload(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
	}{
		"a Workload was overtaken": {err: apierrors.NewConflict(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("modified")), want: "wl"},
		"a TrainJob was":           {err: apierrors.NewConflict(trainJobs, "llm", errors.New("modified"))},
		"a Workload was refused":   {err: apierrors.NewForbidden(schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "workloads"}, "wl", errors.New("no"))},
		"nothing happened":         {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := overtakenWorkload(tc.err); got != tc.want {
				t.Errorf("overtakenWorkload = %q, want %q", got, tc.want)
			}
		})
	}
}
