// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Code says why a flavor is skipped.
type Code string

// The codes of reasons. Scripts rely on them.
const (
	// NotInQueue: the ClusterQueue has no quota for a resource in any flavor.
	NotInQueue Code = "ResourceNotInQueue"
	// FlavorMissing: the ClusterQueue names a flavor that does not exist.
	FlavorMissing Code = "FlavorMissing"
	// Taint: the pods do not tolerate a taint of the flavor, or of its nodes.
	Taint Code = "TaintNotTolerated"
	// Selector: node selector or affinity name other nodes than the flavor's.
	Selector Code = "SelectorMismatch"
	// NoNode: the flavor picks no node.
	NoNode Code = "NoNode"
	// TooMuch: the request is above all that the ClusterQueue can ever have.
	TooMuch Code = "ExceedsQuota"
	// Borrowing: the borrowing limit is in the way.
	Borrowing Code = "BorrowingLimit"
	// InUse: others hold the quota that is missing.
	InUse Code = "QuotaInUse"
	// TooLarge: no node of the flavor has what one pod asks for.
	TooLarge Code = "PodTooLarge"
	// Topology: the topology request does not fit, or the flavor has no such topology.
	Topology Code = "TopologyDoesNotFit"
	// NoRequests: the PodSet asks for nothing, which no topology takes.
	NoRequests Code = "NothingRequested"
	// Check: an admission check of the flavor is not active.
	Check Code = "AdmissionCheckInactive"
)

// Reason is why a flavor is skipped, or what is wrong with it.
type Reason struct {
	Code Code `json:"code"`
	// Message says it in plain words.
	Message string `json:"message"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy,omitempty"`
	// Lasting is set where waiting does not help.
	Lasting bool `json:"lasting"`
	// Warning is set where Kueue does not look, so that the PodSet would get quota, and
	// pods that stay Pending.
	Warning bool `json:"warning,omitempty"`
}

func notInQueue(cq *kueue.ClusterQueue, name corev1.ResourceName) Reason {
	r := Reason{Code: NotInQueue, Lasting: true,
		Message: fmt.Sprintf("ClusterQueue %s has no quota for %s", cq.Name, name),
		Remedy:  fmt.Sprintf("add %s to a resource group of ClusterQueue %s, or take the request out of the job or its runtime", name, cq.Name),
	}
	if meant := alike(cq, name); meant != "" {
		r.Remedy = fmt.Sprintf("did you mean %s? Else %s", meant, r.Remedy)
	}
	return r
}

// alike returns a resource of the ClusterQueue that people may have meant, one letter longer or shorter: gpu for gpus.
func alike(cq *kueue.ClusterQueue, name corev1.ResourceName) corev1.ResourceName {
	for _, group := range cq.Spec.ResourceGroups {
		for _, covered := range group.CoveredResources {
			if len(covered)-len(name) == 1 && strings.HasPrefix(string(covered), string(name)) ||
				len(name)-len(covered) == 1 && strings.HasPrefix(string(name), string(covered)) {
				return covered
			}
		}
	}
	return ""
}

func flavorMissing(cq, flavor string) Reason {
	return Reason{Code: FlavorMissing, Lasting: true,
		Message: fmt.Sprintf("ResourceFlavor %s does not exist", flavor),
		Remedy:  fmt.Sprintf("create ResourceFlavor %s, or take it out of ClusterQueue %s, which admits nothing until then", flavor, cq),
	}
}

func taintOfFlavor(flavor string, ps *kueue.PodSet, taint corev1.Taint) Reason {
	return Reason{Code: Taint, Lasting: true,
		Message: fmt.Sprintf("taint %s of the flavor is not tolerated", taint.ToString()),
		Remedy: fmt.Sprintf("add a toleration of %s to spec.tolerations of ResourceFlavor %s, or to replicated job %s by the runtime or a patch",
			taint.Key, flavor, ps.Name),
	}
}

func taintOfNodes(flavor string, ps *kueue.PodSet, taint corev1.Taint) Reason {
	return Reason{Code: Taint, Lasting: true,
		Message: fmt.Sprintf("taint %s of the flavor's nodes is not tolerated", taint.ToString()),
		Remedy: fmt.Sprintf("add the taint to spec.nodeTaints and a toleration of %s to spec.tolerations of ResourceFlavor %s, or the toleration to replicated job %s",
			taint.Key, flavor, ps.Name),
	}
}

func noNodes(flavor *kueue.ResourceFlavor) Reason {
	return Reason{Code: NoNode, Lasting: true,
		Message: fmt.Sprintf("no node has the flavor's labels %s", labels.Set(flavor.Spec.NodeLabels)),
		Remedy:  fmt.Sprintf("label nodes so, or fix spec.nodeLabels of ResourceFlavor %s; with an autoscaler, nothing", flavor.Name),
	}
}

func podTooLarge(flavor string, ps *kueue.PodSet, name corev1.ResourceName, asked, most int64, largest string) Reason {
	return Reason{Code: TooLarge, Lasting: true,
		Message: fmt.Sprintf("a pod asks for %s, and the largest node of the flavor, %s, has %s", quantity(name, asked), largest, number(name, most)),
		Remedy:  fmt.Sprintf("ask for less per pod of replicated job %s, and for more pods; or add larger nodes to flavor %s", ps.Name, flavor),
	}
}

func topologyOnly(flavor string, ps *kueue.PodSet) Reason {
	return Reason{Code: Topology, Lasting: true,
		Message: "the flavor is for topology-aware scheduling only, which the PodSet does not ask for",
		Remedy:  fmt.Sprintf("annotate the pods of replicated job %s with kueue.x-k8s.io/podset-unconstrained-topology: \"true\" to use flavor %s", ps.Name, flavor),
	}
}

