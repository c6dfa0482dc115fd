// SPDX-License-Identifier: Apache-2.0

package list

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// unknown is what kubectl prints too.
const unknown = "<unknown>"

// nothing is a cell of something that a job does not have.
const nothing = "-"

// table writes the jobs as kubectl get does.
type table struct {
	paint show.Paint
	// namespaces and wide add columns.
	namespaces, wide bool
	// cohorts adds who comes next.
	cohorts bool
}

func (t table) print(out io.Writer, jobs []TrainJob, now time.Time) error {
	rows := show.NewTable("COHORT", "NEXT", "NAMESPACE", "NAME", "STATE", "QUEUE", "FLAVOR", "GPUS", "PRIORITY", "POSITION", "SINCE", "REASON",
		"CLUSTERQUEUE", "CLUSTER", "USER", "STARTS", "MESSAGE")
	for i := range jobs {
		rows.Row(t.row(&jobs[i], now)...)
	}
	rows.Hide(!t.cohorts, "COHORT", "NEXT")
	rows.Hide(!t.namespaces, "NAMESPACE")
	rows.Hide(!t.wide, "CLUSTERQUEUE", "CLUSTER", "USER", "STARTS", "MESSAGE")
	return rows.Print(out, t.paint)
}

func (t table) row(job *TrainJob, now time.Time) []any {
	state, since := job.Paint(t.paint)(string(job.Phase)), ""
	if job.Phase == Unknown {
		state = unknown
	}
	if job.Since != nil {
		since = show.Age(now, job.Since.Time)
	}
	reason := job.Reason
	if reason == string(job.Phase) {
		reason = "" // The state says it already.
	}
	priority, position := "", ""
	if job.Priority != nil {
		priority = strconv.Itoa(int(*job.Priority))
	}
	if job.Position != nil {
		position = strconv.Itoa(*job.Position)
	}
	cluster := job.Cluster
	if len(job.Nominated) > 0 { // It may come to one of these.
		cluster = strings.Join(job.Nominated, ",") + "?"
	}
	return []any{
		job.cell("cohort", job.Cohort), job.Turn, job.Namespace,
		job.Name, state, job.cell("queue", job.Queue), job.cell("flavors", strings.Join(job.Flavors, ",")), job.cell("gpus", gpusText(job)),
		job.cell("priority", priority), job.cell("position", position), job.cell("since", since), job.cell("reason", reason),
		job.cell("clusterQueue", job.ClusterQueue), job.cell("cluster", cluster), job.cell("user", job.User), startText(job), job.cell("message", job.Message),
	}
}

// cell is a value, or why there is none.
func (r *TrainJob) cell(field, value string) string {
	switch {
	case r.Unknown[field] != "":
		return unknown
	case value == "":
		return nothing
	}
	return value
}

// startText is a forecast, or that there is none.
func startText(job *TrainJob) string {
	if job.Start == nil {
		return nothing
	}
	return cmp.Or(job.Start.Short(), unknown)
}

// gpusText is a number for whole GPUs, and says of others what they are.
func gpusText(job *TrainJob) string {
	if job.GPUs == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(job.GPUs)) {
		text := fmt.Sprintf("%d %s", job.GPUs[name], strings.TrimPrefix(string(name), "nvidia.com/"))
		parts = append(parts, strings.TrimSuffix(text, " gpu"))
	}
	return cmp.Or(strings.Join(parts, ","), "0")
}
