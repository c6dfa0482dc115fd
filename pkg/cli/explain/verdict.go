// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Verdict says what a flavor can do for a PodSet.
type Verdict struct {
	PodSet   string   `json:"podSet"`
	Flavor   string   `json:"flavor"`
	Assigned bool     `json:"assigned"`           // set where the PodSet has quota of this flavor
	Fits     bool     `json:"fits"`               // set where Kueue could give it quota of this flavor now
	Done     bool     `json:"done,omitempty"`     // set where all pods of the PodSet are done, and need no quota any more
	Preempts bool     `json:"preempts,omitempty"` // set where Kueue would give it that by stopping others
	Amounts  []Amount `json:"resources,omitempty"`
	Reasons  []Reason `json:"reasons,omitempty"` // why it does not fit, and what its pods would run into if it does

	group   int  // the resource group of the ClusterQueue; -1 for what is in none
	useless bool // set where the flavor has nothing of a resource that the PodSet asks for
}

// Amount is a resource in the quota of a flavor, as far as a ClusterQueue may use it. CPU is in thousandths.
type Amount struct {
	Resource  corev1.ResourceName `json:"resource"`
	Requested int64               `json:"requested"`      // by all pods of the PodSet
	Free      *int64              `json:"free,omitempty"` // borrowed quota included; nil where not all Workloads may be seen
	Quota     int64               `json:"quota"`          // the ClusterQueue's own
	Max       int64               `json:"max"`            // what it gets with all that it may borrow
}

// Code says why a flavor is skipped.
type Code string

// The codes of reasons. Scripts rely on them.
const (
	NotInQueue    Code = "ResourceNotInQueue"     // the ClusterQueue has no quota for a resource in any flavor
	FlavorMissing Code = "FlavorMissing"          // the ClusterQueue names a flavor that does not exist
	Taint         Code = "TaintNotTolerated"      // the pods do not tolerate a taint of the flavor, or of its nodes
	Selector      Code = "SelectorMismatch"       // node selector or affinity name other nodes than the flavor's
	NoNode        Code = "NoNode"                 // the flavor picks no node
	Unavailable   Code = "NodesUnavailable"       // the flavor's nodes are cordoned, or not ready
	TooMuch       Code = "ExceedsQuota"           // the request is above all that the ClusterQueue can ever have
	Borrowing     Code = "BorrowingLimit"         // the borrowing limit is in the way
	InUse         Code = "QuotaInUse"             // others hold the quota that is missing
	TooLarge      Code = "PodTooLarge"            // no node of the flavor has what one pod asks for
	Topology      Code = "TopologyDoesNotFit"     // the topology request does not fit, or the flavor has no such topology
	NoRequests    Code = "NothingRequested"       // the PodSet asks for nothing, which no topology takes
	Check         Code = "AdmissionCheckInactive" // an admission check of the flavor is not active
)

// Reason is why a flavor is skipped, or what is wrong with it.
type Reason struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	Lasting bool   `json:"lasting"`           // set where waiting does not help
	Warning bool   `json:"warning,omitempty"` // set where Kueue does not look: it gives quota, and pods stay Pending
}

// lasts is a reason that waiting does not help against; the remedy is a format for what follows.
func lasts(code Code, message, remedy string, args ...any) *Reason {
	return &Reason{Code: code, Message: message, Remedy: fmt.Sprintf(remedy, args...), Lasting: true}
}

// state is that of a job for which the reason decides.
func (r Reason) state() *State {
	return &State{Reason: string(r.Code), Message: r.Message, Remedy: r.Remedy, Cause: r.Message, Stuck: r.Lasting}
}

// refusal is the first reason that counts for Kueue, one that lasts before others.
func (v Verdict) refusal() Reason {
	var first Reason
	for _, r := range v.Reasons {
		if !r.Warning && (first.Code == "" || r.Lasting && !first.Lasting) {
			first = r
		}
	}
	return first
}

// assignable names the flavors that take all PodSets now; not ok when one finds none in some resource group.
func assignable(verdicts []Verdict) (assignment string, ok bool) {
	if refusals(verdicts) != nil {
		return "", false
	}
	return onFlavors(taking(verdicts)), true
}

// assignmentText names the flavors of each PodSet of an admission.
func assignmentText(admission *kueue.Admission) string {
	if admission == nil {
		return "nothing assigned"
	}
	var all []Verdict
	for _, psa := range admission.PodSetAssignments {
		for _, resource := range sortedResources(psa.Flavors) {
			all = append(all, Verdict{PodSet: string(psa.Name), Flavor: string(psa.Flavors[resource])})
		}
	}
	return onFlavors(all)
}

// onFlavors is "node on flavor h100", of each PodSet.
func onFlavors(all []Verdict) string {
	var parts []string
	for i, v := range all {
		switch {
		case find(all[:i], func(o *Verdict) bool { return o.PodSet == v.PodSet && o.Flavor == v.Flavor }) != nil:
		case i > 0 && all[i-1].PodSet == v.PodSet:
			parts[len(parts)-1] += " and " + v.Flavor
		default:
			parts = append(parts, fmt.Sprintf("%s on flavor %s", v.PodSet, v.Flavor))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "it needs no flavor")
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
		if of := picked(verdicts, v.beside); !slices.ContainsFunc(of, func(o Verdict) bool { return o.Fits }) {
			return of
		}
	}
	return nil
}

// beside reports whether two verdicts are about the same PodSet and resource group.
func (v Verdict) beside(o Verdict) bool { return v.PodSet == o.PodSet && v.group == o.group }

func picked[T any](items []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !wanted(item) })
}

// lacking tells what stands against the first PodSet without a flavor. What time may bring counts more than what people can change.
func lacking(verdicts []Verdict) *State {
	var parts []string
	var best *State
	for _, v := range useful(refusals(verdicts)) {
		r := v.refusal()
		text := r.Message
		if v.Flavor != "" {
			text = fmt.Sprintf("flavor %s: %s", v.Flavor, text)
		}
		parts = append(parts, text)
		if best == nil || best.Stuck && !r.Lasting {
			best = r.state()
			if slices.Contains([]Code{TooMuch, Borrowing, InUse}, r.Code) {
				best.Cause = v.Flavor // More quota of a flavor helps all who lack it, whatever the amount.
			}
		}
	}
	best.Message = strings.Join(parts, "; ")
	return best
}

// useful leaves out flavors that have nothing for a PodSet, unless it has no other.
func useful(verdicts []Verdict) []Verdict {
	return picked(verdicts, func(v Verdict) bool {
		return !v.useless || !slices.ContainsFunc(verdicts, func(o Verdict) bool { return v.beside(o) && !o.useless })
	})
}

// staysPending reports whether the pods of some PodSet stay Pending for good on each flavor that Kueue may give it, now or later.
func staysPending(verdicts []Verdict) bool {
	lasts := func(v Verdict, warning bool) bool {
		return slices.ContainsFunc(v.Reasons, func(r Reason) bool { return r.Lasting && r.Warning == warning })
	}
	return slices.ContainsFunc(verdicts, func(v Verdict) bool {
		possible := picked(verdicts, func(o Verdict) bool { return v.beside(o) && !lasts(o, false) })
		runs := picked(possible, func(o Verdict) bool { return !lasts(o, true) })
		return len(possible) > 0 && len(runs) == 0
	})
}

// warnedOf returns what the pods would run into on the flavors that Kueue would take, or nil.
func warnedOf(verdicts []Verdict) *State {
	for _, v := range taking(verdicts) {
		if len(v.Reasons) > 0 {
			return v.Reasons[0].state()
		}
	}
	return nil
}
