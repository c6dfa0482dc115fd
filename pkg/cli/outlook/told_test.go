// SPDX-License-Identifier: Apache-2.0

package outlook_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/prom"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// prometheus serves the buckets of a Prometheus, which has the ledgers of so many clusters, and keeps what it is asked.
func prometheus(t *testing.T, clusters, buckets string, asked *[]string) string {
	t.Helper()
	return kit.Prometheus(t, "", func(query string, ranged bool) string {
		switch {
		case ranged:
			return `{"metric":{},"values":[[0,"` + clusters + `"],[300,"` + clusters + `"]]}`
		case strings.HasPrefix(query, "last_over_time("):
			return ""
		}
		*asked = append(*asked, query)
		return buckets
	}).URL
}

func bucket(queue, le, jobs string) string {
	return `{"metric":{"namespace":"team","local_queue":"` + queue + `","le":"` + le + `"},"value":[0,"` + jobs + `"]}`
}

func TestMeasured(t *testing.T) {
	type row struct {
		clusters, buckets string
		want              []forecast.Histogram
		note, err         string
	}
	expect.Rows(t, map[string]row{
		"of two queues, in any order": {buckets: strings.Join([]string{bucket("main", "+Inf", "30.2"), bucket("main", "3600.0", "20"), bucket("main", "960", "2"), bucket("a", "60", "1")}, ","),
			want: []forecast.Histogram{
				{Queue: "team/a", Buckets: []forecast.Bucket{{Seconds: 60, Jobs: 1}}},
				{Queue: "team/main", Buckets: []forecast.Bucket{{Seconds: 960, Jobs: 2}, {Seconds: 3600, Jobs: 20}, {Seconds: math.Inf(1), Jobs: 30.2}}},
			}},
		"of queues that the manager puts together": {buckets: bucket("", "60", "1"), want: []forecast.Histogram{{Buckets: []forecast.Bucket{{Seconds: 60, Jobs: 1}}}}},
		"it does not scrape the manager":           {note: "note: Prometheus has no running times of the last 30 days: check that it scrapes the manager\n"},
		"it has several clusters":                  {clusters: "2", err: "it has the ledgers of several clusters, and no label tells them apart"},
		"it has other series":                      {buckets: bucket("main", "long", "1"), err: `Prometheus answers with a bucket up to "long"`},
	}, func(t *testing.T, tc row) {
		var asked []string
		var notes bytes.Buffer
		if tc.clusters == "" {
			tc.clusters = "1"
		}
		flags := outlook.Flags{Prometheus: prom.Flags{URL: prometheus(t, tc.clusters, tc.buckets, &asked), Match: map[string]string{"cluster": "eu"}}}
		err := flags.Complete(t.Context(), &notes)
		expect.Same(t, "Unexpected error", tc.err, expect.Text(err))
		expect.Same(t, "Unexpected note", tc.note, notes.String())
		expect.Same(t, "Unexpected running times", tc.want, flags.Measured)
		if tc.clusters == "1" {
			want := `sum by (le, namespace, local_queue) (label_replace(increase(kueue_trainer_admitted_until_ended_seconds_bucket{cluster="eu"}[30d]), ` +
				`"namespace", "$1", "exported_namespace", "(.+)"))`
			expect.Same(t, "Unexpected queries", []string{want}, asked)
		}
	})
}

func TestFlags(t *testing.T) {
	complete := func(in outlook.Flags) string { return expect.Text(in.Complete(t.Context(), &bytes.Buffer{})) }
	expect.Answers(t, complete, map[string]expect.Row[outlook.Flags, string]{
		"no Prometheus":                {},
		"a time before now":            {In: outlook.Flags{Told: outlook.Told{Assume: -1}}, Want: "--assume: -1ns is no time that a job runs"},
		"a token without a Prometheus": {In: outlook.Flags{Prometheus: prom.Flags{TokenFile: "token"}}, Want: "--token-file is for --prometheus"},
		"labels without a Prometheus":  {In: outlook.Flags{Prometheus: prom.Flags{Match: map[string]string{"a": "b"}}}, Want: "--match is for --prometheus"},
		"a label that is none": {In: outlook.Flags{Prometheus: prom.Flags{URL: "http://127.0.0.1", Match: map[string]string{"a-b": "c"}}},
			Want: `--match a-b=c: "a-b" is no name of a label`},
		"no Prometheus that is there": {In: outlook.Flags{Prometheus: prom.Flags{URL: "http://127.0.0.1:1"}},
			Want: `asking Prometheus: Post "http://127.0.0.1:1/api/v1/query_range": dial tcp 127.0.0.1:1: connect: connection refused`},
	})
}
