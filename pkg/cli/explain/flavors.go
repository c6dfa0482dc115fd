// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Verdict says what a flavor can do for a PodSet.
type Verdict struct {
	PodSet string `json:"podSet"`
	Flavor string `json:"flavor"`
	// Assigned is set where the PodSet has quota of this flavor.
	Assigned bool `json:"assigned"`
	// Fits is set where Kueue could give it quota of this flavor now.
	Fits bool `json:"fits"`
	// Preempts is set where Kueue would give it quota of this flavor by stopping others.
	Preempts bool     `json:"preempts,omitempty"`
	Amounts  []Amount `json:"resources,omitempty"`
	// Reasons are why it does not fit, and what its pods would run into if it does.
	Reasons []Reason `json:"reasons,omitempty"`

	// group is the resource group of the ClusterQueue; -1 for what is in none.
	group int
	// useless is set where the flavor has nothing of a resource that the PodSet asks for.
	useless bool
}

// Amount is a resource in the quota of a flavor, as far as a ClusterQueue may use it.
type Amount struct {
	Resource corev1.ResourceName `json:"resource"`
	// Requested by all pods of the PodSet.
	Requested int64 `json:"requested"`
	// Free is unreserved, borrowed quota included; nil where the user may not see all
	// Workloads. Quota is the ClusterQueue's own; Max is
	// what it gets with all that it may borrow. CPU is in thousandths.
	Free  *int64 `json:"free,omitempty"`
	Quota int64  `json:"quota"`
	Max   int64  `json:"max"`
}

// Flavors returns a verdict for every PodSet and every flavor of the job's ClusterQueue in
// Kueue's order: PodSets as they come, flavors as the ClusterQueue has them.
func Flavors(f *Facts) []Verdict {
	cq := f.clusterQueue()
	if cq == nil {
		return nil
	}
	a := &assigner{Facts: f, cq: cq, taken: map[kueuelib.FlavorResource]kueuelib.Amount{}}
	var verdicts []Verdict
	for i := range f.PodSets {
		verdicts = append(verdicts, a.podSet(&f.PodSets[i])...)
	}
	return verdicts
}

// assigner goes through the PodSets as Kueue does, for which the earlier ones take part of
// the quota.
type assigner struct {
	*Facts
	cq    *kueue.ClusterQueue
	taken map[kueuelib.FlavorResource]kueuelib.Amount
}

func (a *assigner) podSet(ps *kueue.PodSet) []Verdict {
	requests := requestsOf(ps)
	if len(requests) == 0 && a.needsTopology(ps) {
		pods := Amount{Resource: corev1.ResourcePods, Requested: int64(ps.Count)}
		return []Verdict{{PodSet: string(ps.Name), Amounts: []Amount{pods}, Reasons: []Reason{nothingAsked(a.cq, ps)}, group: -1}}
	}
	verdicts := a.uncovered(ps, requests)
	for i, group := range a.cq.Spec.ResourceGroups {
		wanted := covered(requests, group.CoveredResources)
		if slices.Contains(group.CoveredResources, corev1.ResourcePods) {
			wanted[corev1.ResourcePods] = int64(ps.Count)
		}
		if len(wanted) == 0 {
			continue
		}
		var inGroup []Verdict
		for _, flavor := range group.Flavors {
			v := a.verdict(ps, flavor.Name, wanted)
			v.group = i
			inGroup = append(inGroup, v)
		}
		a.take(inGroup)
		verdicts = append(verdicts, inGroup...)
	}
	return verdicts
}

func covered(requests map[corev1.ResourceName]int64, names []corev1.ResourceName) map[corev1.ResourceName]int64 {
	found := map[corev1.ResourceName]int64{}
	for _, name := range names {
		if amount, ok := requests[name]; ok {
			found[name] = amount
		}
	}
	return found
}

// uncovered returns a verdict without a flavor for what no flavor of the ClusterQueue has.
func (a *assigner) uncovered(ps *kueue.PodSet, requests map[corev1.ResourceName]int64) []Verdict {
	v := Verdict{PodSet: string(ps.Name), group: -1}
	for _, name := range sortedResources(requests) {
		if !slices.ContainsFunc(a.cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool { return slices.Contains(g.CoveredResources, name) }) {
			v.Amounts = append(v.Amounts, Amount{Resource: name, Requested: requests[name]})
			v.Reasons = append(v.Reasons, notInQueue(a.cq, name))
		}
	}
	if len(v.Reasons) == 0 {
		return nil
	}
	return []Verdict{v}
}

