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
	rows, err := rowsOf(path, data)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 && rows[0].line == 1 && slices.Contains(rows[0].fields, fields[0]) {
		if columns := rows[0].fields; len(columns) > len(fields) || !slices.Equal(columns, fields[:len(columns)]) {
			return nil, fmt.Errorf("%s:1: the columns are %s, and not %s", path, strings.Join(columns, ","), strings.Join(fields, ","))
		}
		rows = rows[1:]
	}
	first := earliest(rows)
	var jobs []forecast.Job
	var all []error
	for _, r := range rows {
		job, err := r.job(at, first, len(jobs))
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
	path   string
	line   int
	fields []string
}

func rowsOf(path string, data []byte) (rows []row, err error) {
	reader := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))) // Some spreadsheets begin a file with it.
	reader.FieldsPerRecord, reader.TrimLeadingSpace = -1, true
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		line, _ := reader.FieldPos(0)
		rows = append(rows, row{path, line, record})
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

func (r *row) wrong(field int, text string) error {
	return fmt.Errorf("%s:%d: %s: %q %s", r.path, r.line, fields[field], r.fields[field], text)
}

func (r *row) job(at *outlook.Outlook, first time.Time, serial int) (job forecast.Job, err error) {
	if len(r.fields) < 4 || len(r.fields) > len(fields) {
		return job, fmt.Errorf("%s:%d: there are %d fields, and not %s", r.path, r.line, len(r.fields), strings.Join(fields[:4], ","))
	}
	if job.Arrives, err = r.arrives(at.Now, first); err != nil {
		return job, err
	}
	// No two come at the same time: the order of the file is that of a queue.
	job.Arrives = job.Arrives.Add(time.Duration(serial))
	namespace, name, _ := strings.Cut(r.fields[1], "/")
	queue := at.LocalQueue(namespace, kueue.LocalQueueName(name))
	if queue == nil {
		return job, fmt.Errorf("%s:%d: queue: there is no LocalQueue %q: write it as namespace/name", r.path, r.line, r.fields[1])
	}
	gpus, err := strconv.ParseInt(r.fields[2], 10, 32)
	if err != nil || gpus < 1 {
		return job, r.wrong(2, "is no number of GPUs")
	}
	if job.Runs, err = time.ParseDuration(r.fields[3]); err != nil || job.Runs <= 0 {
		return job, r.wrong(3, "is no time like 90m or 4h")
	}
	priority := int64(0)
	if len(r.fields) > 4 {
		if priority, err = strconv.ParseInt(r.fields[4], 10, 32); err != nil {
			return job, r.wrong(4, "is no priority")
		}
	}
	job.Workload = workloadOf(queue, r.line, int32(gpus), int32(priority), job.Arrives)
	podset.AddTolerations(job.Workload.Spec.PodSets, cluster.WithDefaults(at.Manager).TolerationRules)
	return job, nil
}

// arrives is after the begin, which is the first of the RFC 3339 times.
func (r *row) arrives(begin, first time.Time) (time.Time, error) {
	after, err := time.ParseDuration(r.fields[0])
	if err == nil && after < 0 {
		return begin, r.wrong(0, "is before the begin")
	}
	if err != nil {
		at, err := time.Parse(time.RFC3339, r.fields[0])
		if err != nil {
			return begin, r.wrong(0, "is neither a time after the begin, such as 90m, nor one like 2026-01-31T12:00:00Z")
		}
		after = at.Sub(first)
	}
	return begin.Add(after), nil
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
