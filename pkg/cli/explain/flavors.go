// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Flavors returns a verdict for every PodSet and every flavor of the job's ClusterQueue, in Kueue's order.
func Flavors(f *Facts) []Verdict {
	cq := f.clusterQueue()
	if cq == nil {
		return nil
	}
	a := &assigner{Facts: f, cq: cq, counts: ptr.Deref(f.Kueue, configapi.Configuration{}).Resources, taken: map[kueuelib.FlavorResource]kueuelib.Amount{}}
	var verdicts []Verdict
	for i := range f.PodSets {
		verdicts = append(verdicts, a.podSet(&f.PodSets[i])...)
	}
	return verdicts
}

// assigner goes through the PodSets as Kueue does, for which the earlier ones take part of the quota.
type assigner struct {
	*Facts
	cq     *kueue.ClusterQueue
	counts *configapi.Resources // what Kueue counts by
	taken  map[kueuelib.FlavorResource]kueuelib.Amount
}

func (a *assigner) podSet(ps *kueue.PodSet) []Verdict {
	requests := requestsOf(ps, a.counts)
	verdicts := a.withoutFlavor(ps, requests)
	if len(requests) == 0 && len(verdicts) > 0 {
		return verdicts
	}
	for i, group := range a.cq.Spec.ResourceGroups {
		wanted := maps.Clone(requests)
		maps.DeleteFunc(wanted, func(name corev1.ResourceName, _ int64) bool { return !slices.Contains(group.CoveredResources, name) })
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

// withoutFlavor is about what no flavor of the ClusterQueue has, and a PodSet that asks for nothing, so that it gets no flavor.
func (a *assigner) withoutFlavor(ps *kueue.PodSet, requests map[corev1.ResourceName]int64) []Verdict {
	v := Verdict{PodSet: string(ps.Name), group: -1}
	// One of a group has the topology of the group.
	grouped := ps.TopologyRequest != nil && ps.TopologyRequest.PodSetGroupName != nil
	if len(requests) == 0 && ps.Count > 0 && !grouped && (kueuelib.IsExplicitlyRequestingTopology(*ps) || a.Cluster.onlyTopologies(a.cq)) {
		v.Amounts = []Amount{{Resource: corev1.ResourcePods, Requested: int64(ps.Count)}}
		v.Reasons = []Reason{*lasts(NoRequests, fmt.Sprintf("replicated job %s asks for nothing, and Kueue admits no such pods by a topology", ps.Name),
			"have the pods of replicated job %s ask for something that ClusterQueue %s has, such as some cpu, or have flavors without a topology there: kubectl trainjob pools generate makes such",
			ps.Name, a.cq.Name)}
	}
	var covered []corev1.ResourceName
	for _, group := range a.cq.Spec.ResourceGroups {
		covered = append(covered, group.CoveredResources...)
	}
	for _, name := range sortedResources(requests) {
		if slices.Contains(covered, name) || kueuelib.IgnoresUndeclared(a.counts) {
			continue
		}
		v.Amounts = append(v.Amounts, Amount{Resource: name, Requested: requests[name]})
		v.Reasons = append(v.Reasons, *lasts(NotInQueue, fmt.Sprintf("ClusterQueue %s has no quota for %s", a.cq.Name, name),
			"ask for what it has (%s), or add %s to a resource group of ClusterQueue %s, or take the request out of the job or its runtime",
			strings.Join(kueuelib.Map(covered, func(name *corev1.ResourceName) string { return string(*name) }), ", "), name, a.cq.Name))
	}
	if len(v.Reasons) == 0 {
		return nil
	}
	return []Verdict{v}
}

// take reserves the first flavor that fits, for the PodSets that follow.
func (a *assigner) take(verdicts []Verdict) {
	v := find(verdicts, func(v *Verdict) bool { return v.Fits })
	if v == nil {
		return
	}
	for _, amount := range v.Amounts {
		at := kueuelib.FlavorResource{Flavor: kueue.ResourceFlavorReference(v.Flavor), Resource: amount.Resource}
		a.taken[at] = a.taken[at].AddInt64(amount.Requested)
	}
}

// verdict looks at one flavor in Kueue's order: whether its nodes are right, then whether there is quota.
func (a *assigner) verdict(ps *kueue.PodSet, name kueue.ResourceFlavorReference, wanted map[corev1.ResourceName]int64) Verdict {
	v := Verdict{PodSet: string(ps.Name), Flavor: string(name), Done: ps.Count == 0 && doneOf(a.Workload, ps.Name) > 0, Assigned: a.Workload != nil && assigns(a.Workload.Status.Admission, ps.Name, name)}
	for _, resource := range sortedResources(wanted) {
		amount, reason := a.quota(kueuelib.FlavorResource{Flavor: name, Resource: resource}, wanted[resource])
		v.Amounts = append(v.Amounts, amount)
		if reason != nil {
			v.Reasons = append(v.Reasons, *reason)
			v.useless = v.useless || reason.Code == TooMuch && amount.Max == 0
		}
	}
	if v.Done {
		v.Fits = true
		return v
	}
	if !v.useless { // Else nothing else matters.
		unfit := a.nodes(ps, name)
		// Kueue looks for room where there is quota.
		if unfit != nil && (len(v.Reasons) == 0 || unfit.Code != Topology || unfit.Lasting) {
			v.Reasons = slices.Insert(v.Reasons, 0, *unfit)
		}
	}
	v.Reasons = append(v.Reasons, a.checks(name)...)
	if v.Assigned {
		v.Reasons = slices.DeleteFunc(v.Reasons, func(r Reason) bool { return !r.Warning })
	}
	v.Fits = v.refusal().Code == ""
	return v
}

func assigns(admission *kueue.Admission, podSet kueue.PodSetReference, flavor kueue.ResourceFlavorReference) bool {
	return admission != nil && slices.ContainsFunc(admission.PodSetAssignments, func(psa kueue.PodSetAssignment) bool {
		return psa.Name == podSet && slices.Contains(slices.Collect(maps.Values(psa.Flavors)), flavor)
	})
}

// quota compares what is requested with what there is. Who may not see all Workloads cannot tell what is free.
func (a *assigner) quota(at kueuelib.FlavorResource, requested int64) (Amount, *Reason) {
	name, spec := kueue.ClusterQueueReference(a.cq.Name), inventory.QuotaOf(a.cq.Spec.ResourceGroups, at.Flavor, at.Resource)
	quota := kueuelib.ResourceValue(at.Resource, ptr.Deref(spec, kueue.ResourceQuota{}).NominalQuota)
	amount := Amount{Resource: at.Resource, Requested: requested, Quota: quota}
	now, unlimited := a.Cluster.now.ClusterQueue(name), a.Cluster.unlimited.ClusterQueue(name)
	if now == nil {
		return amount, nil // Inactive: StateOf says why.
	}
	amount.Max = now.PotentialAvailable(at).Int64()
	left := max(0, now.Available(at).Sub(a.taken[at]).Int64())
	if a.Cluster.Saw(inventory.Workloads) {
		amount.Free = &left
	}
	together := a.taken[at].AddInt64(requested) // The job never starts without all of its PodSets.
	switch {
	case together.CmpInt64(amount.Max) > 0 && unlimited.PotentialAvailable(at).Cmp(together) >= 0:
		r := a.borrowingLimit(at, amount, spec)
		r.Lasting, r.Remedy = true, r.Remedy+", or "+a.ask("less")
		return amount, r
	case together.CmpInt64(amount.Max) > 0:
		return amount, a.tooMuch(at, amount, together.Int64()-amount.Max)
	case requested <= left || amount.Free == nil:
		return amount, nil
	case unlimited.Available(at).Sub(a.taken[at]).CmpInt64(requested) >= 0:
		r := a.borrowingLimit(at, amount, spec)
		r.Remedy = "wait, or " + r.Remedy
		return amount, r
	}
	return amount, &Reason{Code: InUse, Remedy: a.quotaRemedy(),
		Message: fmt.Sprintf("%s of %s are free", number(at.Resource, left), quantity(at.Resource, amount.Max))}
}

func (a *assigner) tooMuch(at kueuelib.FlavorResource, of Amount, missing int64) *Reason {
	message := fmt.Sprintf("ClusterQueue %s has %s at the most", a.cq.Name, quantity(at.Resource, of.Max))
	if of.Max == 0 {
		message = fmt.Sprintf("ClusterQueue %s has no quota of it for %s", a.cq.Name, at.Resource)
	}
	return lasts(TooMuch, message, "%s, or raise the nominalQuota of flavor %s in ClusterQueue %s by %s",
		a.ask("less (fewer nodes, or less per node)"), at.Flavor, a.cq.Name, quantity(at.Resource, missing))
}

// ask is how to ask for something else: a job that there is cannot change what it asks for in spec.trainer.
func (f *Facts) ask(what string) string {
	if f.Job.UID == "" {
		return "ask for " + what
	}
	return "create the job again, since spec.trainer cannot change, and ask for " + what
}

func (a *assigner) borrowingLimit(at kueuelib.FlavorResource, of Amount, spec *kueue.ResourceQuota) *Reason {
	limit := kueuelib.ResourceValue(at.Resource, ptr.Deref(spec.BorrowingLimit, spec.NominalQuota))
	return &Reason{Code: Borrowing,
		Message: fmt.Sprintf("ClusterQueue %s has %s of its own and may borrow no more than %s, though cohort %s has more",
			a.cq.Name, quantity(at.Resource, of.Quota), quantity(at.Resource, limit), a.cq.Spec.CohortName),
		Remedy: fmt.Sprintf("raise the borrowingLimit of flavor %s in ClusterQueue %s", at.Flavor, a.cq.Name)}
}

func (f *Facts) quotaRemedy() string {
	text := "wait until others in ClusterQueue " + string(f.clusterQueueName())
	if cohort := f.clusterQueue().Spec.CohortName; cohort != "" {
		text += fmt.Sprintf(" and cohort %s", cohort)
	}
	return text + " have ended" + f.raise()
}

// sortedResources has the GPUs first: they are what is scarce.
func sortedResources[T any](amounts map[corev1.ResourceName]T) []corev1.ResourceName {
	names := slices.Sorted(maps.Keys(amounts))
	return append(picked(names, gpu.IsResource), slices.DeleteFunc(names, gpu.IsResource)...)
}

func (a *assigner) checks(flavor kueue.ResourceFlavorReference) []Reason {
	var reasons []Reason
	for _, rule := range inventory.Checks(a.cq) {
		if len(rule.OnFlavors) > 0 && !slices.Contains(rule.OnFlavors, flavor) {
			continue
		}
		if r := a.Cluster.checkInactive(rule.Name); r != nil {
			reasons = append(reasons, *r)
		}
	}
	return reasons
}

// checkInactive tells why nobody looks after an admission check; nil when somebody does, or where that cannot be seen.
func (c *Cluster) checkInactive(name kueue.AdmissionCheckReference) *Reason {
	check, why := inventory.Find(c.AdmissionChecks, "", string(name)), "it does not exist"
	if check != nil {
		switch active := apimeta.FindStatusCondition(check.Status.Conditions, kueue.AdmissionCheckActive); {
		case active == nil:
			why = fmt.Sprintf("its controller %s has not answered", check.Spec.ControllerName)
		case active.Status == metav1.ConditionTrue:
			return nil
		default:
			why = active.Message
		}
	}
	if !c.Saw(inventory.AdmissionChecks) {
		return nil
	}
	return lasts(Check, fmt.Sprintf("admission check %s is not active: %s", name, why),
		"see that the controller of AdmissionCheck %s runs: kubectl describe admissioncheck %s", name, name)
}
