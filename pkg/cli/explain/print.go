// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

type printer struct {
	out   io.Writer
	paint show.Paint
	wide  bool  // adds the nodes of pods, every flavor's numbers for every resource, and long values
	err   error // of the first table that could not be written
}

func (p *printer) say(format string, args ...any) {
	fmt.Fprint(p.out, show.Text(fmt.Sprintf(format, args...)))
}

func (p *printer) show(table *show.Table) { p.err = cmp.Or(p.err, table.Print(p.out, p.paint)) }

// table writes a line for each of many TrainJobs, and what of them is not seen.
func (p *printer) table(all []Explanation) error {
	table := show.NewTable("NAMESPACE", "NAME", "REASON", "WHY", "WHAT HELPS")
	var unseen []string
	for _, e := range all {
		table.Row(e.Namespace, e.Name, e.State.Paint(p.paint)(e.State.Reason), e.State.Message, e.State.Remedy)
		unseen = append(unseen, e.Unseen...)
	}
	p.show(table)
	slices.Sort(unseen)
	p.unseen(slices.Compact(unseen))
	return p.err
}

func (p *printer) print(e *Explanation) error {
	p.state(e)
	p.chain(e)
	p.queue(e)
	if l := e.TimeLimit; l != nil {
		p.say("%s %s, %s used, %s left\n", p.paint.Bold("Time limit:"), seconds(l.Seconds), seconds(l.UsedSeconds), seconds(max(0, l.Seconds-l.UsedSeconds)))
	}
	if !slices.ContainsFunc(e.Workers, func(w WorkerExplanation) bool { return w.Explanation != nil }) {
		// Else nothing runs here: what counts are flavors and placement there.
		p.flavors(e)
		p.placement(e)
	}
	p.unseen(e.Unseen)
	for _, w := range e.Workers {
		if there := w.Explanation; there != nil {
			p.say("\n%s\n", p.paint.Bold(fmt.Sprintf("In cluster %s (context %s):", w.Cluster, w.Context)))
			p.queue(there)
			p.flavors(there)
			p.placement(there)
			p.unseen(there.Unseen)
		}
	}
	return p.err
}

func (p *printer) state(e *Explanation) {
	p.say("TrainJob %s %s.\n", p.paint.Bold(e.Namespace+"/"+e.Name), e.State.Paint(p.paint)(show.Line(strings.TrimSuffix(e.State.Message, "."))))
	if e.State.Remedy != "" {
		p.say("%s %s\n", p.paint.Bold("What helps:"), show.Line(e.State.Remedy))
	}
	if e.Start != nil {
		p.say("%s %s.\n", p.paint.Bold("Forecast:"), e.Start)
		for _, warning := range e.Start.Warnings {
			p.say("  %s\n", p.paint.Dim(warning))
		}
	}
}

func (p *printer) chain(e *Explanation) {
	if len(e.Chain) == 0 {
		return
	}
	table := show.NewTable("OBJECT", "STATE", "NODES", "WAITS FOR")
	for _, link := range e.Chain {
		name, nodes := link.Kind+" "+link.Name, ""
		if link.Pods != nil {
			name, nodes = link.Name, strings.Join(link.Pods.Nodes, ",")
		}
		table.Row(strings.Repeat("  ", link.Depth)+name, link.State, nodes, p.paint.Yellow(link.WaitsFor))
	}
	table.Hide(!p.wide, "NODES")
	p.say("\n")
	p.show(table)
}

func (p *printer) queue(e *Explanation) {
	q := e.Queue
	if q == nil {
		return
	}
	p.say("\n%s LocalQueue %s", p.paint.Bold("Queue:"), q.LocalQueue)
	for _, part := range []struct{ name, value string }{
		{"ClusterQueue", q.ClusterQueue}, {"cohort", q.Cohort}, {"", q.Strategy},
	} {
		if part.value != "" {
			p.say(", %s", strings.TrimSpace(part.name+" "+part.value))
		}
	}
	if len(e.Chain) > 0 {
		p.say(", priority %d", q.Priority)
		if q.PriorityClass != "" {
			p.say(" (%s)", q.PriorityClass)
		}
	}
	p.say("\n")
	if q.Position != nil {
		p.say("%s %s\n", p.paint.Bold("Position:"), positionText(q.Position))
	}
	if q.KueueSays != "" {
		p.say("%s %s\n", p.paint.Bold("Kueue says:"), q.KueueSays)
	}
}

func seconds(n int32) string { return duration.HumanDuration(time.Duration(n) * time.Second) }

func (p *printer) flavors(e *Explanation) {
	if len(e.PodSets) == 0 {
		return
	}
	p.say("\n")
	if len(e.Flavors) == 0 {
		p.podSets(e)
		return
	}
	table := show.NewTable("REPLICATED JOB", "FLAVOR", "NEEDS", "FREE", "QUOTA", "MAX", "VERDICT")
	for _, v := range e.Flavors {
		verdict := p.verdict(v)
		for _, a := range p.amounts(v) {
			free, quota, most := "?", number(a.Resource, a.Quota), number(a.Resource, a.Max)
			switch {
			case v.Flavor == "":
				free, quota, most = "-", "-", "-"
			case a.Free != nil:
				free = number(a.Resource, *a.Free)
			}
			table.Row(v.PodSet, cmp.Or(v.Flavor, "-"), quantity(a.Resource, a.Requested), free, quota, most, verdict)
			verdict = ""
		}
	}
	p.show(table)
	p.remedies(e)
}

// amounts are the ones worth a line: the first, which is the GPUs where there are any, and what is missing.
func (p *printer) amounts(v Verdict) []Amount {
	if p.wide || len(v.Amounts) == 0 {
		return v.Amounts
	}
	missing := picked(v.Amounts[1:], func(a Amount) bool { return !v.Assigned && a.Requested > ptr.Deref(a.Free, a.Max) })
	return append([]Amount{v.Amounts[0]}, missing...)
}

func (p *printer) verdict(v Verdict) string {
	text := strings.Join(kueuelib.Map(v.Reasons, func(r *Reason) string { return r.Message }), "; ")
	switch {
	case v.Done:
		return p.paint.Dim("done")
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

func (p *printer) podSets(e *Explanation) {
	table := show.NewTable("REPLICATED JOB", "PODS", "EACH")
	for _, ps := range e.PodSets {
		each := kueuelib.Map(sortedResources(ps.PerPod), func(name *corev1.ResourceName) string {
			amount := ps.PerPod[*name]
			return amount.String() + " " + string(*name)
		})
		table.Row(ps.Name, ps.Pods, strings.Join(each, ", "))
	}
	p.show(table)
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
		p.say("%s\n", p.paint.Bold("What helps with a flavor:"))
	}
	for _, remedy := range remedies {
		p.say("  %s: %s\n", strings.Join(flavors[remedy], ", "), remedy)
	}
}

func (p *printer) unseen(all []string) {
	var kinds []string
	for _, what := range all {
		if strings.HasPrefix(what, noConfiguration) {
			p.say("\n%s %s, so this is not the whole story; an admin can name it in kueueConfigMap of kueue-trainer's configuration.\n",
				p.paint.Bold("Not seen:"), what)
		} else {
			kinds = append(kinds, what)
		}
	}
	if len(kinds) > 0 {
		p.say("\n%s you may not list %s, so this is not the whole story; an admin sees more.\n",
			p.paint.Bold("Not seen:"), strings.Join(kinds, ", "))
	}
}
