// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/resources"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// Rule names what a violation is one of.
type Rule string

const (
	// Uncharged means that the pods of a job ask for more than Kueue counts for the job.
	Uncharged Rule = "uncharged"
	// OverQuota means that the pods of all jobs ask for more than the quota.
	OverQuota Rule = "over quota"
)

// Violation says what was not so, and from when to when.
type Violation struct {
	Rule Rule
	// From and Until are times of the recorder, RV is the first resource version. Until is zero where it never ended.
	From, Until time.Time
	RV          uint64

	ClusterQueue, Flavor string
	Resource             corev1.ResourceName
	// Job is the TrainJob, empty for OverQuota.
	Job string
	// Asked and Allowed are amounts at the worst moment; of cpu in thousandths.
	Asked, Allowed int64
	// Pods and Workloads are those of that moment.
	Pods, Workloads []string

	tolerated bool
}

func (v Violation) String() string {
	until := "the end"
	if !v.Until.IsZero() {
		until = fmt.Sprintf("%s (%s)", v.Until.Format("15:04:05.000"), v.Until.Sub(v.From).Round(time.Millisecond))
	}
	whose := "all jobs together"
	if v.Job != "" {
		whose = "TrainJob " + v.Job
	}
	return fmt.Sprintf("%s: ClusterQueue %s, flavor %q: bound pods of %s ask for %d %s of %d, %d too many, from %s (resourceVersion %d) until %s; pods %s; Workloads %s",
		v.Rule, v.ClusterQueue, v.Flavor, whose, v.Asked, v.Resource, v.Allowed, v.Asked-v.Allowed,
		v.From.Format("15:04:05.000"), v.RV, until, strings.Join(v.Pods, ", "), strings.Join(v.Workloads, ", "))
}

// Result is what Check found.
type Result struct {
	Violations []Violation
	// Tolerated are JobSet's: its controller may make a Job of a JobSet that was deleted a moment
	// ago, by a cache that has not heard of it. Kubernetes deletes that Job at once, and its pods
	// take their grace period. So are those of a job that ran without a queue and comes into one.
	Tolerated []Violation
}

// page is what one job is counted for in one slot.
type page struct {
	slot
	job types.UID
}

type checker struct {
	// gaps are not looked into: versions may be missing there.
	gaps []record.Gap
	*state
	Result
	// open are the violations that go on, found those and the ended ones.
	open  map[string]*Violation
	found []*Violation
	// ceilings are the quotas, or what was charged when they were lowered.
	ceilings map[slot]int64
}

// Check goes through versions in the order of their resource versions and returns all that should not have been.
func Check(versions []record.Version, gaps ...record.Gap) (Result, error) {
	var l Ledger
	for _, v := range versions {
		l.take(v)
	}
	return check(l.entries, gaps), l.err
}

func check(entries []entry, gaps []record.Gap) Result {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.rv, b.rv) })
	c := &checker{gaps: gaps, state: newState(), open: map[string]*Violation{}, ceilings: map[slot]int64{}}
	for _, e := range entries {
		if e.deleted {
			c.deleted[e.uid] = true
		}
	}
	for _, e := range entries {
		e.apply(c.state)
		if !slices.ContainsFunc(c.gaps, func(g record.Gap) bool { return g.From <= e.rv && e.rv < g.To }) {
			c.look(e)
		}
	}
	slices.SortFunc(c.found, func(a, b *Violation) int {
		return cmp.Or(cmp.Compare(a.RV, b.RV), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ClusterQueue, b.ClusterQueue), cmp.Compare(a.Job, b.Job))
	})
	for _, v := range c.found {
		if v.tolerated {
			c.Tolerated = append(c.Tolerated, *v)
		} else {
			c.Violations = append(c.Violations, *v)
		}
	}
	return c.Result
}

// look compares pods, charges and quotas as they are after e.
func (c *checker) look(e entry) {
	asked, late := c.asked(e.at)
	charged := c.charged()
	c.lowerCeilings(charged)
	over, sums := map[string]bool{}, map[slot]int64{}
	for p, amount := range asked {
		counts := amount
		if amount > charged[p] {
			timely := amount - late[p]
			tolerated := timely <= charged[p]
			if tolerated {
				counts = timely
			}
			over[c.note(e, Violation{Rule: Uncharged, Job: c.names[p.job], Asked: amount, Allowed: charged[p], tolerated: tolerated}, p)] = true
		}
		for _, account := range c.accounts(p.slot) {
			sums[account] += counts
		}
	}
	for account, amount := range sums {
		if quota, limited := c.ceilings[account]; limited && amount > quota {
			over[c.note(e, Violation{Rule: OverQuota, Asked: amount, Allowed: quota}, page{slot: account})] = true
		}
	}
	c.close(e, over)
}