// nothingAsked is for a PodSet that gets no flavor, and so none with a topology.
func nothingAsked(cq *kueue.ClusterQueue, ps *kueue.PodSet) Reason {
	return Reason{Code: NoRequests, Lasting: true,
		Message: fmt.Sprintf("replicated job %s asks for nothing, and Kueue admits no such pods by a topology", ps.Name),
		Remedy: fmt.Sprintf("have the pods of replicated job %s ask for something that ClusterQueue %s has, such as some cpu, or have flavors without a topology there: kubectl trainjob pools generate makes such",
			ps.Name, cq.Name),
	}
}

// noTopology has a remedy only where no other flavor of the queue is for such jobs.
func noTopology(flavor string, ps *kueue.PodSet, others bool) Reason {
	r := Reason{Code: Topology, Lasting: true, Message: "the PodSet asks for a topology, and the flavor has none"}
	if !others {
		r.Remedy = fmt.Sprintf("set spec.topologyName of ResourceFlavor %s, or take the topology annotation from the pods of replicated job %s", flavor, ps.Name)
	}
	return r
}

func noLevel(flavor string, ps *kueue.PodSet, topology string, levels []string, level string) Reason {
	return Reason{Code: Topology, Lasting: true,
		Message: fmt.Sprintf("topology %s of the flavor has no level %s, which the PodSet asks for", topology, level),
		Remedy:  fmt.Sprintf("name one of %s in the annotation of replicated job %s; flavor %s has no other", strings.Join(levels, ", "), ps.Name, flavor),
	}
}

// noRoom has Kueue's own words, which count the nodes and why they do not do.
func (a *assigner) noRoom(why string) Reason {
	return Reason{Code: Topology, Message: why, Remedy: "wait until pods nearby have ended" + a.raise(a.cq)}
}

// neverRoom is for what would not fit on empty nodes; instead is what would, empty for nothing.
func neverRoom(flavor string, ps *kueue.PodSet, why, instead string) Reason {
	r := Reason{Code: Topology, Lasting: true, Message: why,
		Remedy: fmt.Sprintf("%s in the annotation of replicated job %s: it does not fit on flavor %s even when its nodes are empty", instead, ps.Name, flavor)}
	if instead == "" {
		r.Remedy = fmt.Sprintf("ask for fewer or smaller pods of replicated job %s: they do not fit on flavor %s with any topology request, even when its nodes are empty", ps.Name, flavor)
	}
	return r
}

func tooMuch(cq *kueue.ClusterQueue, at kueuelib.FlavorResource, a Amount) Reason {
	message := fmt.Sprintf("ClusterQueue %s has %s at the most", cq.Name, quantity(at.Resource, a.Max))
	if a.Max == 0 {
		message = fmt.Sprintf("ClusterQueue %s has no quota of it for %s", cq.Name, at.Resource)
	}
	return Reason{Code: TooMuch, Lasting: true, Message: message,
		Remedy: fmt.Sprintf("ask for less (fewer nodes, or less per node), or raise the nominalQuota of flavor %s in ClusterQueue %s by %s",
			at.Flavor, cq.Name, quantity(at.Resource, a.Requested-a.Max)),
	}
}

func borrowingLimit(cq *kueue.ClusterQueue, at kueuelib.FlavorResource, a Amount, spec *kueue.ResourceQuota, lasting bool) Reason {
	limit := kueuelib.ResourceValue(at.Resource, ptr.Deref(spec.BorrowingLimit, spec.NominalQuota))
	r := Reason{Code: Borrowing, Lasting: lasting,
		Message: fmt.Sprintf("ClusterQueue %s has %s of its own and may borrow no more than %s, though cohort %s has more",
			cq.Name, quantity(at.Resource, a.Quota), quantity(at.Resource, limit), cq.Spec.CohortName),
		Remedy: fmt.Sprintf("raise the borrowingLimit of flavor %s in ClusterQueue %s, or ask for less", at.Flavor, cq.Name),
	}
	if !lasting {
		r.Remedy = fmt.Sprintf("wait, or raise the borrowingLimit of flavor %s in ClusterQueue %s", at.Flavor, cq.Name)
	}
	return r
}

func (a *assigner) quotaInUse(at kueuelib.FlavorResource, of Amount) Reason {
	return Reason{Code: InUse,
		Message: fmt.Sprintf("%s of %s are free", number(at.Resource, ptr.Deref(of.Free, 0)), quantity(at.Resource, of.Max)),
		Remedy:  a.quotaRemedy(a.cq),
	}
}

func (f *Facts) quotaRemedy(cq *kueue.ClusterQueue) string {
	return fmt.Sprintf("wait until others in ClusterQueue %s%s have ended%s", cq.Name, inCohort(cq), f.raise(cq))
}

func inCohort(cq *kueue.ClusterQueue) string {
	if cq.Spec.CohortName == "" {
		return ""
	}
	return fmt.Sprintf(" and cohort %s", cq.Spec.CohortName)
}

func checkInactive(check, why string) Reason {
	return Reason{Code: Check, Lasting: true,
		Message: fmt.Sprintf("admission check %s is not active: %s", check, why),
		Remedy:  fmt.Sprintf("see that the controller of AdmissionCheck %s runs: kubectl describe admissioncheck %s", check, check),
	}
}

// inactive tells why nobody looks after an admission check; empty when somebody does.
func inactive(check *kueue.AdmissionCheck) string {
	if check == nil {
		return "it does not exist"
	}
	active := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive)
	switch {
	case active == nil:
		return fmt.Sprintf("its controller %s has not answered", check.Spec.ControllerName)
	case active.Status != "True":
		return active.Message
	}
	return ""
}
