// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/prom"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// prometheusOf serves what a Prometheus answers, by the metric that is asked for.
func prometheusOf(t *testing.T, token string, before, within map[string]string) string {
	t.Helper()
	return kit.Prometheus(t, token, func(query string, ranged bool) (results string) {
		if strings.HasPrefix(query, "count(count_values(") {
			return ""
		}
		expect.That(t, strings.HasPrefix(query, "max by (cluster_queue, namespace, local_queue, flavor, resource, priority_class, user, phase, outcome) (label_replace("),
			"A label of the target may split a series in %s", query)
		for metric, answer := range map[bool]map[string]string{true: within, false: before}[ranged] {
			if strings.Contains(query, metric) {
				results = answer
			}
		}
		return results
	}).URL
}

// querierOf asks for the ten minutes from noon on.
func querierOf(t *testing.T, flags prom.Flags, namespace string) *querier {
	t.Helper()
	return &querier{expect.Must(flags.Client())(t), noon, at(10), namespace}
}

func TestBillOfPrometheus(t *testing.T) {
	const (
		gpus  = `"cluster_queue":"gpus","flavor":"h100","resource":"nvidia.com/gpu"`
		ofOld = `{"metric":{},"value":[0,"1"]}`
		old   = `{"metric":{},"values":[[1893499260,"1"]]}`
	)
	running := func(key, total string) string {
		return `{"metric":{` + gpus + `,"namespace":"team","local_queue":"q","phase":"running"},"` + key + `":` + total + `}`
	}
	began := strconv.FormatInt(at(-600).Unix(), 10)
	together := map[string]string{
		"ledger_began": old, "quota_resource_seconds_total": `{"metric":{` + gpus + `,"namespace":"kueue-trainer-system","phase":"running"},"values":[[1893499260,"3600"]]}`,
	}
	type row struct {
		before, within map[string]string
		// token is what Prometheus wants, and secret what it is given.
		token, secret, namespace string
		want                     Line
		err                      string
	}
	expect.Rows(t, map[string]row{
		"of a namespace, with a token": {namespace: "team", token: "Bearer secret", secret: "secret\n", before: map[string]string{
			"ledger_began": ofOld, "quota_resource_seconds_total": running("value", `[0,"3600"]`), "ended_resource_seconds_total": "",
		}, within: map[string]string{
			"ledger_began": old,
			"quota_resource_seconds_total": running("values", `[[1893499260,"7200"],[1893499320,"10800"]]`) + "," +
				`{"metric":{` + gpus + `,"namespace":"team","local_queue":"q","phase":"waiting"},"values":[[1893499320,"1800"]]},` +
				`{"metric":{` + gpus + `,"namespace":"other","local_queue":"q","phase":"waiting"},"values":[[1893499320,"1800"]]}`,
			"ended_resource_seconds_total": `{"metric":{` + gpus + `,"namespace":"team","local_queue":"q","outcome":"lost"},"values":[[1893499320,"900"]]}`,
		}, want: Line{ClusterQueue: "gpus", Namespace: "team", LocalQueue: "q", Resource: "nvidia.com/gpu", Unit: "GPU-hours", Held: new(2.5), Waiting: new(0.5), Running: new(2.0), Lost: new(0.25)}},
		// A range reaches back to the last values of a process that is gone: its total is not that of a ledger which began since.
		"after the ledger began again": {before: map[string]string{
			"ledger_began_timestamp_seconds[1d]": `{"metric":{},"value":[0,"` + began + `"]}`,
			"quota_resource_seconds_total[1d]":   running("value", `[0,"36000000"]`), "quota_resource_seconds_total[10h]": running("value", `[0,"288000"]`),
		}, within: map[string]string{
			"ledger_began":                 `{"metric":{},"values":[[1893499260,"` + began + `"]]}`,
			"quota_resource_seconds_total": running("values", `[[1893499260,"288000"],[1893499320,"295200"]]`),
		}, want: Line{ClusterQueue: "gpus", Namespace: "team", LocalQueue: "q", Resource: "nvidia.com/gpu", Unit: "GPU-hours", Held: new(2.0), Running: new(2.0)}},
		"of LocalQueues together": {before: map[string]string{"ledger_began": ofOld}, within: together,
			want: Line{ClusterQueue: "gpus", Resource: "nvidia.com/gpu", Unit: "GPU-hours", Held: new(1.0), Running: new(1.0)}},
		"of a namespace, of LocalQueues together": {namespace: "team", before: map[string]string{"ledger_began": ofOld}, within: together, err: "so it has no bill of one namespace: leave -n out"},
		"it has no ledger":                        {err: "it has no series of the ledger for this time"},
		"it wants a token":                        {token: "Bearer secret", err: "Prometheus answers: client error: 401"},
	}, func(t *testing.T, tc row) {
		flags := prom.Flags{URL: prometheusOf(t, tc.token, tc.before, tc.within)}
		if tc.secret != "" {
			flags.TokenFile = filepath.Join(t.TempDir(), "token")
			expect.NoError(t, os.WriteFile(flags.TokenFile, []byte(tc.secret), 0o600))
		}
		totals, notes, err := querierOf(t, flags, tc.namespace).bill(t.Context())
		if tc.err != "" {
			expect.Says(t, err, tc.err)
			return
		}
		expect.Need(t, err == nil && len(notes) == 0, "bill() = %v, %v", notes, err)
		expect.Same(t, "Unexpected bill", []Line{tc.want}, lines(totals, byQueue))
	})
}