// note begins a violation, or makes one worse, and returns its key.
func (c *checker) note(e entry, v Violation, p page) string {
	key := fmt.Sprint(v.Rule, p, v.tolerated)
	known := c.open[key]
	if known == nil {
		v.From, v.RV, v.ClusterQueue, v.Flavor, v.Resource = e.at, e.rv, p.clusterQueue, p.flavor, p.resource
		known = &v
		c.open[key], c.found = known, append(c.found, known)
	} else if v.Asked-v.Allowed <= known.Asked-known.Allowed {
		return key
	}
	known.Asked, known.Allowed = v.Asked, v.Allowed
	known.Pods, known.Workloads = c.podsIn(p), c.workloadsIn(p)
	return key
}

func (c *checker) close(e entry, over map[string]bool) {
	for key, v := range c.open {
		if !over[key] {
			v.Until = e.at
			delete(c.open, key)
		}
	}
}

// asked adds up the pods, and those of them that may be there although nobody counts them: their Jobs were made of a
// JobSet that was gone, or their job ran before it came into a queue.
func (c *checker) asked(now time.Time) (all, late map[page]int64) {
	all, late = map[page]int64{}, map[page]int64{}
	for _, p := range c.pods {
		if c.count(p) {
			p.joined = now
		}
		for slot, amount := range p.asks {
			all[page{slot, p.job}] += amount
			if p.late || now.Sub(p.joined) < joining {
				late[page{slot, p.job}] += amount
			}
		}
	}
	return all, late
}

// charged adds up the Workloads that hold quota: Kueue counts none that is not active.
func (c *checker) charged() map[page]int64 {
	sums := map[page]int64{}
	for _, wl := range c.workloads {
		if wl.job == "" || !wl.reserved || !wl.active {
			continue
		}
		for of, amount := range wl.usage {
			sums[page{of, wl.job}] += amount
		}
	}
	return sums
}

// lowerCeilings follows the quotas. Where an admin lowers one, Kueue lets those go on that it has charged for.
func (c *checker) lowerCeilings(charged map[page]int64) {
	used := map[slot]int64{}
	for p, amount := range charged {
		for _, account := range c.accounts(p.slot) {
			used[account] += amount
		}
	}
	limits := c.limits()
	for account, amount := range limits {
		limits[account] = max(amount, min(c.ceilings[account], used[account]))
	}
	c.ceilings = limits
}

// accounts are those that a slot is a part of: its ClusterQueue and the root of its cohort.
func (c *checker) accounts(s slot) []slot {
	queue := c.queues[s.clusterQueue]
	if queue == nil || queue.CohortName == "" {
		return []slot{s}
	}
	return []slot{s, c.ofCohort(queue.CohortName, s)}
}

// ofCohort is the account of the root of a cohort: what is lent within that is one sum.
func (c *checker) ofCohort(cohort kueue.CohortReference, s slot) slot {
	s.clusterQueue = "cohort " + string(c.root(cohort))
	return s
}

// limits are the quotas of ClusterQueues and cohorts. A ClusterQueue that borrows without a limit has none.
func (c *checker) limits() map[slot]int64 {
	limits := map[slot]int64{}
	for name, queue := range c.queues {
		for grant := range inventory.Grants(queue.ResourceGroups) {
			c.addLimit(limits, slot{name, string(grant.Flavor), grant.Quota.Name}, grant.Quota)
		}
	}
	for name, cohort := range c.cohorts {
		for grant := range inventory.Grants(cohort.ResourceGroups) {
			limits[c.ofCohort(name, slot{flavor: string(grant.Flavor), resource: grant.Quota.Name})] += nominal(grant.Quota)
		}
	}
	return limits
}

func nominal(quota *kueue.ResourceQuota) int64 {
	return resources.AmountFromQuantity(quota.Name, quota.NominalQuota).Int64()
}

func (c *checker) addLimit(limits map[slot]int64, s slot, quota *kueue.ResourceQuota) {
	for _, account := range c.accounts(s) {
		switch {
		case account != s:
			limits[account] += nominal(quota)
		case c.queues[s.clusterQueue].CohortName == "":
			limits[s] = nominal(quota)
		case quota.BorrowingLimit != nil:
			limits[s] = nominal(quota) + resources.AmountFromQuantity(quota.Name, *quota.BorrowingLimit).Int64()
		}
	}
}

func (c *checker) podsIn(p page) []string {
	var out []string
	for _, pod := range c.pods {
		for asked, amount := range pod.asks {
			if slices.Contains(c.accounts(asked), p.slot) && (p.job == "" || p.job == pod.job) {
				out = append(out, fmt.Sprintf("%s (%d, on %s)", pod.name, amount, pod.node))
			}
		}
	}
	slices.Sort(out)
	return out
}

func (c *checker) workloadsIn(p page) []string {
	var out []string
	for _, wl := range c.workloads {
		if p.job != "" && wl.job != p.job {
			continue
		}
		amount := int64(0)
		for of, used := range wl.usage {
			if slices.Contains(c.accounts(of), p.slot) {
				amount = used
			}
		}
		out = append(out, fmt.Sprintf("%s (%d, holds quota: %t, active: %t)", wl.name, amount, wl.reserved, wl.active))
	}
	slices.Sort(out)
	return out
}
