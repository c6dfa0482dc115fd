// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// assignable names the flavors that take all PodSets now, in words; not ok when a PodSet
// finds none in one of the ClusterQueue's resource groups.
func assignable(verdicts []Verdict) (assignment string, ok bool) {
	if refusals(verdicts) != nil {
		return "", false
	}
	var parts []string
	last := ""
	for _, v := range taking(verdicts) {
		if v.PodSet == last {
			parts[len(parts)-1] += " and " + v.Flavor
			continue
		}
		last = v.PodSet
		parts = append(parts, fmt.Sprintf("%s on flavor %s", v.PodSet, v.Flavor))
	}
	return cmp.Or(strings.Join(parts, ", "), "it needs no flavor"), true
}

// taking returns the verdict on the first flavor of each resource group that takes a PodSet.
func taking(verdicts []Verdict) []Verdict {
	var first []Verdict
	for _, v := range verdicts {
		if v.Fits && !slices.ContainsFunc(first, v.beside) {
			first = append(first, v)
		}
	}
	return first
}

// refusals returns the verdicts on the first PodSet that finds no flavor in a resource group; nil where all do.
func refusals(verdicts []Verdict) []Verdict {
	for _, v := range verdicts {
		if of, _ := split(verdicts, v.beside); !slices.ContainsFunc(of, func(o Verdict) bool { return o.Fits }) {
			return of
		}
	}
	return nil
}

// beside reports whether two verdicts are about the same PodSet and resource group.
func (v Verdict) beside(o Verdict) bool { return v.PodSet == o.PodSet && v.group == o.group }

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
func lacking(verdicts []Verdict) State {
	var parts []string
	best, cause := Reason{Lasting: true}, ""
	for _, v := range useful(refusals(verdicts)) {
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
		return v.useless && slices.ContainsFunc(verdicts, func(o Verdict) bool { return v.beside(o) && !o.useless })
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
func warnedOf(verdicts []Verdict) *Reason {
	for _, v := range taking(verdicts) {
		if len(v.Reasons) > 0 {
			return &v.Reasons[0]
		}
	}
	return nil
}
