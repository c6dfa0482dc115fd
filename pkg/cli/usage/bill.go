// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
)

// Bill is what was used in a time. Amounts are resource hours: GPU-hours, core-hours, GiB-hours.
type Bill struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Source is ledger, prometheus or, for what the Workloads alone tell, cluster.
	Source string `json:"source"`
	By     string `json:"by"`
	// Notes say what the bill does not have.
	Notes []string `json:"notes,omitempty"`
	Lines []Line   `json:"lines"`
	Hints []Hint   `json:"hints,omitempty"`

	// unseen is set where the user may not read the ledger, which has more.
	unseen bool
}

// Line is what one of those that it is split by used of a resource.
type Line struct {
	ClusterQueue string `json:"clusterQueue,omitempty"`
	Namespace    string `json:"namespace,omitempty"`
	LocalQueue   string `json:"localQueue,omitempty"`
	User         string `json:"user,omitempty"`
	Flavor       string `json:"flavor,omitempty"`
	Resource     string `json:"resource"`
	Unit         string `json:"unit"`

	// Held is the sum of the three phases. What is nil is not known.
	Held     *float64 `json:"held,omitempty"`
	Waiting  *float64 `json:"waiting,omitempty"`
	Running  *float64 `json:"running,omitempty"`
	Stopping *float64 `json:"stopping,omitempty"`
	// The outcomes are those of runs that ended in the time.
	Useful  *float64 `json:"useful,omitempty"`
	Lost    *float64 `json:"lost,omitempty"`
	Failed  *float64 `json:"failed,omitempty"`
	Deleted *float64 `json:"deleted,omitempty"`
}

// Where a bill is from.
const (
	fromLedger     = "ledger"
	fromPrometheus = "prometheus"
	fromWorkloads  = "cluster"
)

// What a bill may be split by, one of them or several, separated by commas.
const (
	byQueue  = "queue"
	byUser   = "user"
	byFlavor = "flavor"
)

var splits = []string{byQueue, byUser, byFlavor}

func isBy(by, split string) bool { return slices.Contains(strings.Split(by, ","), split) }

func key(s ledger.Series, by string) Line {
	l := Line{Resource: s.Resource}
	if isBy(by, byQueue) {
		l.ClusterQueue, l.Namespace, l.LocalQueue = s.ClusterQueue, s.Namespace, s.LocalQueue
	}
	if isBy(by, byUser) {
		l.User = s.User
	}
	if isBy(by, byFlavor) {
		l.Flavor = s.Flavor
	}
	return l
}

// sum makes the lines. Where all is known, what nothing tells of is 0.
func (b *Bill) sum(totals []ledger.Total) {
	b.Lines = lines(totals, b.By)
	for i := range b.Lines {
		for _, amount := range b.Lines[i].amounts() {
			if *amount == nil && b.Source != fromWorkloads {
				*amount = new(0.0)
			}
		}
	}
}

func lines(totals []ledger.Total, by string) []Line {
	sums := map[Line]*Line{}
	for _, t := range totals {
		k := key(t.Series, by)
		if sums[k] == nil {
			line := k
			line.Unit = unit(t.Resource)
			sums[k] = &line
		}
		if amount := sums[k].amount(t.Is); amount != nil && t.Seconds > 0 {
			seconds := float64(3600)
			if quantity.InBytes(corev1.ResourceName(t.Resource)) {
				seconds *= 1 << 30
			}
			*amount = plus(*amount, t.Seconds/seconds)
		}
	}
	out := make([]Line, 0, len(sums))
	for _, line := range slices.SortedFunc(maps.Values(sums), func(a, b *Line) int { return slices.Compare(a.labels(), b.labels()) }) {
		for _, phase := range []*float64{line.Waiting, line.Running, line.Stopping} {
			if phase != nil {
				line.Held = plus(line.Held, *phase)
			}
		}
		out = append(out, *line)
	}
	return out
}

func plus(amount *float64, more float64) *float64 { return new(ptr.Deref(amount, 0) + more) }

