// SPDX-License-Identifier: Apache-2.0

// Package pools is the command that shows GPU pools, and the one that makes them from nodes.
package pools

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

const poolsLong = `Show GPU pools: what each ResourceFlavor has, and who holds it.

There is a line for every GPU resource of a flavor: the ready nodes of all that it picks,
what these have, the quota that ClusterQueues have of it, what Workloads reserved, what
pods hold, what waiting Workloads ask for, and what could still be given out. Nodes that
no flavor picks come last. What you may not see is "?".

Exit codes: 0 all was seen, 1 the cluster does not answer, 4 you may not see all of it.`

const poolsExample = `  # All pools
  kubectl trainjob pools

  # With products, and with what every ClusterQueue holds, borrowed and lent, and its users
  kubectl trainjob pools -o wide

  # Follow them
  kubectl trainjob pools --watch`

// NewCommand returns the command, with generate below it.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	p := &pools{flags: flags, streams: streams}
	cmd := &cobra.Command{
		Use: "pools", Short: "Show GPU pools: nodes, quota, who holds it and who waits",
		Long: poolsLong, Example: poolsExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context()) },
	}
	show.OutputFlag(cmd, &p.format, show.Wide, show.JSON, show.YAML)
	cmd.Flags().BoolVarP(&p.watch, "watch", "w", false, "show them again whenever something changes")
	cmd.AddCommand(newGenerate(flags, streams))
	return cmd
}

type pools struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams
	format  string
	watch   bool
}

func (p *pools) run(ctx context.Context) error {
	c, err := p.flags.Client()
	if err != nil {
		return err
	}
	i, err := inventory.Load(ctx, c)
	if err != nil {
		return err
	}
	for _, kind := range i.Unseen {
		fmt.Fprintf(p.streams.ErrOut, "not seen: %s: you may not list them in the whole cluster\n", kind)
	}
	screen := &screen{out: p.streams.Out}
	text, err := p.text(ctx, c, i)
	if err != nil {
		return err
	}
	if err := screen.show(text); err != nil || !p.watch || !i.Saw(inventory.Flavors) {
		return cmp.Or(err, notAll(i))
	}
	look := func(ctx context.Context) ([]byte, error) {
		i, err := inventory.Load(ctx, c)
		if err != nil {
			return nil, err
		}
		return p.text(ctx, c, i)
	}
	return follow.Each(ctx, follow.Watch(ctx, calm).Add(c, kinds(i)...), p.streams.ErrOut, look, func(text []byte) (over bool, err error) {
		return false, screen.show(text)
	})
}

// text is what is shown of an inventory: whose the TrainJobs are, the table alone does not tell.
func (p *pools) text(ctx context.Context, c client.Client, i *inventory.Inventory) ([]byte, error) {
	var users map[types.UID]string
	var err error
	if p.format != "" {
		if users, err = readUsers(ctx, c); err != nil {
			return nil, err
		}
	}
	kueues, _ := cluster.KueueConfiguration(ctx, c) // Without it Kueue is taken to count what pods ask for.
	view, err := newView(ctx, i, users, ptr.Deref(kueues, configapi.Configuration{}).Resources)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = write(&text, p.format, view, show.Painter(p.streams.Out))
	return text.Bytes(), err
}

// calm is the time between two looks at the least: every look lists all nodes and pods of the cluster.
const calm = 10 * time.Second

// kinds are those of an inventory that the user may list.
func kinds(i *inventory.Inventory) []follow.Kind {
	var watched []follow.Kind
	for kind, list := range map[string]client.ObjectList{
		inventory.Nodes: &corev1.NodeList{}, inventory.Pods: &corev1.PodList{},
		inventory.Flavors: &kueue.ResourceFlavorList{}, inventory.Topologies: &kueue.TopologyList{},
		inventory.ClusterQueues: &kueue.ClusterQueueList{}, inventory.Cohorts: &kueue.CohortList{},
		inventory.LocalQueues: &kueue.LocalQueueList{}, inventory.AdmissionChecks: &kueue.AdmissionCheckList{},
		inventory.Workloads: &kueue.WorkloadList{},
	} {
		if i.Saw(kind) {
			watched = append(watched, follow.Kind{List: list})
		}
	}
	return watched
}

// notAll tells that what was shown is not all that there is.
func notAll(i *inventory.Inventory) error {
	if len(i.Unseen) == 0 {
		return nil
	}
	what := "the amounts that are missing"
	if !i.Saw(inventory.Flavors) {
		what = "the pools"
	}
	return exit.With(exit.Unseen, fmt.Errorf("you may not see %s: ask an admin for ClusterRoles kueue-batch-admin-role and kueue-trainer-queues-viewer, and to list pods", what))
}