// take reserves the first flavor that fits, for the PodSets that follow.
func (a *assigner) take(verdicts []Verdict) {
	first := slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Fits })
	if first < 0 {
		return
	}
	for _, amount := range verdicts[first].Amounts {
		at := kueuelib.FlavorResource{Flavor: kueue.ResourceFlavorReference(verdicts[first].Flavor), Resource: amount.Resource}
		a.taken[at] = a.taken[at].AddInt64(amount.Requested)
	}
}

// verdict looks at one flavor in Kueue's order: whether its nodes are right, then whether
// there is quota.
func (a *assigner) verdict(ps *kueue.PodSet, name kueue.ResourceFlavorReference, wanted map[corev1.ResourceName]int64) Verdict {
	v := Verdict{PodSet: string(ps.Name), Flavor: string(name), Assigned: a.Workload != nil && assigns(a.Workload.Status.Admission, ps.Name, name)}
	for _, resource := range sortedResources(wanted) {
		amount, reason := a.quota(kueuelib.FlavorResource{Flavor: name, Resource: resource}, wanted[resource])
		v.Amounts = append(v.Amounts, amount)
		if reason != nil {
			v.Reasons = append(v.Reasons, *reason)
			v.useless = v.useless || reason.Code == TooMuch && amount.Max == 0
		}
	}
	flavor := a.Cluster.Flavor(name)
	switch {
	case v.useless:
		// Nothing else matters.
	case flavor == nil && a.Cluster.Saw(flavors):
		v.Reasons = append([]Reason{flavorMissing(a.cq.Name, string(name))}, v.Reasons...)
	case flavor != nil:
		unfit := a.nodes(ps, flavor)
		if len(v.Reasons) > 0 {
			// Kueue looks for room where there is quota.
			unfit = slices.DeleteFunc(unfit, func(r Reason) bool { return r.Code == Topology && !r.Lasting })
		}
		v.Reasons = append(unfit, v.Reasons...)
	}
	v.Reasons = append(v.Reasons, a.checks(name)...)
	if v.Assigned {
		v.Reasons = slices.DeleteFunc(v.Reasons, func(r Reason) bool { return !r.Warning })
	}
	v.Fits = !slices.ContainsFunc(v.Reasons, func(r Reason) bool { return !r.Warning })
	return v
}

// assigns reports whether an admission gives a PodSet a flavor.
func assigns(admission *kueue.Admission, podSet kueue.PodSetReference, flavor kueue.ResourceFlavorReference) bool {
	return admission != nil && slices.ContainsFunc(admission.PodSetAssignments, func(psa kueue.PodSetAssignment) bool {
		return psa.Name == podSet && slices.Contains(slices.Collect(maps.Values(psa.Flavors)), flavor)
	})
}

// quota compares what is requested with what there is. Without a look at the Workloads
// nobody can tell what is free, only what there could be.
func (a *assigner) quota(at kueuelib.FlavorResource, requested int64) (Amount, *Reason) {
	name, spec := kueue.ClusterQueueReference(a.cq.Name), quotaFor(a.cq, at)
	amount := Amount{Resource: at.Resource, Requested: requested}
	if spec != nil {
		amount.Quota = kueuelib.ResourceValue(at.Resource, spec.NominalQuota)
	}
	now, unlimited := a.Cluster.now.ClusterQueue(name), a.Cluster.unlimited.ClusterQueue(name)
	if now == nil {
		return amount, nil // Inactive: StateOf says why.
	}
	amount.Max = now.PotentialAvailable(at).Int64()
	left := max(0, now.Available(at).Sub(a.taken[at]).Int64())
	if a.Cluster.Saw(workloads) {
		amount.Free = &left
	}
	switch {
	case requested > amount.Max && unlimited.PotentialAvailable(at).CmpInt64(requested) >= 0:
		return amount, new(borrowingLimit(a.cq, at, amount, spec, true))
	case requested > amount.Max:
		return amount, new(tooMuch(a.cq, at, amount))
	case requested <= left || amount.Free == nil:
		return amount, nil
	case unlimited.Available(at).Sub(a.taken[at]).CmpInt64(requested) >= 0:
		return amount, new(borrowingLimit(a.cq, at, amount, spec, false))
	}
	return amount, new(a.quotaInUse(at, amount))
}