// Nobody was scraped at the end of a month: what was used since the look before is in the bill.
func TestBillOfAWindowThatEndsInAGap(t *testing.T) {
	series := func(total, key string) string {
		return `{"metric":{"cluster_queue":"gpus","resource":"nvidia.com/gpu","namespace":"team","local_queue":"q","phase":"running"},"` + key + `":` + total + `}`
	}
	for name, tc := range map[string]struct {
		// began is when the ledger did, so long before the end.
		began time.Duration
		want  float64
	}{
		"the ledger is old":                   {began: 60 * 24 * time.Hour, want: 3},
		"it began after the look before":      {began: 20 * time.Minute, want: 3},
		"it began so lately that others tell": {began: 4 * time.Minute, want: 2},
	} {
		from, to := noon, noon.Add(30*24*time.Hour)
		began := strconv.FormatInt(to.Add(-tc.began).Unix(), 10)
		url := prometheusOf(t, "", map[string]string{
			"quota_resource_seconds_total[1d]": series(`[0,"0"]`, "value"), "quota_resource_seconds_total[15m]": series(`[0,"10800"]`, "value"),
			"quota_resource_seconds_total[1h26m24s]": series(`[0,"10800"]`, "value"),
		}, map[string]string{
			"ledger_began":                 fmt.Sprintf(`{"metric":{},"values":[[%d,"%s"]]}`, from.Unix(), began),
			"quota_resource_seconds_total": series(fmt.Sprintf(`[[%d,"0"],[%d,"7200"]]`, from.Unix(), to.Add(-time.Hour).Unix()), "values"),
		})
		q := querierOf(t, prom.Flags{URL: url}, "")
		q.from, q.to = from, to
		totals, _, err := q.bill(t.Context())
		expect.NoError(t, err)
		expect.Same(t, name, tc.want, *lines(totals, byQueue)[0].Held)
	}
}

func TestBillOfSeveralClusters(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, string]{
		"with a label": {In: `"cluster":"us-1"`,
			Want: `it has the ledgers of several clusters, with label cluster ["eu-1" "us-1"]: choose one with --match cluster=us-1`},
		"without": {In: `"cluster":"eu-1","pod":"a"`, Want: "it has the ledgers of several clusters, and no label tells them apart"},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		var asked []string
		server := kit.Prometheus(t, "", func(query string, ranged bool) string {
			if asked = append(asked, query); ranged {
				return `{"metric":{},"values":[[0,"2"],[300,"2"]]}`
			}
			return `{"metric":{"cluster":"eu-1"},"value":[0,"100"]},{"metric":{` + tc.In + `},"value":[0,"200"]}`
		})
		q := querierOf(t, prom.Flags{URL: server.URL, Match: map[string]string{"region": "all", "env": `"`}}, "")
		_, _, err := q.bill(t.Context())
		expect.Same(t, "Unexpected error", tc.Want, expect.Text(err))
		want := []string{
			`count(count_values("began", last_over_time(kueue_trainer_ledger_began_timestamp_seconds{env="\"", region="all"}[5m])))`,
			`last_over_time(kueue_trainer_ledger_began_timestamp_seconds{env="\"", region="all"}[30m])`,
		}
		expect.Same(t, "Unexpected queries", want, asked)
	})
}