// screen shows one text after the other: on a terminal in its place, elsewhere below it.
type screen struct {
	out  io.Writer
	last []byte
}

// show prints a text unless it looks like the last one.
func (s *screen) show(text []byte) error {
	switch {
	case bytes.Equal(text, s.last):
		return nil
	case s.last == nil:
	case show.Terminal(s.out):
		// To the upper left, and away with what was there.
		fmt.Fprint(show.Cursor(s.out), "\x1b[H\x1b[2J")
	default:
		fmt.Fprintln(s.out)
	}
	s.last = text
	_, err := s.out.Write(text)
	return err
}

func write(out io.Writer, format string, view *View, paint show.Paint) error {
	if show.ForMachines(format) {
		return show.Encode(out, format, view)
	}
	return printTable(out, view, paint, format == show.Wide)
}

func printTable(out io.Writer, view *View, paint show.Paint, wide bool) error {
	table := show.NewTable("POOL", "RESOURCE", "NODES", "ALLOCATABLE", "QUOTA", "RESERVED", "RUNNING", "PENDING", "FREE", "PRODUCT", "MEMORY", "CLUSTERQUEUES")
	for i := range view.Pools {
		table.Row(row(&view.Pools[i], paint)...)
	}
	table.Hide(!wide, "PRODUCT", "MEMORY")
	table.Hide(wide, "CLUSTERQUEUES")
	if table.Empty() && slices.Contains(view.Unseen, inventory.Flavors) {
		return nil
	}
	if table.Empty() {
		_, err := fmt.Fprintln(out, "No pools: no ResourceFlavor and no node. \"kubectl trainjob pools generate\" makes flavors from nodes.")
		return err
	}
	if err := table.Print(out, paint); err != nil || !wide {
		return err
	}
	return printQueues(out, view, paint)
}

func row(pool *Pool, paint show.Paint) []any {
	name, nodes := pool.Flavor, "?"
	if name == "" {
		name = paint.Yellow("<no flavor>")
	}
	if n := pool.Nodes; n != nil {
		nodes = fmt.Sprintf("%d/%d", n.Ready, n.Total)
		if n.Ready < n.Total {
			nodes = paint.Red(nodes)
		}
	}
	cells := []any{name, pool.Resource, nodes, amount(pool.Allocatable)}
	if pool.Flavor == "" {
		cells = append(cells, "-", "-", amount(pool.Running), "-", "-")
	} else {
		cells = append(cells, amount(pool.Quota), amount(pool.Reserved), amount(pool.Running), painted(pool.Pending, paint.Yellow), painted(pool.Free, paint.Green))
	}
	memory := show.None
	// Drivers keep a little of what a GPU is sold as.
	if q, err := resource.ParseQuantity(pool.Memory); err == nil {
		memory = fmt.Sprintf("%.0fGi", q.AsApproximateFloat64()/(1<<30))
	}
	return append(cells, cmp.Or(pool.Product, show.None), memory, queueNames(pool, paint))
}

func queueNames(pool *Pool, paint show.Paint) string {
	var names []string
	for _, queue := range pool.ClusterQueues {
		if queue.Stopped != "" {
			names = append(names, paint.Red(string(queue.ClusterQueue)+" (stopped)"))
			continue
		}
		names = append(names, string(queue.ClusterQueue))
	}
	return cmp.Or(strings.Join(names, ", "), show.None)
}

// printQueues tells who may use each pool, and who holds whose quota.
func printQueues(out io.Writer, view *View, paint show.Paint) error {
	table := show.NewTable("CLUSTERQUEUE", "COHORT", "POOL", "RESOURCE", "NOMINAL", "RESERVED", "ADMITTED", "BORROWED", "LENT", "FREE", "STOPPED", "USERS")
	for _, pool := range view.Pools {
		for _, q := range pool.ClusterQueues {
			table.Row(q.ClusterQueue, cmp.Or(q.Cohort, show.None), pool.Flavor, pool.Resource, amount(&q.Nominal), amount(&q.Reserved), amount(&q.Used),
				painted(&q.Borrowed, paint.Yellow), painted(&q.Lent, paint.Yellow), painted(&q.Free, paint.Green), cmp.Or(paint.Red(q.Stopped), "-"), usersText(q.Users))
		}
	}
	if table.Empty() {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return table.Print(out, paint)
}

// amount is a quantity, "?" where it could not be seen.
func amount(q *resource.Quantity) string {
	if q == nil {
		return "?"
	}
	return q.String()
}

// painted leaves zeros plain.
func painted(q *resource.Quantity, paint func(string) string) string {
	if q == nil || q.IsZero() {
		return amount(q)
	}
	return paint(amount(q))
}
