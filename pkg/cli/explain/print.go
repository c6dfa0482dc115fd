// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// printer writes explanations for eyes.
type printer struct {
	out   io.Writer
	paint show.Paint
	// wide adds the nodes of pods, every flavor's numbers for every resource, and long values.
	wide bool
}

// table writes a line for each of many TrainJobs.
func (p *printer) table(all []Explanation) error {
	table := show.NewTable("NAMESPACE", "NAME", "REASON", "WHY", "WHAT HELPS")
	for i := range all {
		e := &all[i]
		table.Row(e.Namespace, e.Name, p.colour(e.State)(e.State.Reason), e.State.Message, e.State.Remedy)
	}
	return table.Print(p.out, p.paint, "")
}

func (p *printer) print(e *Explanation) error {
	p.state(e)
	here := []func(*Explanation) error{p.chain, p.queue, p.timeLimit}
	if !e.seenInWorker() {
		// Else nothing runs here: what counts are flavors and placement there.
		here = append(here, p.flavors, p.placement)
	}
	if err := p.sections(e, here...); err != nil {
		return err
	}
	for i := range e.Workers {
		if there := e.Workers[i].Explanation; there != nil {
			fmt.Fprintf(p.out, "\n%s\n", p.paint.Bold(fmt.Sprintf("In cluster %s (context %s):", e.Workers[i].Cluster, e.Workers[i].Context)))
			if err := p.sections(there, p.queue, p.flavors, p.placement); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *printer) sections(e *Explanation, sections ...func(*Explanation) error) error {
	for _, section := range sections {
		if err := section(e); err != nil {
			return err
		}
	}
	p.unseen(e.Unseen)
	return nil
}

// seenInWorker reports whether it is known what becomes of the job in another cluster.
func (e *Explanation) seenInWorker() bool {
	return slices.ContainsFunc(e.Workers, func(w WorkerExplanation) bool { return w.Explanation != nil })
}

func (p *printer) state(e *Explanation) {
	fmt.Fprintf(p.out, "TrainJob %s %s.\n", p.paint.Bold(e.Namespace+"/"+e.Name), p.colour(e.State)(show.Line(strings.TrimSuffix(e.State.Message, "."))))
	if e.State.Remedy != "" {
		fmt.Fprintf(p.out, "%s %s\n", p.paint.Bold("What helps:"), show.Line(e.State.Remedy))
	}
	if e.Start != nil {
		fmt.Fprintf(p.out, "%s %s.\n", p.paint.Bold("Forecast:"), e.Start)
		for _, warning := range e.Start.Warnings {
			fmt.Fprintf(p.out, "  %s\n", p.paint.Dim(warning))
		}
	}
}

func (p *printer) colour(s State) func(string) string {
	switch {
	case s.Stuck || s.Phase == Failed:
		return p.paint.Red
	case s.Phase == Running || s.Phase == Succeeded || s.Reason == "Fits":
		return p.paint.Green
	}
	return p.paint.Yellow
}

func (p *printer) chain(e *Explanation) error {
	if len(e.Chain) == 0 {
		return nil
	}
	heading := []string{"OBJECT", "STATE", "WAITS FOR"}
	if p.wide {
		heading = []string{"OBJECT", "STATE", "NODES", "WAITS FOR"}
	}
	table := show.NewTable(heading...)
	for _, link := range e.Chain {
		name := strings.Repeat("  ", link.Depth) + link.Kind + " " + link.Name
		if link.Pods != nil {
			name = strings.Repeat("  ", link.Depth) + link.Name
		}
		row := []any{name, link.State, p.paint.Yellow(link.WaitsFor)}
		if p.wide {
			row = slices.Insert(row, 2, any(nodesText(link.Pods)))
		}
		table.Row(row...)
	}
	fmt.Fprintln(p.out)
	return table.Print(p.out, p.paint, "")
}

func nodesText(g *PodGroup) string {
	if g == nil {
		return ""
	}
	return strings.Join(g.Nodes, ",")
}

func (p *printer) queue(e *Explanation) error {
	q := e.Queue
	if q == nil {
		return nil
	}
	fmt.Fprintf(p.out, "\n%s LocalQueue %s", p.paint.Bold("Queue:"), q.LocalQueue)
	for _, part := range []struct{ name, value string }{
		{"ClusterQueue", q.ClusterQueue}, {"cohort", q.Cohort}, {"", q.Strategy},
	} {
		if part.value != "" {
			fmt.Fprintf(p.out, ", %s", strings.TrimSpace(part.name+" "+part.value))
		}
	}
	if len(e.Chain) > 0 {
		fmt.Fprintf(p.out, ", priority %d", q.Priority)
		if q.PriorityClass != "" {
			fmt.Fprintf(p.out, " (%s)", q.PriorityClass)
		}
	}
	fmt.Fprintln(p.out)
	if q.Position != nil {
		fmt.Fprintf(p.out, "%s %s\n", p.paint.Bold("Position:"), positionText(q.Position))
	}
	if q.KueueSays != "" {
		fmt.Fprintf(p.out, "%s %s\n", p.paint.Bold("Kueue says:"), q.KueueSays)
	}
	return nil
}

func (p *printer) timeLimit(e *Explanation) error {
	if l := e.TimeLimit; l != nil {
		fmt.Fprintf(p.out, "%s %s, %s used, %s left\n", p.paint.Bold("Time limit:"),
			seconds(l.Seconds), seconds(l.UsedSeconds), seconds(max(0, l.Seconds-l.UsedSeconds)))
	}
	return nil
}

func seconds(n int32) string { return duration.HumanDuration(time.Duration(n) * time.Second) }

// aheadShown is how many of those in front are named.
const aheadShown = 3

func positionText(position *Position) string {
	text := ordinal(position.Place)
	if position.Pending > 0 {
		text += fmt.Sprintf(" of %d pending", position.Pending)
	}
	if n := len(position.Ahead); n > 0 {
		text += ", behind " + strings.Join(position.Ahead[:min(n, aheadShown)], ", ")
		if n > aheadShown {
			text += fmt.Sprintf(" and %d more", n-aheadShown)
		}
	}
	if position.Source == Computed {
		return text + " (computed)"
	}
	return text + " (says Kueue)"
}

func (p *printer) flavors(e *Explanation) error {
	if len(e.PodSets) == 0 {
		return nil
	}
	fmt.Fprintln(p.out)
	if len(e.Flavors) == 0 {
		return p.podSets(e)
	}
	table := show.NewTable("REPLICATED JOB", "FLAVOR", "NEEDS", "FREE", "QUOTA", "MAX", "VERDICT")
	for _, v := range e.Flavors {
		for i, a := range p.amounts(v) {
			verdict := ""
			if i == 0 {
				verdict = p.verdict(v)
			}
			if v.Flavor == "" {
				table.Row(v.PodSet, "-", quantity(a.Resource, a.Requested), "-", "-", "-", verdict)
				continue
			}
			table.Row(v.PodSet, v.Flavor, quantity(a.Resource, a.Requested), freeText(a), number(a.Resource, a.Quota), number(a.Resource, a.Max), verdict)
		}
	}
	if err := table.Print(p.out, p.paint, ""); err != nil {
		return err
	}
	p.remedies(e)
	return nil
}

// amounts are the ones worth a line: the first, which is the GPUs where there are any, and
// what is missing.
func (p *printer) amounts(v Verdict) []Amount {
	if p.wide || len(v.Amounts) == 0 {
		return v.Amounts
	}
	shown := []Amount{v.Amounts[0]}
	for _, a := range v.Amounts[1:] {
		if !v.Assigned && a.Requested > ptr.Deref(a.Free, a.Max) {
			shown = append(shown, a)
		}
	}
	return shown
}

func freeText(a Amount) string {
	if a.Free == nil {
		return "?"
	}
	return number(a.Resource, *a.Free)
}

func (p *printer) verdict(v Verdict) string {
	var texts []string
	for _, r := range v.Reasons {
		texts = append(texts, r.Message)
	}
	text := strings.Join(texts, "; ")
	switch {
	case v.Assigned && text == "":
		return p.paint.Green("assigned")
	case v.Assigned:
		return p.paint.Red("assigned, but " + text)
	case v.Fits && text == "":
		return p.paint.Green("fits now")
	case v.Fits:
		return p.paint.Red("quota fits, but " + text)
	case v.Preempts:
		return p.paint.Green("by preemption: " + text)
	case v.refusal().Lasting:
		return p.paint.Red("never: " + text)
	}
	return p.paint.Yellow("not now: " + text)
}

func (p *printer) podSets(e *Explanation) error {
	table := show.NewTable("REPLICATED JOB", "PODS", "EACH")
	for _, ps := range e.PodSets {
		var each []string
		for _, name := range sortedResources(ps.PerPod) {
			amount := ps.PerPod[name]
			each = append(each, fmt.Sprintf("%s %s", amount.String(), name))
		}
		table.Row(ps.Name, ps.Pods, strings.Join(each, ", "))
	}
	return table.Print(p.out, p.paint, "")
}

// remedies says what helps with each flavor, unless the state has said it; what helps with several is said once.
func (p *printer) remedies(e *Explanation) {
	var remedies []string
	flavors := map[string][]string{}
	for _, v := range useful(e.Flavors) {
		for _, r := range v.Reasons {
			if r.Remedy == "" || r.Remedy == e.State.Remedy || !r.Lasting && v.refusal().Lasting {
				continue
			}
			if flavors[r.Remedy] == nil {
				remedies = append(remedies, r.Remedy)
			}
			if flavor := cmp.Or(v.Flavor, v.PodSet); !slices.Contains(flavors[r.Remedy], flavor) {
				flavors[r.Remedy] = append(flavors[r.Remedy], flavor)
			}
		}
	}
	if len(remedies) > 0 {
		fmt.Fprintln(p.out, p.paint.Bold("What helps with a flavor:"))
	}
	for _, remedy := range remedies {
		fmt.Fprintf(p.out, "  %s: %s\n", strings.Join(flavors[remedy], ", "), remedy)
	}
}

// valueShown is how much of a value is shown unless -o wide.
const valueShown = 60

func (p *printer) placement(e *Explanation) error {
	if e.Undescribed != "" && e.State.Phase != NotCreated && e.State.Reason != "RuntimeMissing" {
		fmt.Fprintf(p.out, "\n%s %s\n", p.paint.Bold("Placement unknown:"), e.Undescribed)
	}
	if len(e.Placement) == 0 {
		return nil
	}
	table := show.NewTable("REPLICATED JOB", "PLACEMENT", "VALUE", "SET BY", "INSTEAD OF")
	for _, part := range e.Placement {
		var instead []string
		for _, o := range part.Overrode {
			instead = append(instead, fmt.Sprintf("%s (%s)", p.value(part.Field, o.Value), o.SetBy))
		}
		table.Row(cmp.Or(part.ReplicatedJob, "-"), part.Field, p.value(part.Field, part.Value), p.paint.Cyan(part.SetBy), strings.Join(instead, ", "))
	}
	fmt.Fprintln(p.out)
	return table.Print(p.out, p.paint, "")
}

func (p *printer) value(field string, value []byte) string {
	text := valueText(field, value)
	if runes := []rune(text); !p.wide && len(runes) > valueShown {
		return string(runes[:valueShown]) + "…"
	}
	return text
}

func (p *printer) unseen(kinds []string) {
	if len(kinds) > 0 {
		fmt.Fprintf(p.out, "\n%s you may not list %s, so this is not the whole story; an admin sees more.\n",
			p.paint.Bold("Not seen:"), strings.Join(kinds, ", "))
	}
}