func TestLines(t *testing.T) {
	total := func(flavor, resource, user, is string, seconds float64) ledger.Total {
		return ledger.Total{Series: ledger.Series{ClusterQueue: "c", Namespace: "n", LocalQueue: "q", Flavor: flavor, Resource: resource, User: user}, Is: is, Seconds: seconds}
	}
	totals := []ledger.Total{
		total("h100", "nvidia.com/gpu", "ann", "waiting", 3600), total("h100", "nvidia.com/gpu", "ann", "running", 7200), total("h100", "nvidia.com/gpu", "ann", "stopping", 1800),
		total("a100", "nvidia.com/gpu", "bob", "running", 3600), total("a100", "nvidia.com/gpu", "bob", "useful", 1800), total("a100", "nvidia.com/gpu", "bob", "failed", 900),
		total("a100", "nvidia.com/gpu", "bob", "deleted", 450), total("cpus", "memory", "ann", "running", 3600*(1<<30)), total("cpus", "cpu", "ann", "running", 1800),
		total("h100", "whole-gpus", "cid", "running", 3600),
	}
	for by, want := range map[string][]Line{
		byUser: {
			{User: "ann", Resource: "cpu", Unit: "core-hours", Held: new(0.5), Running: new(0.5)},
			{User: "ann", Resource: "memory", Unit: "GiB-hours", Held: new(1.0), Running: new(1.0)},
			{User: "ann", Resource: "nvidia.com/gpu", Unit: "GPU-hours", Held: new(3.5), Waiting: new(1.0), Running: new(2.0), Stopping: new(0.5)},
			{User: "bob", Resource: "nvidia.com/gpu", Unit: "GPU-hours", Held: new(1.0), Running: new(1.0), Useful: new(0.5), Failed: new(0.25), Deleted: new(0.125)},
			{User: "cid", Resource: "whole-gpus", Unit: "device-hours", Held: new(1.0), Running: new(1.0)},
		},
		byFlavor + "," + byQueue: {
			{ClusterQueue: "c", Namespace: "n", LocalQueue: "q", Flavor: "a100", Resource: "nvidia.com/gpu", Unit: "GPU-hours", Held: new(1.0), Running: new(1.0), Useful: new(0.5), Failed: new(0.25), Deleted: new(0.125)},
			{ClusterQueue: "c", Namespace: "n", LocalQueue: "q", Flavor: "cpus", Resource: "cpu", Unit: "core-hours", Held: new(0.5), Running: new(0.5)},
			{ClusterQueue: "c", Namespace: "n", LocalQueue: "q", Flavor: "cpus", Resource: "memory", Unit: "GiB-hours", Held: new(1.0), Running: new(1.0)},
			{ClusterQueue: "c", Namespace: "n", LocalQueue: "q", Flavor: "h100", Resource: "nvidia.com/gpu", Unit: "GPU-hours", Held: new(3.5), Waiting: new(1.0), Running: new(2.0), Stopping: new(0.5)},
			{ClusterQueue: "c", Namespace: "n", LocalQueue: "q", Flavor: "h100", Resource: "whole-gpus", Unit: "device-hours", Held: new(1.0), Running: new(1.0)},
		},
	} {
		expect.Same(t, "Unexpected lines by "+by, want, lines(totals, by))
	}
}