// nodes looks whether the pods may run on the flavor's nodes. Only the first reason
// counts, as for Kueue.
func (a *assigner) nodes(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) []Reason {
	if r := a.topologyKind(ps, flavor); r != nil {
		return []Reason{*r}
	}
	pod := &ps.Template.Spec
	tolerations := slices.Concat(pod.Tolerations, flavor.Spec.Tolerations)
	if taint := inventory.Untolerated(flavor.Spec.NodeTaints, tolerations); taint != nil {
		return []Reason{taintOfFlavor(flavor.Name, ps, *taint)}
	}
	if selects, err := inventory.Selects(pod, flavor); !selects || err != nil {
		return []Reason{a.selectorMismatch(flavor, ps)}
	}
	if !a.Cluster.Saw(nodes) {
		return nil
	}
	if r := a.nodeFor(ps, flavor, tolerations); r != nil && !a.Cluster.LeadsAway(a.cq, kueue.ResourceFlavorReference(flavor.Name)) {
		if !a.places(flavor) {
			r.Warning, r.Message = true, r.Message+": Kueue does not look at that, so pods stay Pending"
		}
		return []Reason{*r}
	}
	if r := a.topologyFit(ps, flavor); r != nil {
		return []Reason{*r}
	}
	return nil
}

// nodeFor looks whether any node of the flavor is what the scheduler would take.
func (a *assigner) nodeFor(ps *kueue.PodSet, flavor *kueue.ResourceFlavor, tolerations []corev1.Toleration) *Reason {
	found := a.Cluster.NodesOf(flavor)
	if len(found) == 0 {
		return new(noNodes(flavor))
	}
	var taint *corev1.Taint
	var usable []*corev1.Node
	for _, node := range found {
		if !matches(&ps.Template.Spec, node.Labels) {
			continue
		}
		if t := inventory.Untolerated(node.Spec.Taints, tolerations); t != nil {
			taint = t
			continue
		}
		usable = append(usable, node)
	}
	if len(usable) > 0 {
		return tooLarge(ps, flavor.Name, usable)
	}
	if taint != nil {
		return new(taintOfNodes(flavor.Name, ps, *taint))
	}
	return new(a.selectorWithoutNode(flavor.Name, found, ps))
}

// tooLarge looks whether one pod is more than every node has, were it empty.
func tooLarge(ps *kueue.PodSet, flavor string, on []*corev1.Node) *Reason {
	perPod := podSetOf(ps).PerPod
	names := sortedResources(perPod)
	asked := func(name corev1.ResourceName) int64 { return kueuelib.ResourceValue(name, perPod[name]) }
	for _, node := range on {
		if !slices.ContainsFunc(names, func(name corev1.ResourceName) bool { return asked(name) > amountOf(node, name) }) {
			return nil
		}
	}
	for _, name := range names {
		largest := slices.MaxFunc(on, func(a, b *corev1.Node) int { return cmp.Compare(amountOf(a, name), amountOf(b, name)) })
		if most := amountOf(largest, name); asked(name) > most {
			return new(podTooLarge(flavor, ps, name, asked(name), most, largest.Name))
		}
	}
	return nil
}

func amountOf(node *corev1.Node, name corev1.ResourceName) int64 {
	return kueuelib.ResourceValue(name, node.Status.Allocatable[name])
}

// matches reports whether a pod's node selector and required affinity take a node with
// these labels. An affinity that cannot be read takes none, as for the scheduler.
func matches(pod *corev1.PodSpec, labels map[string]string) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *pod}).Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
	return ok && err == nil
}

// checks returns the admission checks of a flavor that nobody looks after.
func (a *assigner) checks(flavor kueue.ResourceFlavorReference) []Reason {
	if a.cq.Spec.AdmissionChecksStrategy == nil || !a.Cluster.Saw(checks) {
		return nil
	}
	var reasons []Reason
	for _, rule := range a.cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if len(rule.OnFlavors) > 0 && !slices.Contains(rule.OnFlavors, flavor) {
			continue
		}
		if why := inactive(inventory.Find(a.Cluster.AdmissionChecks, "", string(rule.Name))); why != "" {
			reasons = append(reasons, checkInactive(string(rule.Name), why))
		}
	}
	return reasons
}

// sortedResources has the GPUs first: they are what is scarce.
func sortedResources[T any](amounts map[corev1.ResourceName]T) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(amounts))
	for name := range amounts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b corev1.ResourceName) int {
		if gpu.IsResource(a) != gpu.IsResource(b) {
			if gpu.IsResource(a) {
				return -1
			}
			return 1
		}
		return cmp.Compare(a, b)
	})
	return names
}
