// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/kueue-trainer/kueue-trainer/pkg/metrics"

// ours leaves only the series of the manager's own processes, whatever Prometheus calls its job.
func ours(series string) string { return series + " and on (job, instance) kueue_trainer_build_info" }

// manager is about kueue-trainer itself.
func manager() board {
	rate := func(metric string) string { return ours("rate(" + metric + "[$__rate_interval])") }
	p95 := func(histogram, by string) string {
		return "histogram_quantile(0.95, sum by (" + by + ", le) (" + rate(histogram+"_bucket") + "))"
	}
	return board{
		file: "kueue-trainer", title: "kueue-trainer",
		description: "The manager itself: does it lead, keep up, write what stays, and answer the API server?",
		rows: []row{
			{title: "Now", panels: []panel{
				{kind: number, title: "Replicas", why: "That tell metrics, by version.", width: 4, height: low, unit: "short",
					queries: []query{{"count by (version) (" + metrics.BuildInfo.Name + ")", "{{version}}"}}},
				{kind: number, title: "Leaders", why: "One, where leader election is on.", width: 4, height: low, unit: "short",
					queries: []query{{"sum(" + ours("leader_election_master_status") + ")", ""}}},
				{kind: number, title: "Trainer", why: "The release that the cluster serves.", width: 4, height: low, unit: "short", named: true,
					queries: []query{{"max by (version) (" + metrics.TrainerInfo.Name + ")", "{{version}}"}}},
				{kind: number, title: "In-tree integration active", why: "1: Kueue integrates TrainJobs itself, and the manager stands aside.", width: 4, height: low, unit: "short", bad: 1,
					queries: []query{{"max(" + metrics.InTree.Name + `{state="active"})`, ""}}},
				{kind: number, title: "Certificate ends in", why: "Of the webhooks; the manager renews its own two days before.", width: 4, height: low, unit: "s",
					queries: []query{{"min(" + metrics.CertificateExpiry.Name + ") - time()", ""}}},
				{kind: number, title: "Ledger not saved for", why: "The totals of used quota; 0: the last attempt to save them succeeded.", width: 4, height: low, unit: "s", bad: 60,
					queries: []query{{latest(metrics.LedgerUnsaved, ""), ""}}},
			}},
			{title: "Reconciles", panels: []panel{
				{kind: lines, title: "Reconciles per second", why: "By controller and result.", width: 12, height: high, unit: "ops",
					queries: []query{{"sum by (controller, result) (" + rate("controller_runtime_reconcile_total") + ") > 0", "{{controller}} {{result}}"}}},
				{kind: lines, title: "Time of a reconcile", why: "One in twenty takes longer.", width: 12, height: high, unit: "s",
					queries: []query{{p95("controller_runtime_reconcile_time_seconds", "controller"), "{{controller}}"}}},
				{kind: lines, title: "Work queues", why: "Objects that wait for a worker.", width: 8, height: high, unit: "short",
					queries: []query{{"sum by (name) (" + ours("workqueue_depth") + ")", "{{name}}"}}},
				{kind: lines, title: "Time in the work queue", why: "One in twenty waits longer.", width: 8, height: high, unit: "s",
					queries: []query{{p95("workqueue_queue_duration_seconds", "name"), "{{name}}"}}},
				{kind: lines, title: "Busy workers", why: "Of those that the configuration allows.", width: 8, height: high, unit: "percentunit",
					queries: []query{{"sum by (controller) (" + ours("controller_runtime_active_workers") + ")\n/ sum by (controller) (" + ours("controller_runtime_max_concurrent_reconciles") + ")", "{{controller}}"}}},
			}},
			{title: "Writes", panels: []panel{
				{kind: lines, title: "Writes per second", why: "By resource and what came of them: in vain is what the API server took and something else undid.", width: 12, height: high, unit: "ops",
					queries: []query{{"sum by (resource, outcome) (rate(" + metrics.Writes.Name + "[$__rate_interval]))", "{{resource}} {{outcome}}"}}},
				{kind: lines, title: "Requests per second", why: "To the API server, reads included.", width: 12, height: high, unit: "ops",
					queries: []query{{"sum by (method, code) (" + rate("rest_client_requests_total") + ")", "{{method}} {{code}}"}}},
				{kind: lines, title: "Gated pods", why: "That hold the admission gate now; those of TrainJobs that wait are not made at all.", width: 12, height: high, unit: "short",
					queries: []query{{latest(metrics.GatedPods, ""), "gated"}}},
				{kind: lines, title: "Pods freed of the gate", why: "That were made a moment too early.", width: 12, height: high, unit: "short",
					queries: []query{{"sum by (outcome) (increase(" + metrics.UngatedPods.Name + "[$__rate_interval]))", "{{outcome}}"}}},
			}},
			{title: "Webhooks", panels: []panel{
				{kind: lines, title: "Verdicts per second", why: "What was asked, and why it was refused.", width: 12, height: high, unit: "ops",
					queries: []query{{"sum by (kind, operation, outcome, reason) (rate(" + metrics.WebhookRequests.Name + "[$__rate_interval]))", "{{kind}} {{operation}} {{outcome}} {{reason}}"}}},
				{kind: lines, title: "Time of an answer", why: "In the manager: one in twenty takes longer.", width: 12, height: high, unit: "s",
					queries: []query{{p95("controller_runtime_webhook_latency_seconds", "webhook"), "{{webhook}}"}}},
				{kind: lines, title: "Time of an answer, to the API server", why: "With the way there and back. Needs the API server's metrics.", width: 12, height: high, unit: "s",
					queries: []query{{`histogram_quantile(0.95, sum by (type, operation, le) (rate(apiserver_admission_webhook_admission_duration_seconds_bucket{name=~".*kueue-trainer.*"}[$__rate_interval])))`, "{{type}} {{operation}}"}}},
				{kind: lines, title: "Refused by the API server", why: "no_error: the webhook said no. calling_webhook_error: it did not answer. Needs the API server's metrics.", width: 12, height: high, unit: "ops",
					queries: []query{{`sum by (type, operation, error_type) (rate(apiserver_admission_webhook_rejection_count{name=~".*kueue-trainer.*"}[$__rate_interval]))`, "{{type}} {{operation}} {{error_type}}"}}},
			}},
			{title: "Processes", panels: []panel{
				{kind: lines, title: "Memory", why: "Of each replica: resident, and of Go's heap.", width: 8, height: high, unit: "bytes",
					queries: []query{
						{ours("process_resident_memory_bytes"), "{{instance}} resident"},
						{ours("go_memstats_heap_inuse_bytes"), "{{instance}} heap"},
					}},
				{kind: lines, title: "CPU", why: "Cores in use, of each replica.", width: 8, height: high, unit: "short",
					queries: []query{{rate("process_cpu_seconds_total"), "{{instance}}"}}},
				{kind: lines, title: "Goroutines", why: "Of each replica. What only grows is a leak.", width: 8, height: high, unit: "short",
					queries: []query{{ours("go_goroutines"), "{{instance}}"}}},
			}},
		},
	}
}