// amount is that of a phase or an outcome; nil of another release's.
func (l *Line) amount(is string) **float64 {
	return map[string]**float64{
		metrics.PhaseWaiting: &l.Waiting, metrics.PhaseRunning: &l.Running, metrics.PhaseStopping: &l.Stopping,
		metrics.OutcomeUseful: &l.Useful, metrics.OutcomeLost: &l.Lost, metrics.OutcomeFailed: &l.Failed, metrics.OutcomeDeleted: &l.Deleted,
	}[is]
}

// amounts are those that are printed, under these names.
func (l *Line) amounts() []**float64 {
	return []**float64{&l.Held, &l.Waiting, &l.Running, &l.Stopping, &l.Useful, &l.Lost, &l.Failed, &l.Deleted}
}

var amountNames = []string{"HELD", "WAITING", "RUNNING", "STOPPING", "USEFUL", "LOST", "FAILED", "DELETED"}

// labels tell a line from others, in the order of the columns.
func (l *Line) labels() []string {
	return []string{l.ClusterQueue, l.Namespace, l.LocalQueue, l.User, l.Flavor, l.Resource}
}

func unit(resource string) string {
	switch {
	case strings.HasSuffix(resource, "/gpu"):
		return "GPU-hours"
	case metrics.IsDevice(resource):
		return "device-hours"
	case resource == string(corev1.ResourceCPU):
		return "core-hours"
	case quantity.InBytes(corev1.ResourceName(resource)):
		return "GiB-hours"
	}
	return "hours"
}

func printTable(out io.Writer, paint show.Paint, b Bill) error {
	if len(b.Lines) == 0 {
		nothing, since := "Nothing was used", b.From.UTC().Format(time.RFC3339)
		switch b.Source {
		case fromWorkloads:
			nothing = "No Workload tells that something was used"
		case fromPrometheus:
			since += " until " + b.To.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(out, "%s since %s.\n", nothing, since)
	} else if err := tableOf(b).Print(out, paint); err != nil {
		return err
	}
	for _, h := range b.Hints {
		fmt.Fprintln(out, paint.Yellow("hint: ")+h.String())
	}
	return nil
}

func tableOf(b Bill) *show.Table {
	table := show.NewTable(append([]string{"CLUSTERQUEUE", "QUEUE", "USER", "FLAVOR", "RESOURCE", "UNIT"}, amountNames...)...)
	for _, l := range b.Lines {
		var row []any
		for _, label := range []string{l.ClusterQueue, path.Join(l.Namespace, l.LocalQueue), l.User, l.Flavor, l.Resource, l.Unit} {
			row = append(row, cmp.Or(label, show.None))
		}
		for _, amount := range l.amounts() {
			row = append(row, cell(*amount))
		}
		table.Row(row...)
	}
	table.Hide(!isBy(b.By, byQueue), "CLUSTERQUEUE", "QUEUE")
	table.Hide(!isBy(b.By, byUser), "USER")
	table.Hide(!isBy(b.By, byFlavor), "FLAVOR")
	return table
}

// least is the least amount that two digits tell.
const least = 0.01

// cell is an amount for eyes: what was used is not 0.
func cell(hours *float64) string {
	switch {
	case hours == nil:
		return "?"
	case *hours > 0 && *hours < least/2:
		return fmt.Sprintf("<%.2f", least)
	}
	return strconv.FormatFloat(*hours, 'f', 2, 64)
}

func printCSV(out io.Writer, b Bill) error {
	heading := []string{"FROM", "TO", "CLUSTERQUEUE", "NAMESPACE", "QUEUE", "USER", "FLAVOR", "RESOURCE", "UNIT"}
	rows := [][]string{append(heading, amountNames...)}
	for _, l := range b.Lines {
		row := slices.Concat([]string{b.From.UTC().Format(time.RFC3339), b.To.UTC().Format(time.RFC3339)}, l.labels(), []string{l.Unit})
		for _, amount := range l.amounts() {
			cell := "" // It is not known.
			if *amount != nil {
				cell = strconv.FormatFloat(**amount, 'f', -1, 64)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return csv.NewWriter(out).WriteAll(rows)
}
