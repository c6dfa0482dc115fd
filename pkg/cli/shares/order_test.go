// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What the page says of the order is what Kueue's scheduler then does: who starts now does so in that order, and when the
// jobs that run end one after the other, the others start in theirs, within the queues in which it is said to hold.
func TestOrderIsThatOfAdmissions(t *testing.T) {
	half := metav1.Duration{Duration: time.Hour}
	type row struct {
		kueue configapi.Configuration
		// within names the queue in which the order of those who wait holds.
		within func(*kueue.Workload, *outlook.Outlook) string
	}
	expect.Rows(t, map[string]row{
		"without fair sharing": {within: clusterQueueOf},
		"with fair sharing":    {kueue: configapi.Configuration{FairSharing: &configapi.FairSharing{}}, within: clusterQueueOf},
		"with admission fair sharing": {kueue: configapi.Configuration{AdmissionFairSharing: &configapi.AdmissionFairSharing{
			UsageHalfLifeTime: half, UsageSamplingInterval: metav1.Duration{Duration: 5 * time.Minute},
		}}, within: func(wl *kueue.Workload, _ *outlook.Outlook) string { return string(wl.Spec.QueueName) }},
	}, func(t *testing.T, tc row) {
		for seed := range uint64(50) {
			at := drawTown(rand.New(rand.NewPCG(seed, 0)))
			at.Kueue = &tc.kueue
			view := expect.Must(newView(t.Context(), at))(t)
			started, later := admissions(t, at)
			printed := map[string][]string{}
			var now []string
			for _, w := range view.Waiting {
				wl := inventory.Find(at.Workloads, "ns", w.Job[len("ns/"):])
				if w.StartsNow {
					now = append(now, w.Job)
				} else {
					printed[tc.within(wl, at)] = append(printed[tc.within(wl, at)], w.Job)
				}
			}
			expect.Same(t, fmt.Sprintf("Seed %d: unexpected order of who starts now", seed), started, now)
			became := map[string][]string{}
			for _, wl := range later {
				became[tc.within(wl, at)] = append(became[tc.within(wl, at)], inventory.JobName(wl))
			}
			expect.Same(t, fmt.Sprintf("Seed %d: unexpected order of who waits", seed), became, printed)
		}
	})
}

func clusterQueueOf(wl *kueue.Workload, at *outlook.Outlook) string {
	return string(at.LocalQueue(wl.Namespace, wl.Spec.QueueName).Spec.ClusterQueue)
}

// drawTown draws three ClusterQueues of a cohort with two LocalQueues each, and jobs of two GPUs.
func drawTown(random *rand.Rand) *outlook.Outlook {
	i := &inventory.Inventory{Flavors: []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}}}
	for _, name := range []string{"a", "b", "c"} {
		queue(i, name, []string{"0", "4", "8"}[random.IntN(3)], "0", "0")
		cq := &i.ClusterQueues[len(i.ClusterQueues)-1]
		cq.Spec.QueueingStrategy = []kueue.QueueingStrategy{kueue.BestEffortFIFO, kueue.StrictFIFO}[random.IntN(2)]
		cq.Spec.FairSharing.Weight = ptr.To(resource.MustParse([]string{"1", "2", "500m"}[random.IntN(3)]))
		cq.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
		other := i.LocalQueues[len(i.LocalQueues)-1]
		other.Name += "-other"
		i.LocalQueues = append(i.LocalQueues, other)
	}
	queue(i, "lender", "4", "0", "0")
	for n := range i.LocalQueues {
		consumed := corev1.ResourceList{gpu.Whole: *resource.NewQuantity(random.Int64N(9), resource.DecimalSI)}
		i.LocalQueues[n].Status.FairSharing = &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: &kueue.LocalQueueAdmissionFairSharingStatus{ConsumedResources: consumed}}
	}
	for n := range 24 {
		workload(i, fmt.Sprintf("job-%02d", n), i.LocalQueues[random.IntN(6)].Name, 2, random.Int32N(3), time.Duration(random.IntN(900)+1)*time.Minute+time.Duration(n)*time.Second)
	}
	return &outlook.Outlook{Inventory: i, Now: now, NoArrivals: true}
}

// admissions are what Kueue's scheduler does: who starts at once, and who when those end one after the other.
func admissions(t *testing.T, at *outlook.Outlook) (now []string, later []*kueue.Workload) {
	t.Helper()
	world := at.World()
	world.Kueue = *at.Kueue
	player := expect.Must(scheduler.NewPlayer(t.Context(), world, at.Now))(t)
	for n := range at.Workloads {
		expect.NoError(t, player.Add(t.Context(), inventory.WithRequests(&at.Workloads[n])))
	}
	var running []*kueue.Workload
	for _, moved := range player.Settle(t.Context()) {
		now = append(now, inventory.JobName(moved.Workload))
		running = append(running, moved.Workload)
	}
	for clock := at.Now; len(running) > 0; running = slices.Delete(running, 0, 1) {
		player.Remove(t.Context(), client.ObjectKeyFromObject(running[0]))
		clock = clock.Add(time.Minute)
		player.SetTime(t.Context(), clock)
		for _, moved := range player.Settle(t.Context()) {
			later = append(later, moved.Workload)
			running = append(running, moved.Workload)
		}
	}
	return now, later
}
