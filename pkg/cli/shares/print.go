// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

func (v *View) print(out io.Writer, paint show.Paint) error {
	queues := show.NewTable("COHORT", "CLUSTERQUEUE", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWS", "LENT", "WEIGHT", "SHARE")
	for _, q := range v.Queues {
		queues.Row(cmp.Or(q.Cohort, "-"), q.ClusterQueue, q.Flavor, q.Resource, q.Nominal.String(), q.Used.String(), q.Borrowed.String(), q.Lent.String(), q.Weight, shareText(q.Share))
	}
	cohorts := show.NewTable("COHORT", "PARENT", "WEIGHT", "SHARE")
	for _, c := range v.Cohorts {
		cohorts.Row(c.Name, cmp.Or(c.Parent, "-"), c.Weight, shareText(c.Share))
	}
	consumed := show.NewTable("LOCALQUEUE", "CONSUMED")
	for _, c := range v.Consumed {
		consumed.Row(c.LocalQueue, listed(c.Resources))
	}
	used := show.NewTable("LOCALQUEUE", "FLAVOR", "RESOURCE", "USED")
	for _, u := range v.Used {
		used.Row(u.LocalQueue, u.Flavor, u.Resource, u.Total.String())
	}
	waiting := show.NewTable("PLACE", "JOB", "CLUSTERQUEUE", "PRIORITY", "NOW", "WHY THERE")
	for _, w := range v.Waiting {
		now := "waits"
		if w.StartsNow {
			now = "starts"
		}
		waiting.Row(w.Place, w.Job, cmp.Or(w.ClusterQueue, "-"), w.Priority, now, w.Why)
	}
	tables := slices.DeleteFunc([]*show.Table{queues, cohorts, consumed, used, waiting}, (*show.Table).Empty)
	for i, table := range tables {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := table.Print(out, paint, ""); err != nil {
			return err
		}
	}
	if v.Note != "" {
		fmt.Fprintf(out, "\n%s\n", v.Note)
	}
	return nil
}

func shareText(share float64) string {
	if share < 0 {
		return "∞"
	}
	// As Kueue has it in the status of a ClusterQueue.
	return fmt.Sprintf("%.0f", math.Ceil(share))
}

func listed(resources corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		quantity := resources[name]
		parts = append(parts, fmt.Sprintf("%s %s", quantity.String(), name))
	}
	return strings.Join(parts, ", ")
}
