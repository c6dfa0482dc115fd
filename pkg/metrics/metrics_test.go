// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var team = Queue{ClusterQueue: "gpus", Namespace: "team", LocalQueue: "queue"}

// everything returns a registry in which each metric of the manager has a value.
func everything(t *testing.T, labels QueueLabels) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	r := NewRecorder(registry, labels)
	r.Started(team, StartFirst)
	r.StartedAfter(team, time.Second)
	r.Ready(team, time.Minute)
	r.Ended(team, time.Hour)
	r.Gone(team, time.Second)
	r.Stopped(team, StopByUser)
	r.Ungated(UngateFreed)
	r.Wrote("trainjobs", WriteDone)
	r.Answered(WebhookMutating, "CREATE", AnswerAllowed, "")
	for _, m := range Ledger {
		r.Register(NewScraped(tellOne(labels, m), m))
	}
	r.Register(NewScraped(func(tell Tell) {
		for _, m := range Told {
			tellOne(labels, m)(tell)
		}
	}, Told...))
	return registry
}

func tellOne(labels QueueLabels, m Metric) func(Tell) {
	return func(tell Tell) {
		values := slices.Repeat([]string{"value"}, len(m.Labels))
		if slices.Contains(m.Labels, ClusterQueue) {
			values = labels.Values(team, values[3:]...)
		}
		tell(m, 1, values...)
	}
}

type described struct {
	Type   Type
	Help   string
	Labels []string
}

func TestGathered(t *testing.T) {
	want := map[string]described{}
	for _, m := range All {
		labels := slices.Sorted(slices.Values(m.Labels))
		want[m.Name] = described{m.Type, m.Help + ".", labels}
	}
	families := expect.Must(everything(t, QueueLabels{LocalQueues: true}).Gather())(t)
	got := map[string]described{}
	for _, family := range families {
		var labels []string
		for _, pair := range family.Metric[0].Label {
			labels = append(labels, pair.GetName())
		}
		got[family.GetName()] = described{Type(strings.ToLower(family.GetType().String())), family.GetHelp(), labels}
	}
	expect.Same(t, "Unexpected metrics", want, got)
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(everything(t, QueueLabels{LocalQueues: true}))
	expect.That(t, err == nil && len(problems) == 0, "promlint: %v, %v", problems, err)
}

func TestLabelsOfLocalQueues(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[QueueLabels, string]{
		"on":  {In: QueueLabels{LocalQueues: true}, Want: "gpus team queue"},
		"off": {In: QueueLabels{}, Want: "gpus  "},
	}, func(t *testing.T, tc expect.Row[QueueLabels, string]) {
		families := expect.Must(everything(t, tc.In).Gather())(t)
		queues := 0
		for _, family := range families {
			for _, metric := range family.Metric {
				values := map[string]string{}
				for _, pair := range metric.Label {
					values[pair.GetName()] = pair.GetValue()
				}
				if _, of := values[ClusterQueue]; of {
					queues++
					expect.Same(t, "Unexpected queue of "+family.GetName(), tc.Want, values[ClusterQueue]+" "+values[Namespace]+" "+values[LocalQueue])
				}
			}
		}
		expect.That(t, queues != 0, "no metric is of a queue")
	})
}

// What begins with its first increase is lost on who asks for increases.
func TestQueuesThatRunBeginAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := NewRecorder(registry, QueueLabels{})
	r.Runs(team)
	series := func() int { return expect.Must(testutil.GatherAndCount(registry))(t) }
	before := series()
	for _, kind := range []string{StartFirst, StartAgain} {
		r.Started(team, kind)
	}
	for _, reason := range []string{
		StopByUser, StopTrainJobDeleted, StopRuntimeChanged, StopWorkloadDeleted, StopNotAdmitted, StopNoMatchingWorkload,
		kueue.WorkloadEvictedByPreemption, kueue.WorkloadEvictedByPodsReadyTimeout,
		kueue.WorkloadEvictedByAdmissionCheck, kueue.WorkloadEvictedByClusterQueueStopped, kueue.WorkloadEvictedByLocalQueueStopped,
		kueue.WorkloadEvictedDueToNodeFailures, kueue.WorkloadDeactivated,
	} {
		r.Stopped(team, reason)
	}
	r.Ended(team, time.Hour)
	expect.Same(t, "Series that begin later", 0, series()-before)
}

func TestHistograms(t *testing.T) {
	registry := prometheus.NewRegistry()
	NewRecorder(registry, QueueLabels{}).Gone(team, -time.Second)
	histogram := expect.Must(registry.Gather())(t)[0].Metric[0].GetHistogram()
	expect.That(t, len(histogram.Bucket) == len(buckets) && histogram.Schema != nil,
		"it has %d classic buckets, and schema %v of native ones", len(histogram.Bucket), histogram.Schema)
	expect.That(t, histogram.GetSampleSum() == 0 && histogram.GetSampleCount() == 1, "a clock that is behind makes a time of %f", histogram.GetSampleSum())
}