func TestCheck(t *testing.T) {
	of := func(since, until string) options {
		return options{by: byQueue, prometheus: prom.Flags{URL: "http://p"}, since: since, until: until}
	}
	month := [2]time.Time{noon.Add(-30 * 24 * time.Hour), noon}
	type row struct {
		options      options
		want         [2]time.Time
		columns, err string
	}
	expect.Rows(t, map[string]row{
		"by user":               {options: options{by: "user"}, want: month, columns: "USER"},
		"by several":            {options: options{by: "flavor,queue"}, want: month, columns: "CLUSTERQUEUE   QUEUE   FLAVOR"},
		"by nothing":            {err: "use queue, user or flavor, or several of them"},
		"by what is not":        {options: options{by: "queue,team"}, err: "--by queue,team: use queue"},
		"up to now":             {options: options{by: "queue", since: "1h"}, want: [2]time.Time{at(-60), noon}, columns: "CLUSTERQUEUE   QUEUE"},
		"up to another time":    {options: of("30m", "2030-01-01T11:00:00Z"), want: [2]time.Time{at(-90), at(-60)}, columns: "CLUSTERQUEUE   QUEUE"},
		"in another zone":       {options: of("30m", "2030-01-01T12:00:00+01:00"), want: [2]time.Time{at(-90), at(-60)}, columns: "CLUSTERQUEUE   QUEUE"},
		"what is to come":       {options: of("", "2030-01-01T12:00:01Z"), err: "give a time that is past, such as 2030-01-01T00:00:00Z"},
		"a day":                 {options: of("", "2029-12-01"), err: "--until 2029-12-01: give a time"},
		"of the manager's book": {options: options{by: byQueue, until: "2030-01-01T11:00:00Z"}, err: "--until is for --prometheus"},
	}, func(t *testing.T, tc row) {
		from, to, err := tc.options.check(noon)
		expect.Says(t, err, tc.err)
		if err != nil {
			return
		}
		expect.That(t, from.Equal(tc.want[0]) && to.Equal(tc.want[1]), "check() = %s to %s, want %s", from, to, tc.want)
		var out strings.Builder
		expect.NoError(t, tableOf(Bill{By: tc.options.by}).Print(&out, show.Paint{}))
		expect.That(t, strings.HasPrefix(out.String(), tc.columns+"   RESOURCE"), "Unexpected columns:\n%s", out.String())
	})
}

func TestPrint(t *testing.T) {
	of := ledger.Series{ClusterQueue: "gpus", Namespace: "team", LocalQueue: "q", Resource: "nvidia.com/gpu"}
	totals := []ledger.Total{{Series: of, Is: "running", Seconds: 9000}, {Series: of, Is: "lost", Seconds: 1200}}
	bill := Bill{From: noon, To: at(60), By: byQueue, Hints: []Hint{{Namespace: "team", Name: "llm", Evictions: 11, LostSeconds: 7200, GraceSeconds: 30}}}
	bill.sum(totals)
	var table, csv bytes.Buffer
	expect.NoError(t, printTable(&table, show.Paint{}, bill))
	want := "CLUSTERQUEUE   QUEUE    RESOURCE         UNIT        HELD   WAITING   RUNNING   STOPPING   USEFUL   LOST   FAILED   DELETED\n" +
		"gpus           team/q   nvidia.com/gpu   GPU-hours   2.50   0.00      2.50      0.00       0.00     0.33   0.00     0.00\n" +
		"hint: TrainJob team/llm was evicted 11 times and lost about 120m of its running time; its pods have a grace period of 30s: " +
		"write a checkpoint on TERM and give it time (docs/use.md#checkpoints-and-preemption)\n"
	expect.Same(t, "Unexpected table", want, table.String())
	expect.NoError(t, printCSV(&csv, bill))
	want = "FROM,TO,CLUSTERQUEUE,NAMESPACE,QUEUE,USER,FLAVOR,RESOURCE,UNIT,HELD,WAITING,RUNNING,STOPPING,USEFUL,LOST,FAILED,DELETED\n" +
		"2030-01-01T12:00:00Z,2030-01-01T13:00:00Z,gpus,team,q,,,nvidia.com/gpu,GPU-hours,2.5,0,2.5,0,0,0.3333333333333333,0,0\n"
	expect.Same(t, "Unexpected CSV", want, csv.String())
	amounts := func() string { return string(expect.Must(json.Marshal(bill.Lines))(t)) }
	expect.Same(t, "Unexpected JSON", `[{"clusterQueue":"gpus","namespace":"team","localQueue":"q","resource":"nvidia.com/gpu","unit":"GPU-hours",`+
		`"held":2.5,"waiting":0,"running":2.5,"stopping":0,"useful":0,"lost":0.3333333333333333,"failed":0,"deleted":0}]`, amounts())

	bill.Source = fromWorkloads
	bill.sum(totals)
	csv.Reset()
	expect.NoError(t, printCSV(&csv, bill))
	expect.That(t, strings.HasSuffix(csv.String(), ",GPU-hours,2.5,,2.5,,,0.3333333333333333,,\n"), "Unexpected CSV of what the Workloads tell:\n%s", csv.String())
	expect.Same(t, "Unexpected JSON of what the Workloads tell", `[{"clusterQueue":"gpus","namespace":"team","localQueue":"q","resource":"nvidia.com/gpu","unit":"GPU-hours",`+
		`"held":2.5,"running":2.5,"lost":0.3333333333333333}]`, amounts())
}

