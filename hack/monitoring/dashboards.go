// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/kueue-trainer/kueue-trainer/pkg/metrics"

// What variables pick. Kueue's series of ClusterQueues have no namespace.
const (
	queues        = `cluster_queue=~"$cluster_queue", namespace=~"$namespace"`
	clusterQueues = `cluster_queue=~"$cluster_queue"`
)

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

// pools is where a platform lead sees who has what.
func pools() board {
	const (
		resource = `resource="$resource"`
		ofTeams  = queues + ", " + resource
		ofKueue  = clusterQueues + ", " + resource
	)
	held := func(by, filter string) string {
		return "sum by (" + by + ") (" + latest(metrics.HeldResources, ofTeams+filter) + ")"
	}
	kueue := func(by, metric string) string {
		return "sum by (" + by + ") (max by (cluster_queue, flavor) (" + metric + "{" + ofKueue + "}))"
	}
	hours := func(of metrics.Metric, filter string) string {
		return "sum by (cluster_queue, namespace, local_queue) (" + over(of, ofTeams+filter, shown) + ") / 3600"
	}
	return board{
		file: "gpu-pools", title: "GPU pools",
		description: "What the pools have, who holds it, and what comes of it.",
		variables: append(queueVariables(), variable{
			name: "resource", label: "Resource", one: true, first: "nvidia.com/gpu",
			query: "label_values(kueue_cluster_queue_nominal_quota, resource)",
		}),
		rows: []row{
			{title: "Pools", panels: []panel{
				{kind: number, title: "Quota", why: "Of the chosen ClusterQueues.", width: 6, height: low, unit: "short",
					queries: []query{{"sum(" + kueue("flavor", "kueue_cluster_queue_nominal_quota") + ")", ""}}},
				{kind: number, title: "Reserved", why: "By all kinds of jobs.", width: 6, height: low, unit: "short",
					queries: []query{{"sum(" + kueue("flavor", "kueue_cluster_queue_resource_reservation") + ")", ""}}},
				{kind: number, title: "Running TrainJobs", why: "Held by TrainJobs all of whose pods are ready.", width: 6, height: low, unit: "short",
					queries: []query{{"sum(" + latest(metrics.HeldResources, ofTeams+`, phase="running"`) + ") or vector(0)", ""}}},
				{kind: number, title: "Waited for", why: "What Workloads in the queues ask for.", width: 6, height: low, unit: "short",
					queries: []query{{"sum(max by (cluster_queue) (kueue_cluster_queue_resource_pending{" + ofKueue + "}))", ""}}},
				{kind: lines, title: "By pool", why: "Quota, what is reserved of it by any job, and what TrainJobs run on. A pool is a ResourceFlavor.", width: 12, height: high, unit: "short",
					queries: []query{
						{kueue("flavor", "kueue_cluster_queue_nominal_quota"), "{{flavor}} quota"},
						{kueue("flavor", "kueue_cluster_queue_resource_reservation"), "{{flavor}} reserved"},
						{held("flavor", `, phase="running"`), "{{flavor}} running"},
					}},
				{kind: stacked, title: "What TrainJobs do with it", why: "Waiting and stopping hold quota, and nothing is trained.", width: 12, height: high, unit: "short",
					queries: []query{{held("phase", ""), "{{phase}}"}}},
			}},
			{title: "Teams", panels: []panel{
				{kind: stacked, title: "By queue", why: "What the TrainJobs of each LocalQueue hold.", width: 12, height: high, unit: "short",
					queries: []query{{held("namespace, local_queue", ""), "{{namespace}}/{{local_queue}}"}}},
				{kind: stacked, title: "By priority", why: "What the TrainJobs of each priority class hold.", width: 12, height: high, unit: "short",
					queries: []query{{held("priority_class", ""), "{{priority_class}}"}}},
				{kind: rows, title: "Hours in the time shown", why: "One unit of the resource for an hour, of what TrainJobs held. kubectl trainjob usage prints the bill.", width: 24, height: high, unit: "short",
					queries: []query{
						{hours(metrics.QuotaSeconds, `, phase="running"`), "running"},
						{hours(metrics.QuotaSeconds, `, phase="waiting"`), "waiting"},
						{hours(metrics.QuotaSeconds, `, phase="stopping"`), "stopping"},
						{hours(metrics.EndedSeconds, `, outcome="useful"`), "useful"},
						{hours(metrics.EndedSeconds, `, outcome="lost"`), "lost to evictions"},
						{hours(metrics.EndedSeconds, `, outcome!~"useful|lost"`), "failed or deleted"},
					}},
				{kind: lines, title: "Share lost to evictions (of the last day)", why: "Of the time that has ended: what was running when Kueue took the quota back.", width: 12, height: high, unit: "percentunit",
					queries: []query{{
						"sum by (cluster_queue) (" + over(metrics.EndedSeconds, ofTeams+`, outcome="lost"`, day) + ")\n/ sum by (cluster_queue) (" +
							over(metrics.EndedSeconds, ofTeams, day) + ")", "{{cluster_queue}}"}}},
				{kind: lines, title: "Share held without ready pods", why: "Waiting for pods, or for the last one to end.", width: 12, height: high, unit: "percentunit",
					queries: []query{{held("cluster_queue", `, phase!="running"`) + "\n/ " + held("cluster_queue", ""), "{{cluster_queue}}"}}},
			}},
			{title: "Nodes and GPUs: needs kube-state-metrics and NVIDIA's DCGM exporter", collapsed: true, panels: []panel{
				{kind: lines, title: "GPUs of nodes", why: "What nodes have, and what pods ask for. Needs kube-state-metrics.", width: 12, height: high, unit: "short",
					queries: []query{
						{`sum(kube_node_status_allocatable{resource="nvidia_com_gpu"})`, "allocatable"},
						{`sum(kube_pod_container_resource_requests{resource="nvidia_com_gpu", namespace=~"$namespace"} * on (namespace, pod) group_left () (kube_pod_status_phase{phase="Running"} == 1))`, "of running pods"},
					}},
				{kind: lines, title: "Busy", why: "How busy the GPUs of each node are. Needs the DCGM exporter.", width: 12, height: high, unit: "percent",
					queries: []query{{`avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)`, "{{Hostname}}"}}},
				{kind: lines, title: "Idle GPUs of pods", why: "GPUs that a pod holds and does not use. Needs the DCGM exporter.", width: 12, height: high, unit: "short",
					queries: []query{{`count(DCGM_FI_DEV_GPU_UTIL{pod!=""} < 5)`, "busy less than 5 %"}}},
				{kind: lines, title: "Memory of GPUs", why: "Used, in MiB. Needs the DCGM exporter.", width: 12, height: high, unit: "mbytes",
					queries: []query{{`sum by (Hostname) (DCGM_FI_DEV_FB_USED)`, "{{Hostname}}"}}},
			}},
		},
	}
}

// ours leaves only the series of the manager's own processes, whatever Prometheus calls its job.
func ours(series string) string { return series + " and on (job, instance) kueue_trainer_build_info" }

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