// Forecasts are made of these buckets; a Prometheus that takes native histograms may leave them out of others.
func TestRunTimes(t *testing.T) {
	registry := prometheus.NewRegistry()
	NewRecorder(registry, QueueLabels{}).Ended(team, 31*24*time.Hour)
	histogram := expect.Must(registry.Gather())(t)[0].Metric[0].GetHistogram()
	expect.That(t, histogram.Schema == nil, "It is a native histogram, too")
	first, last := histogram.Bucket[0], histogram.Bucket[len(histogram.Bucket)-1]
	expect.Same(t, "Unexpected bounds", []float64{60, 30 * 24 * 3600}, []float64{first.GetUpperBound(), last.GetUpperBound()})
	for n := range histogram.Bucket[1:] {
		factor := histogram.Bucket[n+1].GetUpperBound() / histogram.Bucket[n].GetUpperBound()
		expect.That(t, factor >= 1.5 && factor <= 2, "bucket %d is %f times the one before", n+1, factor)
	}
}

func TestWritten(t *testing.T) {
	cases := map[string]string{
		"GET /apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/job":                             "",
		"PATCH /apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/job":                           "trainjobs",
		"PATCH /apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/job?dryRun=All":                "",
		"PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/wl/status?fieldManager=kueue-trainer": "workloads/status",
		"DELETE /apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/wl":                                  "workloads",
		"POST /apis/events.k8s.io/v1/namespaces/team/events":                                                "events",
		"POST /api/v1/namespaces/team/events":                                                               "events",
		"PATCH /api/v1/namespaces/team/pods/pod":                                                            "pods",
		"PUT /apis/coordination.k8s.io/v1/namespaces/ours/leases/lease":                                     "leases",
		"PUT /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/ours":                    "validatingwebhookconfigurations",
		"PUT /api/v1/namespaces/team":                                                                       "namespaces",
		"POST /apis/authentication.k8s.io/v1/tokenreviews":                                                  "",
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews":                                           "",
		"POST /": "",
	}
	for request, want := range cases {
		method, target, _ := strings.Cut(request, " ")
		got := written(httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody))
		expect.Same(t, "Unexpected kind that is written by "+request, want, got)
	}
}

func TestOutcomes(t *testing.T) {
	type row struct {
		code       int
		body, want string
		err        error
	}
	expect.Rows(t, map[string]row{
		"stored":                           {code: http.StatusOK, want: WriteDone},
		"made":                             {code: http.StatusCreated, want: WriteDone},
		"changed meanwhile":                {code: http.StatusConflict, want: WriteConflict},
		"gone meanwhile":                   {code: http.StatusNotFound, want: WriteConflict},
		"a test of a JSON patch fails":     {code: http.StatusUnprocessableEntity, body: `{"kind":"Status","details":{}}`, want: WriteConflict},
		"the same without details":         {code: http.StatusUnprocessableEntity, body: `{"kind":"Status"}`, want: WriteConflict},
		"an object is invalid":             {code: http.StatusUnprocessableEntity, body: `{"kind":"Status","details":{"kind":"TrainJob"}}`, want: WriteRefused},
		"nobody can read why":              {code: http.StatusUnprocessableEntity, body: `k8s`, want: WriteRefused},
		"no permission":                    {code: http.StatusForbidden, want: WriteRefused},
		"too many requests":                {code: http.StatusTooManyRequests, want: WriteFailed},
		"a webhook cannot be reached":      {code: http.StatusInternalServerError, want: WriteFailed},
		"the API server cannot be reached": {err: errors.New("refused"), want: WriteFailed},
	}, func(t *testing.T, tc row) {
		registry := prometheus.NewRegistry()
		r := NewRecorder(registry, QueueLabels{})
		client := http.Client{Transport: r.CountWrites(promhttp.RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			if tc.err != nil {
				return nil, tc.err
			}
			return &http.Response{StatusCode: tc.code, Body: io.NopCloser(strings.NewReader(tc.body))}, nil
		}))}
		request := expect.Must(http.NewRequestWithContext(t.Context(), http.MethodPut, "http://api/api/v1/namespaces/team/pods/pod", http.NoBody))(t)
		response, err := client.Do(request)
		if err == nil {
			defer response.Body.Close()
			expect.Same(t, "The client reads another body", tc.body, string(expect.Must(io.ReadAll(response.Body))(t)))
		}
		expect.Same(t, "It is not counted once", 1, testutil.ToFloat64(r.writes.WithLabelValues("pods", tc.want)))
	})
}

func TestIsDevice(t *testing.T) {
	for resource, want := range map[string]bool{
		"nvidia.com/gpu": true, "nvidia.com/mig-1g.10gb": true, "whole-gpus": true, "cpus": true,
		"cpu": false, "memory": false, "ephemeral-storage": false, "pods": false, "hugepages-2Mi": false,
	} {
		expect.Same(t, "Is it a device? "+resource, want, IsDevice(resource))
	}
}
