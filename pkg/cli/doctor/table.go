// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"strings"
)

// check is a row of the table. One without wrong is another case of what the row above it looks at.
// In its texts, {value} is a value of the case.
type check struct {
	// inOrder says what is so when nothing is wrong.
	inOrder string
	// looksAt is what the facts must have for an answer, and given what there must be in them.
	looksAt []Kind
	given   []condition
	// wrong finds the cases of this row, unless they say otherwise.
	wrong func(f *Facts, found func(hit))

	// ID is the Reason of its findings.
	ID       string
	Severity Severity
	// When says in docs/doctor.md when something is wrong; empty where a row above says it of the same ID.
	When string
	// object is the one that is concerned, where it is always the same.
	object                  string
	problem, effect, advice string
	commands                []string
}

// hit is a case of a row. What its Finding has is said instead of what the row says.
type hit struct {
	Finding
	// values are names in turn with what they stand for.
	values []any
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
	texts := replacer(h.values)
	f := Finding{
		Severity: cmp.Or(h.Severity, r.Severity), Reason: r.ID, Object: cmp.Or(h.Object, r.object),
		Problem: cmp.Or(h.Problem, texts.Replace(r.problem)), Effect: cmp.Or(h.Effect, texts.Replace(r.effect)),
		Advice: cmp.Or(h.Advice, texts.Replace(r.advice)), Commands: h.Commands,
	}
	if f.Commands == nil {
		for _, command := range r.commands {
			f.Commands = append(f.Commands, texts.Replace(command))
		}
	}
	return f
}

func replacer(values []any) *strings.Replacer {
	var pairs []string
	for i := 0; i+1 < len(values); i += 2 {
		pairs = append(pairs, fmt.Sprintf("{%v}", values[i]), fmt.Sprint(values[i+1]))
	}
	return strings.NewReplacer(pairs...)
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
