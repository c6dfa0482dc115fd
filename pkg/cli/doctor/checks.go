// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// dispatchKinds tell which TrainJobs go to which workers.
var dispatchKinds = []Kind{workerClusters, workerConfigs, trainJobs, localQueues, clusterQueues, admissionChecks}

// newReport makes every check for which the facts are there; of the others it tells why
// they could not be made.
func newReport(f *Facts) Report {
	r := Report{Findings: []Finding{}, Passed: []string{}, Unseen: []Unseen{}}
	names := f.relocation()
	for _, rows := range checks() {
		c := rows[0]
		if unread := c.unread(f); len(unread) > 0 {
			r.leaveOut(c.inOrder, unread)
			continue
		}
		if reason := c.blocked(f); reason != nil {
			r.Findings = append(r.Findings, notChecked("whether %s, because %s", c.inOrder, reason))
			continue
		}
		r.Checks++
		at := len(r.Findings)
		c.wrong(f, func(h hit) { r.Findings = append(r.Findings, relocated(h.finding(rows), names)) })
		if !slices.ContainsFunc(r.Findings[at:], keepsFromPassing) {
			r.Passed = append(r.Passed, c.inOrder)
		}
	}
	for i := range f.Workers {
		r.leaveOutWorker(&f.Workers[i])
	}
	for _, finding := range r.Findings {
		switch finding.Severity {
		case Error:
			r.Errors++
		case Warning:
			r.Warnings++
		}
	}
	sortFindings(r.Findings)
	return r
}

const notCheckedReason = "NotChecked"

// notChecked is about what doctor cannot know, without a fault of anybody.
func notChecked(what string, values ...any) Finding {
	return Finding{Severity: Info, Reason: notCheckedReason, Object: "Check", Problem: fmt.Sprintf("Could not check "+what+".", values...)}
}

// keepsFromPassing is for what is wrong, and what is not known.
func keepsFromPassing(f Finding) bool { return f.Severity > Info || f.Reason == notCheckedReason }

// blocked tells what there is not to look at, the first thing.
func (c check) blocked(f *Facts) error {
	for _, missing := range c.given {
		if reason := missing(f); reason != nil {
			return reason
		}
	}
	return nil
}

// unread returns what a check needs and could not be read.
func (c check) unread(f *Facts) []Unseen {
	var unread []Unseen
	for _, kind := range c.looksAt {
		if err := f.Unread[kind]; err != nil {
			unread = append(unread, unreadKind(kind, err))
		}
	}
	return unread
}

func unreadKind(kind Kind, err error) Unseen {
	if forRights(err) {
		return Unseen{Kind: string(kind), Reason: "you may not " + kind.verb(), forRights: true}
	}
	return Unseen{Kind: string(kind), Reason: err.Error()}
}

// leaveOutWorker notes what is not known of a worker. That nothing leads there is no fault.
func (r *Report) leaveOutWorker(w *Worker) {
	name := "worker cluster " + w.Name
	switch {
	case w.NoContext:
		r.Findings = append(r.Findings, notChecked("whether %s goes with this cluster: %s", name, w.Untold))
	case w.Untold != nil:
		r.leaveOut(name+" goes with this cluster", []Unseen{{Kind: name, Reason: w.Untold.Error()}})
	default:
		for _, kind := range slices.Sorted(maps.Keys(w.Unread)) {
			u := unreadKind(kind, w.Unread[kind])
			u.Kind += " of " + name
			r.leaveOut(name+" goes with this cluster", []Unseen{u})
		}
	}
}

// notAllowed is how the API server says that somebody has no right to something.
var notAllowed = regexp.MustCompile(`User ".*" cannot [a-z]+ resource "`)

// forRights reports whether the user is not allowed something. Quotas, policies and webhooks
// forbid, too, whatever rights one has.
func forRights(err error) bool {
	return apierrors.IsForbidden(err) && notAllowed.MatchString(err.Error())
}

// leaveOut notes a check that cannot be made, at every kind that it needs.
func (r *Report) leaveOut(check string, unread []Unseen) {
	r.NotMade++
	for _, u := range unread {
		at := slices.IndexFunc(r.Unseen, func(o Unseen) bool { return o.Kind == u.Kind })
		if at < 0 {
			at, r.Unseen = len(r.Unseen), append(r.Unseen, u)
		}
		r.Unseen[at].Checks = append(r.Unseen[at].Checks, check)
	}
}

// condition is an error where there is nothing to look at for an answer to a check.
type condition func(*Facts) error

// managerThere is for checks of kueue-trainer, in whatever state it is.
func managerThere(f *Facts) error {
	if !f.managerInstalled() {
		return errors.New("kueue-trainer is not installed")
	}
	return nil
}

// kueueConfigMap and managerConfigMap are for checks of a configuration.
func kueueConfigMap(f *Facts) error { return f.withoutConfigMap(kueuePart) }

func managerConfigMap(f *Facts) error { return f.withoutConfigMap(managerPart) }

func (f *Facts) withoutConfigMap(p *part) error {
	if f.configMap(p) != nil {
		return nil
	}
	return fmt.Errorf("there is no ConfigMap %s/%s: %s is not installed, or keeps its configuration elsewhere", f.at(p).Namespace, f.at(p).ConfigMap, p.Name)
}

// kueueConfigured is for checks that look into Kueue's configuration.
func kueueConfigured(f *Facts) error {
	_, err := f.kueueSettings()
	return err
}

// probeAnswered is for checks that judge by what the API server made of a TrainJob.
func probeAnswered(f *Facts) error {
	if f.integrates() == unknown {
		return fmt.Errorf("the API server gave no answer to %s", trainJobProbe)
	}
	return nil
}

// inFleet is a condition for checks that ask nothing of a cluster without workers of MultiKueue.
func inFleet(c condition) condition {
	return func(f *Facts) error {
		if len(f.MultiKueueClusters) == 0 {
			return nil
		}
		return c(f)
	}
}
