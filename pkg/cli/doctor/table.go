// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// check is a row of the table, with {values} in its texts. One without wrong is another case of what the row above looks at.
type check struct {
	inOrder string // what is so when nothing is wrong
	looksAt []Kind // what the facts must have for an answer, and given what there must be in them
	given   []condition
	wrong   func(f *Facts, found func(hit)) // finds the cases of this row, unless they say otherwise

	ID                      string // the Reason of its findings
	Severity                Severity
	When                    string // for docs/doctor.md; empty where a row above says it of the same ID
	object                  string // the one that is concerned, where it is always the same
	problem, effect, advice string
	commands                []string
}

// hit is a case of a row. What its Finding has is said instead of what the row says.
type hit struct {
	Finding
	values []any // names in turn with what they stand for
}

// about is a case that concerns an object, whose {namespace} and {name} are values.
func about(kind, namespace, name string, values ...any) hit {
	return hit{Finding{Object: object(kind, namespace, name)}, append(values, "namespace", namespace, "name", name)}
}

// as makes it a case of another row, or a worse one.
func (h hit) as(id string, severity Severity) hit {
	h.Reason, h.Severity = id, severity
	return h
}

// finding is what is said of a case.
func (h hit) finding(rows []check) Finding {
	if h.Reason == notCheckedReason {
		return h.Finding
	}
	r := rows[0]
	for _, other := range rows {
		if other.ID == h.Reason && (r.ID != h.Reason || other.Severity == h.Severity) {
			r = other
		}
	}
	var pairs []string
	for i := 0; i+1 < len(h.values); i += 2 {
		pairs = append(pairs, fmt.Sprintf("{%v}", h.values[i]), fmt.Sprint(h.values[i+1]))
	}
	texts := strings.NewReplacer(pairs...)
	f := Finding{
		Severity: cmp.Or(h.Severity, r.Severity), Reason: r.ID, Object: cmp.Or(h.Object, r.object),
		Problem: cmp.Or(h.Problem, texts.Replace(r.problem)), Effect: cmp.Or(h.Effect, texts.Replace(r.effect)),
		Advice: cmp.Or(h.Advice, texts.Replace(r.advice)), Commands: h.Commands,
	}
	if f.Commands == nil {
		f.Commands = kueuelib.Map(r.commands, func(command *string) string { return texts.Replace(*command) })
	}
	return f
}

// Section is a group of checks, in the order in which an installation is built.
type Section struct {
	Title  string
	Checks []check
}

// Sections are all that doctor looks at; docs/doctor.md is made of them.
var Sections = []Section{
	{"Kueue, JobSet and Trainer", partChecks},
	{"The manager", managerChecks},
	{"Webhooks of all four", webhookChecks},
	{"Who looks after TrainJobs", integrationChecks},
	{"Configurations, which are read from their ConfigMaps", configurationChecks},
	{"Pools", poolChecks},
	{"Queues", queueChecks},
	{"TrainJobs, and what an older integration has left", trainJobChecks},
	{workersTitle, workerChecks},
}

// checks are all that doctor does, each with its rows.
func checks() [][]check {
	var all [][]check
	for _, s := range Sections {
		for _, c := range s.Checks {
			if c.wrong != nil {
				all = append(all, nil)
			}
			all[len(all)-1] = append(all[len(all)-1], c)
		}
	}
	return all
}

// dispatchKinds tell which TrainJobs go to which workers.
var dispatchKinds = []Kind{workerClusters, workerConfigs, trainJobs, localQueues, clusterQueues, admissionChecks}

// newReport makes every check for which the facts are there; of the others it tells why they could not be made.
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
		// What is wrong, and what is not known, is not in order.
		if !slices.ContainsFunc(r.Findings[at:], func(f Finding) bool { return f.Severity != Info || f.Reason == notCheckedReason }) {
			r.Passed = append(r.Passed, c.inOrder)
		}
	}
	for i := range f.Workers {
		r.leaveOutWorker(&f.Workers[i])
	}
	count := map[Severity]int{}
	for _, finding := range r.Findings {
		count[finding.Severity]++
	}
	r.Errors, r.Warnings = count[Error], count[Warning]
	sortFindings(r.Findings)
	return r
}

const notCheckedReason = "NotChecked"

// notChecked is about what doctor cannot know, without a fault of anybody.
func notChecked(what string, values ...any) Finding {
	return Finding{Severity: Info, Reason: notCheckedReason, Object: "Check", Problem: fmt.Sprintf("Could not check "+what+".", values...)}
}

// blocked tells what there is not to look at, the first thing.
func (c check) blocked(f *Facts) error {
	for _, missing := range c.given {
		if reason := missing(f); reason != nil {
			return reason
		}
	}
	return nil
}

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
	if cluster.ForRights(err) {
		return Unseen{Kind: string(kind), Reason: "you may not " + kind.verb(), forRights: true}
	}
	return Unseen{Kind: string(kind), Reason: err.Error()}
}

// leaveOutWorker notes what is not known of a worker. That nothing leads there is no fault.
func (r *Report) leaveOutWorker(w *Worker) {
	name := "worker cluster " + w.Name
	switch {
	case w.Untold != nil && w.Context == "":
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

// inFleet is for checks of kueue-trainer and Kueue's configuration that ask nothing of a cluster without workers of MultiKueue.
func inFleet(f *Facts) error {
	if len(f.MultiKueueClusters) == 0 {
		return nil
	}
	return cmp.Or(managerThere(f), kueueConfigured(f))
}