func TestHints(t *testing.T) {
	progressed := func(percent, remaining int32) *trainer.TrainerStatus {
		return &trainer.TrainerStatus{ProgressPercentage: new(percent), EstimatedRemainingSeconds: new(remaining)}
	}
	type row struct {
		evictions, ran int32
		grace          *int64
		// runs is how long it has run since it was admitted again, negative where it was not.
		runs   time.Duration
		status *trainer.TrainerStatus
		// evicted is why it was; empty for a preemption.
		evicted string
		want    *Hint
	}
	expect.Rows(t, map[string]row{
		"it was never evicted":                  {ran: 3600},
		"it is evicted before it does anything": {evictions: 2, ran: 40},
		"it tells no progress":                  {evictions: 1, ran: 3600, want: &Hint{Evictions: 1, LostSeconds: 3600, AtMost: true, GraceSeconds: 30}},
		"it lost nearly all": {evictions: 1, ran: 3600, runs: 600 * time.Second, status: progressed(10, 5400),
			want: &Hint{Evictions: 1, LostSeconds: 3600, GraceSeconds: 30}},
		"it lost half": {evictions: 1, ran: 3600, runs: 600 * time.Second, status: progressed(50, 2400),
			want: &Hint{Evictions: 1, LostSeconds: 1800, GraceSeconds: 30}},
		"it kept all":              {evictions: 1, ran: 3600, runs: 600 * time.Second, status: progressed(50, 4200)},
		"it has time to save more": {evictions: 2, ran: 3600, grace: new(int64(1800))},
		"it has reached its time limit, and does not go on": {evictions: 1, ran: 3600, evicted: "DeactivatedDueToMaximumExecutionTimeExceeded"},
	}, func(t *testing.T, tc row) {
		job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm"}}
		job.Status.TrainerStatus = tc.status
		wl := kueue.Workload{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "llm", Controller: new(true)}}}}
		wl.Status.AccumulatedPastExecutionTimeSeconds, wl.Spec.MaximumExecutionTimeSeconds = new(tc.ran), new(int32(3600))
		wl.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: tc.evictions}}}
		wl.Spec.PodSets = []kueue.PodSet{{Name: "node", Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: tc.grace}}}}
		kit.With(&wl, kit.Is(kueue.WorkloadEvicted, cmp.Or(tc.evicted, kueue.WorkloadEvictedByPreemption)))
		if tc.runs > 0 {
			kit.With(&wl, kit.Is(kueue.WorkloadAdmitted, ""), kit.Since(noon.Add(-tc.runs)))
		}
		var got *Hint
		for _, hint := range hints(&view{jobs: map[types.UID]*trainjob.TrainJob{"llm": job}, workloads: []kueue.Workload{wl}}, noon) {
			got = &hint
			tc.want.Namespace, tc.want.Name = "team", "llm"
		}
		expect.Same(t, "Unexpected hint", tc.want, got)
	})
}
