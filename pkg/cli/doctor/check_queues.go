// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/held"
)

// localQueuesToNowhere finds LocalQueues whose ClusterQueue does not exist.
func localQueuesToNowhere(f *Facts) []Finding {
	var findings []Finding
	for i := range f.LocalQueues {
		q := &f.LocalQueues[i]
		if f.ClusterQueue(q.Spec.ClusterQueue) != nil {
			continue
		}
		findings = append(findings, Finding{
			Severity: Error, Reason: "LocalQueueToNowhere", Object: object("LocalQueue", q.Namespace, q.Name),
			Problem:  fmt.Sprintf("Its ClusterQueue %s does not exist.", q.Spec.ClusterQueue),
			Effect:   "TrainJobs in this queue wait for ever.",
			Advice:   "Make the ClusterQueue, or, since a LocalQueue cannot change its ClusterQueue, delete this one and make it again:",
			Commands: []string{fmt.Sprintf("kubectl -n %s delete localqueue %s", q.Namespace, q.Name)},
		})
	}
	return findings
}

// inactiveClusterQueues finds ClusterQueues that admit nothing, and tells why.
func inactiveClusterQueues(f *Facts) []Finding {
	var findings []Finding
	for i := range f.ClusterQueues {
		cq := &f.ClusterQueues[i]
		if policy := ptr.Deref(cq.Spec.StopPolicy, kueue.None); policy != kueue.None {
			findings = append(findings, stopped("ClusterQueue", "", cq.Name, policy))
			continue
		}
		if condition := inventory.Inactive(cq); condition != nil {
			findings = append(findings, inactive(cq, condition))
		}
	}
	return findings
}

func inactive(cq *kueue.ClusterQueue, active *metav1.Condition) Finding {
	finding := Finding{
		Severity: Error, Reason: "ClusterQueueInactive", Object: object("ClusterQueue", "", cq.Name),
		Problem:  fmt.Sprintf("The ClusterQueue is not active: %s", sentence(active.Message)),
		Effect:   "TrainJobs in its queues wait for ever.",
		Commands: []string{"kubectl edit clusterqueue " + cq.Name},
	}
	switch active.Reason {
	case kueue.ClusterQueueActiveReasonTerminating:
		finding.Severity = Warning
		finding.Advice = "It goes when the last Workload has given its quota back. Who holds it:"
		finding.Commands = []string{"kubectl get workloads -A -o wide"}
	case kueue.ClusterQueueActiveReasonFlavorNotFound:
		finding.Advice = "Make the flavor, for which this gives the nodes there are, or take it out of the ClusterQueue:"
		finding.Commands = append([]string{generatePools}, finding.Commands...)
	case kueue.ClusterQueueActiveReasonTopologyNotFound:
		finding.Advice = "Make the Topology that the flavor names, or use another flavor:"
		finding.Commands = append([]string{"kubectl get topologies,resourceflavors"}, finding.Commands...)
	default:
		finding.Advice = "Make what is missing, or take it out of the ClusterQueue:"
		finding.Commands = append([]string{"kubectl get admissionchecks"}, finding.Commands...)
	}
	return finding
}

// queuesOfHeld finds LocalQueues by the name that keeps TrainJobs out of another one: they admit what is held.
func queuesOfHeld(f *Facts) []Finding {
	var findings []Finding
	for i := range f.LocalQueues {
		q := &f.LocalQueues[i]
		if queue, is := held.From(q.Name); is {
			findings = append(findings, Finding{
				Severity: Warning, Reason: "LocalQueueOfHeld", Object: object("LocalQueue", q.Namespace, q.Name),
				Problem:  fmt.Sprintf("By this name kubectl trainjob hold and stop keep TrainJobs out of LocalQueue %s.", queue),
				Effect:   "TrainJobs that are held or stopped are admitted by it.",
				Commands: []string{fmt.Sprintf("kubectl -n %s delete localqueue %s", q.Namespace, q.Name)},
			})
		}
	}
	return findings
}

// stoppedLocalQueues finds LocalQueues that an admin has stopped.
func stoppedLocalQueues(f *Facts) []Finding {
	var findings []Finding
	for i := range f.LocalQueues {
		q := &f.LocalQueues[i]
		if policy := ptr.Deref(q.Spec.StopPolicy, kueue.None); policy != kueue.None {
			findings = append(findings, stopped("LocalQueue", q.Namespace, q.Name, policy))
		}
	}
	return findings
}

// stopped is about a queue with a stopPolicy, which somebody has set on purpose.
func stopped(kind, namespace, name string, policy kueue.StopPolicy) Finding {
	in := ""
	if namespace != "" {
		in = " -n " + namespace
	}
	finding := Finding{
		Severity: Warning, Reason: kind + "Stopped", Object: object(kind, namespace, name),
		Problem:  fmt.Sprintf("The %s was stopped: its stopPolicy is %s.", kind, policy),
		Effect:   "No TrainJob in it is admitted.",
		Commands: []string{fmt.Sprintf(`kubectl%s patch %s %s --type=merge -p '{"spec":{"stopPolicy":"None"}}'`, in, strings.ToLower(kind), name)},
	}
	if policy == kueue.HoldAndDrain {
		finding.Effect = "No TrainJob in it is admitted, and those that ran were evicted."
	}
	return finding
}
