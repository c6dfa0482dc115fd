// SPDX-License-Identifier: Apache-2.0

package list

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// unknown is what kubectl prints too.
const unknown = "<unknown>"

const nothing = "-"

func (o *options) table(jobs []TrainJob, paint show.Paint, now time.Time) *show.Table {
	rows := show.NewTable("COHORT", "NEXT", "NAMESPACE", "NAME", "STATE", "QUEUE", "FLAVOR", "GPUS", "PRIORITY", "POSITION", "SINCE", "REASON",
		"CLUSTERQUEUE", "CLUSTER", "USER", "STARTS", "MESSAGE")
	for i := range jobs {
		rows.Row(jobs[i].row(paint, now)...)
	}
	rows.Hide(!o.query.byCohort, "COHORT", "NEXT")
	rows.Hide(!o.all, "NAMESPACE")
	rows.Hide(o.output != show.Wide, "CLUSTERQUEUE", "CLUSTER", "USER", "STARTS", "MESSAGE")
	return rows
}

func (r *TrainJob) row(paint show.Paint, now time.Time) []any {
	state, since := r.Paint(paint)(string(r.Phase)), ""
	if r.Phase == Unknown {
		state = unknown
	}
	if r.Since != nil {
		since = show.Age(now, r.Since.Time)
	}
	reason := r.Reason
	if reason == string(r.Phase) {
		reason = "" // The state says it already.
	}
	priority, position := "", ""
	if r.Priority != nil {
		priority = strconv.Itoa(int(*r.Priority))
	}
	if r.Position != nil {
		position = strconv.Itoa(*r.Position)
	}
	cluster := r.Cluster
	if len(r.Nominated) > 0 { // It may come to one of these.
		cluster = strings.Join(r.Nominated, ",") + "?"
	}
	start := nothing
	if r.Start != nil {
		start = cmp.Or(r.Start.Short(), unknown)
	}
	return []any{
		r.cell("cohort", r.Cohort), r.Turn, r.Namespace,
		r.Name, state, r.cell("queue", r.Queue), r.cell("flavors", strings.Join(r.Flavors, ",")), r.cell("gpus", gpusText(r)),
		r.cell("priority", priority), r.cell("position", position), r.cell("since", since), r.cell("reason", reason),
		r.cell("clusterQueue", r.ClusterQueue), r.cell("cluster", cluster), r.cell("user", r.User), start, r.cell("message", r.Message),
	}
}

func (r *TrainJob) cell(field, value string) string {
	switch {
	case r.Unknown[field] != "":
		return unknown
	case value == "":
		return nothing
	}
	return value
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
