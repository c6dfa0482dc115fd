// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// runbooks is where the pages of docs/runbooks are read.
const runbooks = "https://github.com/kueue-trainer/kueue-trainer/blob/main/docs/runbooks/"

// The severities: critical wakes somebody up.
const (
	critical = "critical"
	warning  = "warning"
)

// alert is one alert, as an admin reads of it.
type alert struct {
	name, expr string
	lasts      time.Duration
	severity   string
	// summary is one line, description says what it means and where to look first. Both are
	// templates of Prometheus. when is the condition in words, for the table of docs/operate.md.
	summary, description, when string
}

func (a alert) rule() rulefmt.Rule {
	return rulefmt.Rule{
		Alert:  a.name,
		Expr:   strings.TrimSpace(a.expr),
		For:    model.Duration(a.lasts),
		Labels: map[string]string{"severity": a.severity},
		Annotations: map[string]string{
			"summary":     a.summary,
			"description": a.description,
			"runbook_url": runbooks + a.name + ".md",
		},
	}
}

// ruleGroups returns everything that Prometheus evaluates.
func ruleGroups() rulefmt.RuleGroups {
	alerting := rulefmt.RuleGroup{Name: "kueue-trainer-alerts"}
	for _, a := range alerts() {
		alerting.Rules = append(alerting.Rules, a.rule())
	}
	return rulefmt.RuleGroups{Groups: []rulefmt.RuleGroup{
		{Name: "kueue-trainer-records", Rules: records()},
		alerting,
	}}
}

// records keep what only the leader tells as one series over its changes: the next leader goes on
// where the last one saved.
func records() []rulefmt.Rule {
	return []rulefmt.Rule{
		{Record: "kueue_trainer:held_resources:max", Expr: latest(metrics.HeldResources, "")},
		{Record: "kueue_trainer:quota_resource_seconds:max", Expr: latest(metrics.QuotaSeconds, "")},
		{Record: "kueue_trainer:ended_resource_seconds:max", Expr: latest(metrics.EndedSeconds, "")},
		// What ended in a day. No increase, which would take a leader's begin a moment behind the last one for a start at 0.
		{Record: "kueue_trainer:ended_resource_seconds:max1d",
			Expr: growth("kueue_trainer:ended_resource_seconds:max", "kueue_trainer:ended_resource_seconds:max["+day.duration+"]", day)},
	}
}
