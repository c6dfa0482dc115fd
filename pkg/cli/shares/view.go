// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// View is what the command tells. Its JSON is for scripts: names stay, new ones may come.
type View struct {
	Queues []Queue `json:"queues"`
	// Cohorts have a weight and a share, too, below others.
	Cohorts []Cohort `json:"cohorts,omitempty"`
	// Consumed is of LocalQueues with admission fair sharing.
	Consumed []Consumed `json:"consumed,omitempty"`
	// Used is what LocalQueues use, for those who may not see ClusterQueues.
	Used    []Used    `json:"used,omitempty"`
	Waiting []Waiting `json:"waiting"`
	// Note is what the order of those who wait leaves out.
	Note string `json:"note,omitempty"`
	// Unseen are the kinds that the user may not list.
	Unseen []string `json:"unseen,omitempty"`
}

// Queue is a quota of a ClusterQueue.
type Queue struct {
	ClusterQueue string            `json:"clusterQueue"`
	Cohort       string            `json:"cohort,omitempty"`
	Flavor       string            `json:"flavor"`
	Resource     string            `json:"resource"`
	Nominal      resource.Quantity `json:"nominal"`
	Used         resource.Quantity `json:"used"`
	Borrowed     resource.Quantity `json:"borrowed"`
	Lent         resource.Quantity `json:"lent"`
	Fair
}

// Fair is how a ClusterQueue or Cohort stands in fair sharing.
type Fair struct {
	Weight float64 `json:"weight"`
	// Share is Kueue's; -1 stands for one that borrows at a weight of zero, which has the greatest.
	Share float64 `json:"share"`
}

// Cohort is one that has a parent, or children.
type Cohort struct {
	Name   string `json:"name"`
	Parent string `json:"parent,omitempty"`
	Fair
}

// Consumed is what a LocalQueue has consumed, as Kueue lets it fade.
type Consumed struct {
	LocalQueue string              `json:"localQueue"`
	Resources  corev1.ResourceList `json:"resources"`
}

// Used is what a LocalQueue uses of a flavor.
type Used struct {
	LocalQueue string            `json:"localQueue"`
	Flavor     string            `json:"flavor"`
	Resource   string            `json:"resource"`
	Total      resource.Quantity `json:"total"`
}

func newView(ctx context.Context, at *outlook.Outlook) (*View, error) {
	v := &View{Queues: []Queue{}, Waiting: []Waiting{}, Consumed: consumed(at.LocalQueues), Unseen: at.Inventory.Unseen}
	if len(at.UnseenQueues()) > 0 {
		v.Used, v.Waiting = used(at.LocalQueues), ofNamespace(at)
		return v, nil
	}
	snapshot, err := at.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	quotas, err := at.Quotas(ctx)
	if err != nil {
		return nil, err
	}
	for _, q := range quotas {
		v.Queues = append(v.Queues, Queue{
			ClusterQueue: string(q.ClusterQueue), Cohort: string(q.Cohort), Flavor: string(q.Flavor), Resource: string(q.Resource),
			Nominal: q.Nominal, Used: q.Reserved, Borrowed: q.Borrowed, Lent: q.Lent, Fair: fairOf(snapshot.ClusterQueue(q.ClusterQueue), at.ClusterQueue(q.ClusterQueue)),
		})
	}
	for n := range at.Cohorts {
		cohort := &at.Cohorts[n]
		if seen := snapshot.Cohort(kueue.CohortReference(cohort.Name)); seen != nil {
			v.Cohorts = append(v.Cohorts, Cohort{Name: cohort.Name, Parent: string(cohort.Spec.ParentName), Fair: Fair{seen.FairWeight, share(seen.DominantResourceShare())}})
		}
	}
	v.Waiting, err = order(ctx, at)
	v.Note = note(at, v.Waiting)
	return v, err
}

// note says where Kueue has no order of all who wait: it goes by shares, or by what was consumed, which change with each start;
// or where its configuration does not tell.
func note(at *outlook.Outlook, waiting []Waiting) string {
	if !slices.ContainsFunc(waiting, func(w Waiting) bool { return w.Place > 0 && !w.StartsNow && !w.GetsQuota }) {
		return ""
	}
	holds, decides := "ClusterQueue", "shares"
	switch {
	case at.Kueue == nil:
		return "Kueue's configuration is not seen: the order is that without fair sharing; an admin sees whether Kueue shares fairly."
	case at.Kueue.AdmissionFairSharing != nil:
		holds, decides = "LocalQueue", "shares and what was consumed"
	case at.Kueue.FairSharing == nil:
		return ""
	}
	return fmt.Sprintf("Kueue shares fairly: who starts now is in its order. Of those who wait, the order holds within a %s; which of these is next, %s at that time decide.", holds, decides)
}

// fairOf goes by what is stored where the snapshot leaves a ClusterQueue out, because it is not active: Kueue goes on counting it.
func fairOf(cq *scheduler.ClusterQueue, stored *kueue.ClusterQueue) Fair {
	if cq != nil {
		return Fair{Weight: cq.FairWeight, Share: share(cq.DominantResourceShare())}
	}
	fair := Fair{Weight: 1}
	if stored.Spec.FairSharing != nil && stored.Spec.FairSharing.Weight != nil {
		fair.Weight = stored.Spec.FairSharing.Weight.AsApproximateFloat64()
	}
	if status := stored.Status.FairSharing; status != nil {
		fair.Share = float64(status.WeightedShare)
		if status.WeightedShare == math.MaxInt64 {
			fair.Share = -1
		}
	}
	return fair
}

// share makes of Kueue's infinity something that JSON has.
func share(s interface{ PreciseWeightedShare() float64 }) float64 {
	if value := s.PreciseWeightedShare(); !math.IsInf(value, 0) {
		return value
	}
	return -1
}

func consumed(queues []kueue.LocalQueue) []Consumed {
	var all []Consumed
	for n := range queues {
		q := &queues[n]
		if q.Status.FairSharing != nil && q.Status.FairSharing.AdmissionFairSharingStatus != nil {
			all = append(all, Consumed{q.Namespace + "/" + q.Name, q.Status.FairSharing.AdmissionFairSharingStatus.ConsumedResources})
		}
	}
	return all
}

func used(queues []kueue.LocalQueue) []Used {
	var all []Used
	for n := range queues {
		for _, flavor := range queues[n].Status.FlavorsReservation {
			for _, r := range flavor.Resources {
				all = append(all, Used{fmt.Sprintf("%s/%s", queues[n].Namespace, queues[n].Name), string(flavor.Name), string(r.Name), r.Total})
			}
		}
	}
	return all
}

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
		switch {
		case w.StartsNow:
			now = "starts"
		case w.GetsQuota:
			now = "gets quota"
		}
		place := strconv.Itoa(w.Place)
		if w.Place == 0 {
			place = "-"
		}
		waiting.Row(place, w.Job, cmp.Or(w.ClusterQueue, "-"), w.Priority, now, w.Why)
	}
	tables := slices.DeleteFunc([]*show.Table{queues, cohorts, consumed, used, waiting}, (*show.Table).Empty)
	for i, table := range tables {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := table.Print(out, paint); err != nil {
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
