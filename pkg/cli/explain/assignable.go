// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// assignable names the flavors that take all PodSets now, in words; not ok when a PodSet
// finds none in one of the ClusterQueue's resource groups.
func assignable(podSets []kueue.PodSet, verdicts []Verdict) (assignment string, ok bool) {
	if _, refused := refusals(podSets, verdicts); refused {
		return "", false
	}
	var parts []string
	for i := range podSets {
		if names := flavorsOf(verdicts, string(podSets[i].Name)); len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s on flavor %s", podSets[i].Name, strings.Join(names, " and ")))
		}
	}
	if len(parts) == 0 {
		return "it needs no flavor", true
	}
	return strings.Join(parts, ", "), true
}

// flavorsOf returns the first flavor of each resource group that takes a PodSet.
func flavorsOf(verdicts []Verdict, podSet string) []string {
	var names []string
	done := -1
	for _, v := range verdicts {
		if v.PodSet == podSet && v.Fits && v.group != done {
			names, done = append(names, v.Flavor), v.group
		}
	}
	return names
}

// refusals returns the verdicts on the first PodSet that finds no flavor in a resource group.
func refusals(podSets []kueue.PodSet, verdicts []Verdict) ([]Verdict, bool) {
	for i := range podSets {
		var of []Verdict
		for _, v := range verdicts {
			if v.PodSet == string(podSets[i].Name) {
				of = append(of, v)
			}
		}
		for len(of) > 0 {
			group := of[0].group
			inGroup, rest := split(of, func(v Verdict) bool { return v.group == group })
			if !slices.ContainsFunc(inGroup, func(v Verdict) bool { return v.Fits }) {
				return inGroup, true
			}
			of = rest
		}
	}
	return nil, false
}

func split[T any](items []T, wanted func(T) bool) (yes, no []T) {
	for _, item := range items {
		if wanted(item) {
			yes = append(yes, item)
		} else {
			no = append(no, item)
		}
	}
	return yes, no
}

// lacking tells in short what stands against the first PodSet that finds no flavor. What
// time may bring counts more than what only people can change.
func lacking(podSets []kueue.PodSet, verdicts []Verdict) State {
	against, _ := refusals(podSets, verdicts)
	against = useful(against)
	var parts []string
	best, cause := Reason{Lasting: true}, ""
	for _, v := range against {
		r := v.refusal()
		parts = append(parts, brief(v, r))
		if best.Code == "" || best.Lasting && !r.Lasting {
			best, cause = r, causeOf(v, r)
		}
	}
	return State{Reason: string(best.Code), Message: strings.Join(parts, "; "), Remedy: best.Remedy, Cause: cause, Stuck: best.Lasting}
}

// useful leaves out flavors that have nothing for a PodSet, unless it has no other.
func useful(verdicts []Verdict) []Verdict {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool {
		return v.useless && slices.ContainsFunc(verdicts, func(other Verdict) bool {
			return other.PodSet == v.PodSet && other.group == v.group && !other.useless
		})
	})
}

// causeOf leaves amounts out: more quota of a flavor helps all who lack it.
func causeOf(v Verdict, r Reason) string {
	if slices.Contains([]Code{TooMuch, Borrowing, InUse}, r.Code) {
		return v.Flavor
	}
	return r.Message
}

// refusal is the first reason that counts for Kueue, one that lasts before others.
func (v Verdict) refusal() Reason {
	hard, _ := split(v.Reasons, func(r Reason) bool { return !r.Warning })
	lasting, _ := split(hard, func(r Reason) bool { return r.Lasting })
	return slices.Concat(lasting, hard, []Reason{{}})[0]
}

// brief is a reason as part of a sentence.
func brief(v Verdict, r Reason) string {
	flavor := "flavor " + v.Flavor
	switch r.Code {
	case NotInQueue, FlavorMissing, NoRequests:
		return r.Message
	case Selector:
		return flavor + " is not what its node selector asks for"
	}
	a := find(v.Amounts, func(a *Amount) bool { return a.Requested > ptr.Deref(a.Free, a.Max) })
	switch {
	case r.Code == InUse && a != nil:
		return fmt.Sprintf("%s has %s of %s free", flavor, number(a.Resource, ptr.Deref(a.Free, 0)), quantity(a.Resource, a.Max))
	case r.Code == TooMuch && a != nil && a.Max == 0:
		return flavor + " has no quota for it"
	case r.Code == TooMuch && a != nil:
		return fmt.Sprintf("%s has %s at the most for it", flavor, quantity(a.Resource, a.Max))
	case r.Code == Borrowing && a != nil:
		return fmt.Sprintf("%s stops at the borrowing limit (%s at most)", flavor, quantity(a.Resource, a.Max))
	}
	return flavor + ": " + r.Message
}

// warnedOf returns what the pods would run into on the flavors that Kueue would take, or nil.
func warnedOf(podSets []kueue.PodSet, verdicts []Verdict) *Reason {
	for i := range podSets {
		name := string(podSets[i].Name)
		for _, flavor := range flavorsOf(verdicts, name) {
			v := find(verdicts, func(v *Verdict) bool { return v.PodSet == name && v.Flavor == flavor })
			if len(v.Reasons) > 0 {
				return &v.Reasons[0]
			}
		}
	}
	return nil
}
