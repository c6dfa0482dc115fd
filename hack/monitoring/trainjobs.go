// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/kueue-trainer/kueue-trainer/pkg/metrics"

// What variables pick. Kueue's series of ClusterQueues have no namespace.
const (
	queues        = `cluster_queue=~"$cluster_queue", namespace=~"$namespace"`
	clusterQueues = `cluster_queue=~"$cluster_queue"`
)

// queueVariables are those of dashboards that are about queues.
func queueVariables() []variable {
	return []variable{
		{name: "cluster_queue", label: "ClusterQueue", query: "label_values(kueue_cluster_queue_status, cluster_queue)"},
		{name: "namespace", label: "Namespace",
			query: "label_values(kueue_trainer_quota_resource_seconds_total{" + clusterQueues + "}, namespace)"},
	}
}

// times are how long half of the jobs of a ClusterQueue took at the most, and all but one in twenty.
func times(histogram, filter string) []query {
	return []query{
		{quantile(0.5, histogram, filter), "{{cluster_queue}} half"},
		{quantile(0.95, histogram, filter), "{{cluster_queue}} 95 %"},
	}
}

// trainJobs is an admin's one page.
func trainJobs() board {
	inState := func(states string) string {
		return "sum(" + latest(metrics.TrainJobs, queues+`, state=~"`+states+`"`) + ") or vector(0)"
	}
	stuck := latest(metrics.StuckTrainJobs, queues)
	return board{
		file: "trainjobs", title: "TrainJobs", variables: queueVariables(),
		description: "Do TrainJobs get what they ask for, how long do they wait, and which are stuck?",
		rows: []row{
			{title: "Now", panels: []panel{
				{kind: number, title: "Running", why: "All pods are ready.", width: 4, height: low, unit: "short",
					queries: []query{{inState(metrics.StateRunning), ""}}},
				{kind: number, title: "Starting", why: "Admitted, and not all pods are ready: quota is held.", width: 4, height: low, unit: "short",
					queries: []query{{inState(metrics.StateAdmitted + "|" + metrics.StateStarting), ""}}},
				{kind: number, title: "Queued", why: "Wait for quota.", width: 4, height: low, unit: "short",
					queries: []query{{inState(metrics.StateQueued), ""}}},
				{kind: number, title: "Waiting for Trainer", why: "New, and Trainer has not made their JobSets yet.", width: 4, height: low, unit: "short",
					queries: []query{{inState(metrics.StateWaitingForTrainer), ""}}},
				{kind: number, title: "Stopping", why: "Evicted, and pods are left: quota is held.", width: 4, height: low, unit: "short",
					queries: []query{{inState(metrics.StateStopping), ""}}},
				{kind: number, title: "Stuck", why: "Wait for what does not come by itself: somebody has to act.", width: 4, height: low, unit: "short", bad: 1,
					queries: []query{{"sum(" + stuck + ") or vector(0)", ""}}},
			}},
			{title: "Queues", panels: []panel{
				{kind: stacked, title: "TrainJobs by state", why: "What TrainJobs that have not finished do.", width: 12, height: high, unit: "short",
					queries: []query{{"sum by (state) (" + latest(metrics.TrainJobs, queues) + ")", "{{state}}"}}},
				{kind: stacked, title: "Workloads that wait, by ClusterQueue", why: "All kinds of jobs. Inadmissible ones wait for a change of quota, or for ever.", width: 12, height: high, unit: "short",
					queries: []query{{"sum by (cluster_queue, status) (max by (cluster_queue, status) (kueue_pending_workloads{" + clusterQueues + "}))", "{{cluster_queue}} {{status}}"}}},
			}},
			{title: "How long it takes (of the last 30 minutes)", panels: []panel{
				{kind: lines, title: "From queued to admitted", why: "All kinds of jobs: half of them waited shorter, one in twenty longer.", width: 12, height: high, unit: "s",
					queries: times("kueue_admission_wait_time_seconds", clusterQueues)},
				{kind: lines, title: "From admitted to resumed", why: "What kueue-trainer takes: quota is held, and no pod is made.", width: 12, height: high, unit: "s",
					queries: times(metrics.AdmittedUntilStarted.Name, queues)},
				{kind: lines, title: "From resumed to ready", why: "Scheduling, images, containers, until all pods are ready.", width: 12, height: high, unit: "s",
					queries: times(metrics.StartedUntilReady.Name, queues)},
				{kind: lines, title: "From evicted to stopped", why: "Checkpoints and grace periods: the quota is given back when the last pod is gone.", width: 12, height: high, unit: "s",
					queries: times(metrics.EvictedUntilStopped.Name, queues)},
			}},
			{title: "Stuck and stopped", panels: []panel{
				{kind: rows, title: "Stuck TrainJobs", why: "By the reason of the event that says what to do: kubectl trainjob explain NAME.", width: 12, height: high, unit: "short",
					queries: []query{{stuck + " > 0", "TrainJobs"}}},
				{kind: rows, title: "Alerts", why: "What fires or is about to, where the rules of config/monitoring are installed.", width: 12, height: high, unit: "short",
					queries: []query{{`max by (alertname, alertstate, severity, namespace, local_queue, reason) (ALERTS{alertname=~"KueueTrainer.+"})`, ""}}},
				{kind: stacked, title: "Starts", why: "First ones, and those again after a stop.", width: 8, height: high, unit: "short",
					queries: []query{{"sum by (kind) (increase(" + metrics.Starts.Name + "{" + queues + "}[$__rate_interval]))", "{{kind}}"}}},
				{kind: stacked, title: "Stops", why: "By the reason of Kueue's eviction, or of the manager.", width: 8, height: high, unit: "short",
					queries: []query{{"sum by (reason) (increase(" + metrics.Stops.Name + "{" + queues + "}[$__rate_interval])) > 0", "{{reason}}"}}},
				{kind: stacked, title: "Preemptions", why: "All kinds of jobs, by the ClusterQueue that took the quota.", width: 8, height: high, unit: "short",
					queries: []query{{`sum by (preempting_cluster_queue, reason) (increase(kueue_preempted_workloads_total{preempting_cluster_queue=~"$cluster_queue"}[$__rate_interval]))`,
						"{{preempting_cluster_queue}} {{reason}}"}}},
			}},
		},
	}
}
