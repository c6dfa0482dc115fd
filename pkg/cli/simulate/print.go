// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"html"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

func (o *options) print(c Comparison) error {
	switch {
	case show.ForMachines(o.output):
		return show.Encode(o.streams.Out, o.output, c)
	case o.output == show.CSV:
		return writeCSV(o.streams.Out, c)
	case o.output == show.SVG:
		return writeSVG(o.streams.Out, c)
	}
	if err := printTables(o.streams.Out, show.Painter(o.streams.Out), c); err != nil {
		return err
	}
	return printCharts(o.streams.Out, c)
}

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
	groups := maps.Clone(before)
	maps.Copy(groups, after) // What changes bring may be in neither queue nor size before.
	for _, group := range slices.SortedFunc(maps.Keys(groups), compareGroups) {
		was, is := before[group], after[group]
		waits.Row(cmp.Or(group[0], "all"), cmp.Or(group[1], "-"), c.both(was.Jobs, is.Jobs), c.both(was.Waiting, is.Waiting),
			c.both(outlook.Roughly(was.MedianSeconds), outlook.Roughly(is.MedianSeconds)), c.both(outlook.Roughly(was.P90Seconds), outlook.Roughly(is.P90Seconds)))
	}
	if err := waits.Print(out, paint); err != nil {
		return err
	}
	fmt.Fprintln(out)
	totals := show.NewTable("STARTS", "PREEMPTIONS", "GPU-HOURS LOST TO THEM")
	totals.Row(c.both(c.Before.Starts, last.Starts), c.both(c.Before.Preemptions, last.Preemptions),
		c.both(fmt.Sprintf("%.0f", c.Before.LostGPUHours), fmt.Sprintf("%.0f", last.LostGPUHours)))
	return totals.Print(out, paint)
}

func (c *Comparison) both(before, after any) string {
	if c.After == nil {
		return fmt.Sprint(before)
	}
	return fmt.Sprintf("%v → %v", before, after)
}

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

func (c *Comparison) plays() iter.Seq2[string, *Result] {
	return func(yield func(string, *Result) bool) {
		if yield("before", &c.Before) && c.After != nil {
			yield("after", c.After)
		}
	}
}

// bars are the eighths of a line.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// printCharts draws how much of each flavor's GPUs is used, a line for each play.
func printCharts(out io.Writer, c Comparison) error {
	table := show.NewTable("FLAVOR", "GPUS", "", "USED, OVER "+strings.ToUpper(outlook.Roughly(c.HorizonSeconds)), "MEAN")
	for name, play := range c.plays() {
		if c.After == nil {
			name = ""
		}
		for _, usage := range play.Used {
			table.Row(usage.Flavor, usage.GPUs, name, line(usage.Shares), fmt.Sprintf("%.0f %%", 100*mean(usage.Shares)))
		}
	}
	if table.Empty() {
		return nil
	}
	fmt.Fprintln(out)
	return table.Print(out, show.Paint{})
}

func line(shares []float64) string {
	var text strings.Builder
	for _, share := range shares {
		at := int(share*float64(len(bars)-1) + 0.5)
		text.WriteRune(bars[min(len(bars)-1, max(0, at))])
	}
	return text.String()
}

func mean(all []float64) float64 {
	var sum float64
	for _, v := range all {
		sum += v
	}
	return sum / float64(max(1, len(all)))
}

// The measures of an SVG, in pixels.
const (
	svgWidth, svgHeight = 720, 140
	svgLeft, svgTop     = 60, 30
)

// writeSVG draws the same with a chart for each flavor: before in grey, after in blue.
func writeSVG(out io.Writer, c Comparison) error {
	colours := map[string]string{"before": "#888888", "after": "#1f6feb"}
	var text strings.Builder
	height := svgTop + (svgHeight+svgTop)*len(c.Before.Used)
	fmt.Fprintf(&text, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", svgWidth+2*svgLeft, height)
	for row, flavor := range c.Before.Used {
		top := svgTop + row*(svgHeight+svgTop)
		fmt.Fprintf(&text, `<text x="%d" y="%d">%s: share of %d GPUs used, over %s (before grey, after blue)</text>`+"\n", svgLeft, top-6, html.EscapeString(flavor.Flavor), flavor.GPUs, outlook.Roughly(c.HorizonSeconds))
		fmt.Fprintf(&text, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#cccccc"/>`+"\n", svgLeft, top, svgWidth, svgHeight)
		fmt.Fprintf(&text, `<text x="8" y="%d">100 %%</text><text x="8" y="%d">0 %%</text>`+"\n", top+10, top+svgHeight)
		for name, play := range c.plays() { // Of the same flavors: what changes are their amounts.
			fmt.Fprintf(&text, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", colours[name], points(play.Used[row].Shares, top))
		}
	}
	text.WriteString("</svg>\n")
	_, err := io.WriteString(out, text.String())
	return err
}

// points are those of a line, which ends at the top of its chart where more than all is used.
func points(shares []float64, top int) string {
	var all []string
	for n, share := range shares {
		x := float64(svgLeft) + (float64(n)+0.5)*svgWidth/float64(len(shares))
		y := float64(top) + svgHeight*(1-min(1, share))
		all = append(all, fmt.Sprintf("%.1f,%.1f", x, y))
	}
	return strings.Join(all, " ")
}
