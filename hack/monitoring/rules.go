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

// records keep what only the leader tells as one series: the next leader goes on where the last one saved.
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

// alerts are sorted as an admin meets them: the manager itself, what it works with, TrainJobs, quota.
func alerts() []alert {
	return []alert{
		{
			name: "KueueTrainerAbsent", when: "Prometheus reaches no replica of the manager",
			severity: critical, lasts: 5 * time.Minute,
			expr:    `absent(kueue_trainer_build_info)`,
			summary: "No replica of kueue-trainer tells metrics",
			description: "Prometheus reaches no replica of the manager. Where none runs, the API server refuses to create " +
				"TrainJobs of queues, and none is started or stopped; those that run, run on.",
		},
		{
			name: "KueueTrainerNoLeader", when: "replicas run, and none leads",
			severity: critical, lasts: 5 * time.Minute,
			expr:        `max(leader_election_master_status and on (job, instance) kueue_trainer_build_info) == 0`,
			summary:     "No replica of kueue-trainer leads",
			description: "Replicas of the manager run, and none holds the lease: webhooks answer, but no TrainJob is started or stopped.",
		},
		{
			name: "KueueTrainerReconcilesFail", when: "more than a tenth of the reconciles end with an error",
			severity: warning, lasts: 15 * time.Minute,
			expr: `
sum(rate(controller_runtime_reconcile_errors_total[10m]) and on (job, instance) kueue_trainer_build_info)
  / sum(rate(controller_runtime_reconcile_total[10m]) and on (job, instance) kueue_trainer_build_info) > 0.1`,
			summary:     "{{ $value | humanizePercentage }} of the manager's reconciles fail",
			description: "More than a tenth of the reconciles of kueue-trainer end with an error. Its log names the objects.",
		},
		{
			name: "KueueTrainerWebhookFailing", when: "the API server cannot call the webhooks",
			severity: critical, lasts: 5 * time.Minute,
			expr: `
sum by (name, error_type) (rate(apiserver_admission_webhook_rejection_count{
  name=~".*kueue-trainer.*", error_type="calling_webhook_error"}[5m])) > 0`,
			summary: "The API server cannot call kueue-trainer's webhook {{ $labels.name }}",
			description: "Requests for TrainJobs of queues are refused because the webhook does not answer, or answers what the " +
				"API server does not understand. Users cannot create or change TrainJobs, and the manager can start and stop none.",
		},
		{
			name: "KueueTrainerWebhookErrors", when: "the webhooks cannot decide",
			severity: critical, lasts: 5 * time.Minute,
			expr:        `sum by (kind, operation) (rate(kueue_trainer_webhook_requests_total{outcome="failed"}[5m])) > 0`,
			summary:     "kueue-trainer's {{ $labels.kind }} webhook cannot decide about {{ $labels.operation }} requests",
			description: "The webhook answers with errors of its own, which refuse what users ask for. The manager's log says why.",
		},
		{
			name: "KueueTrainerCertificateEnds", when: "the webhooks' certificate ends within a day",
			severity: critical, lasts: 10 * time.Minute,
			expr:    `min(kueue_trainer_certificate_expiry_timestamp_seconds) - time() < 24 * 3600`,
			summary: "The certificate of kueue-trainer's webhooks ends in {{ $value | humanizeDuration }}",
			description: "The manager renews its own certificates two days before they end, so something keeps it from that. " +
				"When the certificate has ended, the API server refuses TrainJobs of queues.",
		},
		{
			name: "KueueTrainerBothIntegrationsActive", when: "Kueue's in-tree integration is active, too",
			severity: warning, lasts: 10 * time.Minute,
			expr:    `max(kueue_trainer_in_tree_integration{state="active"}) == 1`,
			summary: "Kueue's in-tree integration of TrainJobs is active beside kueue-trainer",
			description: "kueue-trainer stands aside: Kueue's own integration starts and stops TrainJobs. " +
				"That is right for the minutes of a migration only.",
		},
		{
			name: "KueueTrainerInTreeUnknown", when: "it is not known whether the in-tree integration is active",
			severity: critical, lasts: 10 * time.Minute,
			expr:    `max(kueue_trainer_in_tree_integration{state="unknown"}) == 1`,
			summary: "kueue-trainer does not know whether Kueue integrates TrainJobs itself",
			description: "The dry run that tells has not been answered for long. A manager that had no answer since its start " +
				"starts and stops no TrainJob.",
		},
		{
			name: "KueueTrainerKueueConfigurationUnread", when: "Kueue's configuration cannot be read",
			severity: warning, lasts: 10 * time.Minute,
			expr:        `min(kueue_trainer_kueue_configuration_read) == 0`,
			summary:     "kueue-trainer cannot read Kueue's configuration",
			description: "Settings of Kueue, such as waitForPodsReady and feature gates, do not hold for TrainJobs, or those that were read last do.",
		},
		{
			name: "KueueTrainerTrainerUnknown", when: "a replica does not know which Trainer is served",
			severity: critical, lasts: 10 * time.Minute,
			expr:    `kueue_trainer_build_info unless on (job, instance) kueue_trainer_trainer_info`,
			summary: "kueue-trainer's replica {{ $labels.instance }} does not know which Trainer the cluster serves",
			description: "The TrainJob CRD is missing, cannot be read, or is of a release that this kueue-trainer does not know. " +
				"Until the leader has read it, no TrainJob is started or stopped.",
		},
		{
			name: "KueueTrainerTrainJobsStuck", when: "TrainJobs wait for what does not come by itself",
			severity: warning, lasts: 15 * time.Minute,
			expr:    `max by (cluster_queue, namespace, local_queue, reason) (kueue_trainer_stuck_trainjobs) > 0`,
			summary: "{{ $value }} TrainJobs of {{ $labels.namespace }}/{{ $labels.local_queue }} are stuck: {{ $labels.reason }}",
			description: "TrainJobs in ClusterQueue {{ $labels.cluster_queue }} wait for something that does not come by itself. " +
				"Their events with reason {{ $labels.reason }} say what somebody has to do.",
		},
		{
			name: "KueueTrainerStartsSlow", when: "one admitted TrainJob of twenty waits more than 30 s to be resumed",
			severity: warning, lasts: 15 * time.Minute,
			expr: `
histogram_quantile(0.95, sum by (cluster_queue, le) (rate(kueue_trainer_admitted_until_started_seconds_bucket[15m]))) > 30`,
			summary: "TrainJobs of {{ $labels.cluster_queue }} start {{ $value | humanizeDuration }} after their admission",
			description: "One admitted TrainJob of twenty, or more, waits longer than half a minute until it is resumed. " +
				"Quota is held meanwhile, and nothing runs.",
		},
		{
			name: "KueueTrainerQuotaHeldWithoutPods", when: "for 30 of the last 60 minutes, more than a quarter of what a LocalQueue held of a flavor ran no pods, or waited for them to end",
			// In sum: by default Kueue evicts a job whose pods are not ready after half an hour, and admits it again.
			severity: warning, lasts: 5 * time.Minute,
			expr: `
max by (cluster_queue, namespace, local_queue, flavor) (count_over_time((
  sum by (cluster_queue, namespace, local_queue, flavor, resource) (kueue_trainer:held_resources:max{phase=~"waiting|stopping"})
  / sum by (cluster_queue, namespace, local_queue, flavor, resource) (kueue_trainer:held_resources:max) > 0.25)[1h:1m])) >= 30`,
			summary: "A part of what {{ $labels.namespace }}/{{ $labels.local_queue }} holds of {{ $labels.flavor }} has not run for {{ $value }} of 60 minutes",
			description: "For half of the last hour, more than a quarter of the quota that TrainJobs of this queue held in ClusterQueue " +
				"{{ $labels.cluster_queue }} was held without all pods being ready, or until the last of them ended.",
		},
		{
			name: "KueueTrainerWritesInVain", when: "more than 5 writes in 10 minutes are undone by something else",
			severity: warning, lasts: 15 * time.Minute,
			expr:    `sum by (resource) (increase(kueue_trainer_writes_total{outcome="in_vain"}[10m])) > 5`,
			summary: "Something undoes what kueue-trainer writes to {{ $labels.resource }}",
			description: "The manager writes and the API server answers that it did, but another webhook, policy or controller " +
				"takes out what was written. The TrainJobs concerned do not start or stop.",
		},
		{
			name: "KueueTrainerWritesRefused", when: "more than 5 writes in 10 minutes are refused",
			severity: warning, lasts: 15 * time.Minute,
			expr:    `sum by (resource) (increase(kueue_trainer_writes_total{outcome="refused"}[10m])) > 5`,
			summary: "The API server refuses what kueue-trainer writes to {{ $labels.resource }}",
			description: "Permissions, a webhook or a policy keep the manager from writing. " +
				"The TrainJobs concerned do not start or stop.",
		},
		{
			name: "KueueTrainerGPUHoursLost", when: "more than a fifth, and more than 10 hours, of a day was lost to evictions",
			severity: warning, lasts: time.Hour,
			expr: `
(
  sum by (cluster_queue, resource) (kueue_trainer:ended_resource_seconds:max1d{outcome="lost", resource!~"` + metrics.NoDevice + `"})
  / sum by (cluster_queue, resource) (kueue_trainer:ended_resource_seconds:max1d{resource!~"` + metrics.NoDevice + `"}) > 0.2
)
and sum by (cluster_queue, resource) (kueue_trainer:ended_resource_seconds:max1d{outcome="lost", resource!~"` + metrics.NoDevice + `"}) > 10 * 3600`,
			summary: "{{ $value | humanizePercentage }} of what {{ $labels.cluster_queue }} ran on {{ $labels.resource }} in a day was lost to evictions",
			description: "In the last 24 hours more than a fifth of the time that ended, and more than 10 hours of one {{ $labels.resource }}, " +
				"was of runs that an eviction ended. What they did since their last checkpoint has to be done again.",
		},
		{
			name: "KueueTrainerLedgerNotSaved", when: "the totals of used quota cannot be saved",
			severity: warning, lasts: 15 * time.Minute,
			expr:    `max(kueue_trainer_ledger_unsaved_seconds) > 0`,
			summary: "The totals of used quota cannot be saved",
			description: "The leader tries to save what TrainJobs have used, and has not been able to for a quarter of an hour. " +
				"What was used since then may be missing from the bill if the leader ends now.",
		},
	}
}
