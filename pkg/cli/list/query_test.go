// SPDX-License-Identifier: Apache-2.0

package list

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func listed(q query, jobs []TrainJob) string {
	rows := slices.DeleteFunc(slices.Clone(jobs), func(job TrainJob) bool { return !q.wants(&job) })
	q.sort(rows)
	return strings.Join(expect.Each(rows, func(row TrainJob) string { return row.Name }), " ")
}

func TestQuery(t *testing.T) {
	gpus := func(n int64) map[corev1.ResourceName]int64 { return map[corev1.ResourceName]int64{kit.GPU: n} }
	jobs := []TrainJob{
		{Name: "a", State: explain.State{Phase: explain.Running, Since: new(minutesAgo(1))}, Queue: "gpus", ClusterQueue: "pool", User: "jane", GPUs: gpus(8), Priority: new(int32(0))},
		{Name: "b", State: explain.State{Phase: explain.Waiting, Since: new(minutesAgo(9))}, Queue: "gpus", ClusterQueue: "pool", User: "joe", GPUs: gpus(16), Priority: new(int32(10)), Position: new(2)},
		{Name: "c", State: explain.State{Phase: explain.Waiting, Since: new(minutesAgo(5))}, Queue: "cpus", ClusterQueue: "rest", User: "jane", GPUs: gpus(0), Priority: new(int32(5)), Position: new(1)},
		{Name: "d", State: explain.State{Phase: Unknown}, Queue: "gpus", Unknown: map[string]string{"phase": inventory.Workloads}},
	}
	expect.Rows(t, map[string]expect.Row[query, string]{
		"all":                                  {Want: "a b c d"},
		"a state, and those of an unknown one": {In: query{states: []string{"waiting"}}, Want: "b c d"},
		"one of several states":                {In: query{states: []string{"Waiting", "Running"}}, Want: "a b c d"},
		"a LocalQueue":                         {In: query{queue: "cpus"}, Want: "c"},
		"a ClusterQueue":                       {In: query{queue: "pool"}, Want: "a b"},
		"a user":                               {In: query{user: "jane"}, Want: "a c"},
		"all together":                         {In: query{states: []string{"Waiting"}, queue: "gpus", user: "joe"}, Want: "b"},
		"by name":                              {In: query{order: "name"}, Want: "a b c d"},
		"by state":                             {In: query{order: "state"}, Want: "a d b c"},
		"by queue":                             {In: query{order: "queue"}, Want: "c a b d"},
		"by user":                              {In: query{order: "user"}, Want: "d a c b"},
		"by GPUs, the most first":              {In: query{order: "gpus"}, Want: "b a c d"},
		"by priority, the highest first":       {In: query{order: "priority"}, Want: "b c a d"},
		"by position":                          {In: query{order: "position"}, Want: "c b a d"},
		"by since, the longest first":          {In: query{order: "since"}, Want: "b c a d"},
	}, func(t *testing.T, tc expect.Row[query, string]) {
		expect.NoError(t, tc.In.check())
		expect.Same(t, "Unexpected TrainJobs", tc.Want, listed(tc.In, jobs))
	})
}

func TestQueryIsRefused(t *testing.T) {
	labelled := &config.Configuration{Metrics: config.Metrics{UserLabel: "example.com/user"}}
	type row struct {
		query  query
		around explain.Around
		want   string
		code   int
	}
	expect.Rows(t, map[string]row{
		"a user":                       {query: query{user: "jane"}, around: explain.Around{Manager: labelled}},
		"no such state":                {query: query{states: []string{"Pending"}}, code: exit.Failed, want: "--state Pending: there is no such state: use NotManaged, Unqueued,"},
		"a user where no label tells":  {query: query{user: "jane"}, around: explain.Around{Manager: &config.Configuration{}}, code: exit.Failed, want: "set metrics.userLabel of kueue-trainer's configuration"},
		"a user who cannot be told of": {query: query{user: "jane"}, around: explain.Around{ManagerUnseen: true}, code: exit.Unseen, want: "--user: you may not list configmaps of namespace kueue-trainer-system"},
		"a user without configuration": {query: query{user: "jane"}, code: exit.Failed, want: "kueue-trainer-config that can be read, whose metrics.userLabel says whose a TrainJob is: use -l LABEL=jane"},
	}, func(t *testing.T, tc row) {
		err := tc.query.check()
		if err == nil {
			err = tc.query.checkUser(&tc.around)
		}
		expect.That(t, (err == nil) == (tc.want == "") && strings.Contains(expect.Text(err), tc.want), "Unexpected error: %v", err)
		expect.Same(t, "Unexpected exit code", tc.code, exit.Code(err))
	})
}

func TestUserOfALine(t *testing.T) {
	labelled := func(f *explain.Facts) {
		f.Job.Labels["example.com/user"] = "jane"
		f.Manager = &config.Configuration{Metrics: config.Metrics{UserLabel: "example.com/user"}}
	}
	type row struct {
		query  query
		change func(*explain.Facts)
		want   string
		unseen []Unseen
	}
	expect.Rows(t, map[string]row{
		"not asked for":                   {change: labelled},
		"by the label":                    {query: query{users: true}, change: labelled, want: "jane"},
		"where no label tells":            {query: query{users: true}, change: func(f *explain.Facts) { f.Manager = &config.Configuration{} }},
		"where the label may not be seen": {query: query{users: true}, change: func(f *explain.Facts) { f.ManagerUnseen = true }, unseen: []Unseen{{configMaps, []string{"user"}}}},
		"where there is no configuration": {query: query{users: true}, unseen: []Unseen{{noConfiguration, []string{"user"}}}},
	}, func(t *testing.T, tc row) {
		got := newList(&explain.Snapshot{Facts: []*explain.Facts{facts(t, nil, tc.change)}}, &tc.query, nil, nil)
		expect.Same(t, "Unexpected user", tc.want, got.TrainJobs[0].User)
		expect.Same(t, "Unexpected kinds", tc.unseen, got.Unseen)
	})
}
