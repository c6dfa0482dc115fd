// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

func (o *options) print(c Comparison) error {
	switch {
	case show.ForMachines(o.output):
		return show.Encode(o.streams.Out, o.output, c)
	case o.output == formatCSV:
		return writeCSV(o.streams.Out, c)
	case o.output == formatSVG:
		return writeSVG(o.streams.Out, c)
	}
	if err := printTables(o.streams.Out, show.Painter(o.streams.Out), c); err != nil {
		return err
	}
	return printCharts(o.streams.Out, c)
}

// byGroup are the waits by queue and size.
func (r *Result) byGroup() map[[2]string]Waits {
	all := map[[2]string]Waits{}
	for _, w := range r.Waits {
		all[[2]string{w.Queue, w.Size}] = w
	}
	return all
}

func printTables(out io.Writer, paint show.Paint, c Comparison) error {
	waits := show.NewTable("QUEUE", "SIZE", "JOBS", "WAITING AT END", "MEDIAN WAIT", "P90 WAIT")
	last := cmp.Or(c.After, &c.Before)
	before, after := c.Before.byGroup(), last.byGroup()
	groups := map[[2]string]Waits{} // What changes bring may be in neither queue nor size before.
	maps.Copy(groups, before)
	maps.Copy(groups, after)
	for _, group := range slices.SortedFunc(maps.Keys(groups), compareGroups) {
		was, is := before[group], after[group]
		waits.Row(cmp.Or(group[0], "all"), cmp.Or(group[1], "-"), c.both(was.Jobs, is.Jobs), c.both(was.Waiting, is.Waiting),
			c.both(outlook.Roughly(&was.MedianSeconds), outlook.Roughly(&is.MedianSeconds)), c.both(outlook.Roughly(&was.P90Seconds), outlook.Roughly(&is.P90Seconds)))
	}
	if err := waits.Print(out, paint, ""); err != nil {
		return err
	}
	fmt.Fprintln(out)
	totals := show.NewTable("STARTS", "PREEMPTIONS", "GPU-HOURS LOST TO THEM")
	totals.Row(c.both(c.Before.Starts, last.Starts), c.both(c.Before.Preemptions, last.Preemptions),
		c.both(fmt.Sprintf("%.0f", c.Before.LostGPUHours), fmt.Sprintf("%.0f", last.LostGPUHours)))
	return totals.Print(out, paint, "")
}

// both is a value before the changes, and after them.
func (c *Comparison) both(before, after any) string {
	if c.After == nil {
		return fmt.Sprint(before)
	}
	return fmt.Sprintf("%v → %v", before, after)
}

// writeCSV writes the waits.
func writeCSV(out io.Writer, c Comparison) error {
	records := [][]string{{"scenario", "queue", "size", "jobs", "waiting", "medianSeconds", "p90Seconds"}}
	for name, of := range c.plays() {
		for _, w := range of.Waits {
			records = append(records, []string{
				name, w.Queue, w.Size, strconv.Itoa(w.Jobs), strconv.Itoa(w.Waiting), strconv.FormatInt(w.MedianSeconds, 10), strconv.FormatInt(w.P90Seconds, 10),
			})
		}
	}
	return csv.NewWriter(out).WriteAll(records)
}

// plays are those that there are, by their names.
func (c *Comparison) plays() iter.Seq2[string, *Result] {
	return func(yield func(string, *Result) bool) {
		if yield("before", &c.Before) && c.After != nil {
			yield("after", c.After)
		}
	}
}
