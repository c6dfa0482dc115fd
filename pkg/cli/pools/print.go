// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// write writes a view in the format of -o.
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
