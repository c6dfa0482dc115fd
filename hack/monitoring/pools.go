// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/kueue-trainer/kueue-trainer/pkg/metrics"

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
