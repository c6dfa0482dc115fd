// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// unstop is the command that takes a stopPolicy away.
const unstop = `--type=merge -p '{"spec":{"stopPolicy":"None"}}'`

var queueChecks = []check{{
	inOrder: "every LocalQueue leads to a ClusterQueue", looksAt: []Kind{localQueues, clusterQueues},
	wrong: func(f *Facts, found func(hit)) {
		for _, q := range f.LocalQueues {
			if f.ClusterQueue(q.Spec.ClusterQueue) == nil {
				found(about("LocalQueue", q.Namespace, q.Name, "clusterqueue", q.Spec.ClusterQueue))
			}
		}
	},
	ID: "LocalQueueToNowhere", Severity: Error, When: "its ClusterQueue does not exist",
	problem:  "Its ClusterQueue {clusterqueue} does not exist.",
	effect:   "TrainJobs in this queue wait for ever.",
	advice:   "Make the ClusterQueue, or, since a LocalQueue cannot change its ClusterQueue, delete this one and make it again:",
	commands: []string{"kubectl -n {namespace} delete localqueue {name}"},
}, {
	inOrder: "every LocalQueue of a Workload with quota exists", looksAt: []Kind{workloads, localQueues, clusterQueues}, wrong: goneQueues,
	ID: "LocalQueueGone", Severity: Warning, When: "it was deleted while its jobs hold quota, see [limits](what-holds.md#limits)",
	problem: "The LocalQueue does not exist, and {count} in it {hold} quota of ClusterQueue {clusterqueue}.",
	effect:  "Kueue wakes nobody when that quota is free: TrainJobs that wait for it wait on.",
	advice:  "When the last of them has ended, change the quota of the ClusterQueue by one, and back:",
}, {
	inOrder: "ClusterQueues are active", looksAt: []Kind{clusterQueues}, wrong: inactiveClusterQueues,
	ID: "ClusterQueueInactive", Severity: Error, When: "a flavor, topology or admission check is missing; a warning while it is being deleted",
	problem:  "The ClusterQueue is not active: {message}",
	effect:   "TrainJobs in its queues wait for ever.",
	advice:   "{make}, or {instead}:",
	commands: []string{"{see}", "kubectl edit clusterqueue {name}"},
}, {
	ID: "ClusterQueueInactive", Severity: Warning,
	problem:  "The ClusterQueue is being deleted.",
	effect:   "TrainJobs in its queues wait for ever.",
	advice:   "It goes when its last Workload has given its quota back; then create it again, if it is still wanted. Who holds it:",
	commands: []string{"kubectl get workloads -A -o wide"},
}, {
	ID: "ClusterQueueStopped", Severity: Warning, When: "somebody has set `stopPolicy`",
	problem:  "The ClusterQueue was stopped: its stopPolicy is {policy}.",
	effect:   "No TrainJob in it is admitted{evicted}.",
	commands: []string{"kubectl patch clusterqueue {name} " + unstop},
}, {
	inOrder: "LocalQueues are not stopped", looksAt: []Kind{localQueues},
	wrong: func(f *Facts, found func(hit)) {
		for _, q := range f.LocalQueues {
			if stopped, values := stopped(q.Spec.StopPolicy); stopped {
				found(about("LocalQueue", q.Namespace, q.Name, values...))
			}
		}
	},
	ID: "LocalQueueStopped", Severity: Warning, When: "somebody has set `stopPolicy`",
	problem:  "The LocalQueue was stopped: its stopPolicy is {policy}.",
	effect:   "No TrainJob in it is admitted{evicted}.",
	commands: []string{"kubectl -n {namespace} patch localqueue {name} " + unstop},
}, {
	inOrder: "no LocalQueue admits TrainJobs that are held", looksAt: []Kind{localQueues},
	wrong: func(f *Facts, found func(hit)) {
		for _, q := range f.LocalQueues {
			if queue, is := trainjob.HeldFrom(q.Name); is {
				found(about("LocalQueue", q.Namespace, q.Name, "queue", queue))
			}
		}
	},
	ID: "LocalQueueOfHeld", Severity: Warning, When: "a LocalQueue has the name by which `hold` and `stop` keep TrainJobs out of another: it admits them",
	problem:  "By this name kubectl trainjob hold and stop keep TrainJobs out of LocalQueue {queue}.",
	effect:   "TrainJobs that are held or stopped are admitted by it.",
	commands: []string{"kubectl -n {namespace} delete localqueue {name}"},
}}

