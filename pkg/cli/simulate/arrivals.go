// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// fields are the columns of a CSV of arrivals, the last of which may be left out.
var fields = []string{"time", "queue", "gpus", "duration", "priority"}

// gpusPerPod is how many GPUs a pod has at most: a usual node's.
const gpusPerPod = 8

// mostErrors are told of a file; the next thousand would be the same.
const mostErrors = 10

// readArrivals reads jobs that come: when, as a time after the begin such as 90m, or as an RFC 3339 time, of
// which the earliest is the begin; to which LocalQueue, as namespace/name; with how many GPUs; and for how long.
func readArrivals(data []byte, path string, at *outlook.Outlook) ([]forecast.Job, error) {
	rows, err := rowsOf(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(rows) > 0 && rows[0].line == 1 && slices.Contains(rows[0].fields, fields[0]) {
		if columns := rows[0].fields; len(columns) > len(fields) || !slices.Equal(columns, fields[:len(columns)]) {
			return nil, fmt.Errorf("%s:1: the columns are %s, and not %s", path, strings.Join(columns, ","), strings.Join(fields, ","))
		}
		rows = rows[1:]
	}
	a := &arrivals{path: path, at: at, first: earliest(rows)}
	var jobs []forecast.Job
	var all []error
	for _, r := range rows {
		a.line = r.line
		job, err := a.job(r.fields, len(jobs))
		if err == nil {
			jobs = append(jobs, job)
			continue
		}
		if all = append(all, err); len(all) == mostErrors {
			all = append(all, fmt.Errorf("%s: what comes after these %d is not looked at", path, mostErrors))
			break
		}
	}
	return jobs, errors.Join(all...)
}

type row struct {
	line   int
	fields []string
}

func rowsOf(data []byte) (rows []row, err error) {
	reader := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))) // Some spreadsheets begin a file with it.
	reader.FieldsPerRecord, reader.TrimLeadingSpace = -1, true
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := reader.FieldPos(0)
		rows = append(rows, row{line, record})
	}
}

// earliest is the first RFC 3339 time, wherever it stands: exports often begin with the newest.
func earliest(rows []row) (first time.Time) {
	for _, r := range rows {
		if at, err := time.Parse(time.RFC3339, r.fields[0]); err == nil && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

type arrivals struct {
	path string
	line int
	at   *outlook.Outlook
	// first is the RFC 3339 time that is the begin.
	first time.Time
}

func (a *arrivals) wrong(field int, text string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %s", a.path, a.line, fields[field], fmt.Sprintf(text, args...))
}

func (a *arrivals) job(record []string, serial int) (forecast.Job, error) {
	var job forecast.Job
	if len(record) < 4 || len(record) > len(fields) {
		return job, fmt.Errorf("%s:%d: there are %d fields, and not %s", a.path, a.line, len(record), strings.Join(fields[:4], ","))
	}
	at, err := a.time(record[0])
	if err != nil {
		return job, err
	}
	namespace, name, _ := strings.Cut(record[1], "/")
	queue := a.at.LocalQueue(namespace, kueue.LocalQueueName(name))
	if queue == nil {
		return job, a.wrong(1, "there is no LocalQueue %q: write it as namespace/name", record[1])
	}
	gpus, err := strconv.ParseInt(record[2], 10, 32)
	if err != nil || gpus < 1 {
		return job, a.wrong(2, "%q is no number of GPUs", record[2])
	}
	runs, err := time.ParseDuration(record[3])
	if err != nil || runs <= 0 {
		return job, a.wrong(3, "%q is no time like 90m or 4h", record[3])
	}
	priority := int64(0)
	if len(record) > 4 {
		if priority, err = strconv.ParseInt(record[4], 10, 32); err != nil {
			return job, a.wrong(4, "%q is no priority", record[4])
		}
	}
	// No two come at the same time: the order of the file is that of a queue.
	at = at.Add(time.Duration(serial))
	wl := workloadOf(queue, a.line, int32(gpus), int32(priority), at)
	podset.AddTolerations(wl.Spec.PodSets, cluster.WithDefaults(a.at.Manager).TolerationRules)
	return forecast.Job{Workload: wl, Arrives: at, Runs: runs}, nil
}

func (a *arrivals) time(text string) (time.Time, error) {
	if after, err := time.ParseDuration(text); err == nil {
		if after < 0 {
			return a.at.Now, a.wrong(0, "%q is before the begin", text)
		}
		return a.at.Now.Add(after), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, a.wrong(0, "%q is neither a time after the begin, such as 90m, nor one like 2026-01-31T12:00:00Z", text)
	}
	return a.at.Now.Add(at.Sub(a.first)), nil
}

// workloadOf spreads GPUs over as few pods as hold them, some of which may have one more than others.
func workloadOf(queue *kueue.LocalQueue, line int, gpus, priority int32, at time.Time) *kueue.Workload {
	pods := (gpus-1)/gpusPerPod + 1
	more := gpus % pods
	name := fmt.Sprintf("line-%06d", line)
	sets := []kueue.PodSet{podSet("node", pods-more, gpus/pods)}
	if more > 0 {
		sets = append(sets, podSet("more", more, gpus/pods+1))
	}
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: queue.Namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at)},
		Spec:       kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue.Name), Priority: ptr.To(priority), PodSets: sets},
	}
}

// podSet has the tolerations that the pods of TrainJobs get: flavors may name the taint of GPU nodes.
func podSet(name kueue.PodSetReference, pods, gpus int32) kueue.PodSet {
	requests := corev1.ResourceList{gpu.Whole: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "node", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
	}
	pod.Tolerations = gpu.Tolerations(&pod)
	return kueue.PodSet{Name: name, Count: pods, Template: corev1.PodTemplateSpec{Spec: pod}}
}