// goneQueues finds LocalQueues that were deleted before their jobs have ended. Nothing tells of them afterwards.
func goneQueues(f *Facts, found func(hit)) {
	holders := map[types.NamespacedName][]*kueue.Workload{}
	for _, wl := range f.Workloads {
		name := string(wl.Spec.QueueName)
		_, held := trainjob.HeldFrom(name) // Kueue takes its quota in a moment.
		if name == "" || held || wl.Status.Admission == nil || kueuelib.IsFinished(&wl) || inventory.Find(f.LocalQueues, wl.Namespace, name) != nil {
			continue
		}
		key := types.NamespacedName{Namespace: wl.Namespace, Name: name}
		holders[key] = append(holders[key], &wl)
	}
	for queue, all := range holders {
		cq := string(all[0].Status.Admission.ClusterQueue)
		verb := "hold"
		if len(all) == 1 {
			verb = "holds"
		}
		h := about("LocalQueue", queue.Namespace, queue.Name, "count", show.Count(len(all), "Workload"), "hold", verb, "clusterqueue", cq)
		h.Commands = []string{"kubectl edit clusterqueue " + cq}
		for _, g := range f.grants() {
			if g.kind == "clusterqueue" && g.name == cq {
				more := g.Quota.NominalQuota.DeepCopy()
				more.Add(resource.MustParse("1"))
				change := func(amount resource.Quantity) string {
					return patchCommand(g.kind, g.name, "replace", g.Path+"/nominalQuota", amount.String())
				}
				h.Commands = []string{change(more), change(g.Quota.NominalQuota)}
				break
			}
		}
		found(h)
	}
}

// inactiveClusterQueues finds ClusterQueues that admit nothing, and tells why.
func inactiveClusterQueues(f *Facts, found func(hit)) {
	for _, cq := range f.ClusterQueues {
		stopped, values := stopped(cq.Spec.StopPolicy)
		switch condition := inventory.Inactive(&cq); {
		case !cq.DeletionTimestamp.IsZero(): // Nobody starts it again.
			found(about("ClusterQueue", "", cq.Name).as("ClusterQueueInactive", Warning))
		case stopped:
			found(about("ClusterQueue", "", cq.Name, values...).as("ClusterQueueStopped", Warning))
		case condition != nil:
			found(inactive(&cq, condition))
		}
	}
}

func inactive(cq *kueue.ClusterQueue, active *metav1.Condition) hit {
	values := []any{"make", "Make what is missing", "instead", "take it out of the ClusterQueue", "see", "kubectl get admissionchecks"}
	switch active.Reason {
	case kueue.ClusterQueueActiveReasonFlavorNotFound:
		values = []any{"make", "Make the flavor, for which this gives the nodes there are", "instead", "take it out of the ClusterQueue", "see", generatePools}
	case kueue.ClusterQueueActiveReasonTopologyNotFound:
		values = []any{"make", "Make the Topology that the flavor names", "instead", "use another flavor", "see", "kubectl get topologies,resourceflavors"}
	}
	return about("ClusterQueue", "", cq.Name, append(values, "message", sentence(active.Message))...)
}

// stopped reports whether there is a stopPolicy, which somebody has set on purpose.
func stopped(set *kueue.StopPolicy) (bool, []any) {
	policy, evicted := ptr.Deref(set, kueue.None), ""
	if policy == kueue.HoldAndDrain {
		evicted = ", and those that ran were evicted"
	}
	return policy != kueue.None, []any{"policy", policy, "evicted", evicted}
}

// unmanagedQueues finds namespaces with queues that Kueue leaves alone.
func unmanagedQueues(f *Facts, found func(hit)) {
	_, settings, _ := f.settingsInForce()
	effect := ""
	if pod, _ := kueueconfig.Behind(f.configMap(kueuePart), f.Pods, f.Now); pod != nil {
		effect = "When Kueue is restarted, its TrainJobs run at once, outside of all quotas, whatever queue they name."
	}
	seen := map[string]bool{}
	for _, queue := range f.LocalQueues {
		if selected, known := f.selected(settings.NamespaceSelector(), queue.Namespace); selected || !known || seen[queue.Namespace] {
			continue
		}
		seen[queue.Namespace] = true
		h := about("Namespace", "", queue.Namespace, "queue", queue.Name, "selector", metav1.FormatLabelSelector(settings.ManagedJobsNamespaceSelector),
			"label", cmp.Or(settings.LabelCommand(queue.Namespace), fmt.Sprintf("kubectl -n %s delete localqueue %s", queue.Namespace, queue.Name)))
		h.Effect = effect
		found(h)
	}
}
