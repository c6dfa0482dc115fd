// SPDX-License-Identifier: Apache-2.0

// Package metrics is what the manager measures: names, units and labels of its metrics, and the Recorder
// of what happens, which like gauges that are told at each scrape is made of a Metric.
//
// docs/metrics.md is generated from names.go; dashboards and alerts are checked against it.
package metrics

import "slices"

// Type is the type of a metric, as Prometheus names it.
type Type string

// The types that are used.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric describes one metric.
type Metric struct {
	// Name has the unit, and _total for counters, as Prometheus' conventions have it.
	Name string
	Type Type
	// Help is one sentence without a full stop at its end.
	Help string
	// Labels are bounded: by what an admin made, or by words in this package.
	Labels []string
}

// Labels of metrics. Namespace and LocalQueue are empty where labels of LocalQueues are off.
const (
	ClusterQueue  = "cluster_queue"
	Namespace     = "namespace"
	LocalQueue    = "local_queue"
	Flavor        = "flavor"
	Resource      = "resource"
	PriorityClass = "priority_class"
	User          = "user"
	Phase         = "phase"
	Outcome       = "outcome"
	State         = "state"
	Reason        = "reason"
	Kind          = "kind"
	Operation     = "operation"
	Version       = "version"
	Setting       = "setting"
	Revision      = "revision"
	GoVersion     = "goversion"
)

func queueAnd(more ...string) []string {
	return append([]string{ClusterQueue, Namespace, LocalQueue}, more...)
}

// ledgerAnd returns the labels of the ledger and more. User is empty unless the configuration
// names a label of TrainJobs for it.
func ledgerAnd(more ...string) []string {
	return queueAnd(append([]string{Flavor, Resource, PriorityClass, User}, more...)...)
}

// All is every metric of the manager's own, in the order of docs/metrics.md.
var All = slices.Concat(Recorded, Told, Ledger)

// Recorded are those that a Recorder records as things happen.
var Recorded = []Metric{
	AdmittedUntilStarted, StartedUntilReady, AdmittedUntilEnded, EvictedUntilStopped, Starts, Stops,
	UngatedPods, Writes, WebhookRequests,
}

// The metrics of Recorded. What a label may be are the words below of that metric.
var (
	AdmittedUntilStarted = Metric{"kueue_trainer_admitted_until_started_seconds", Histogram,
		"Time from the admission of a TrainJob's Workload until the TrainJob was first resumed", queueAnd()}
	StartedUntilReady = Metric{"kueue_trainer_started_until_ready_seconds", Histogram,
		"Time from the resumption of a TrainJob until all of its pods were ready", queueAnd()}
	// Forecasts are made of it.
	AdmittedUntilEnded = Metric{"kueue_trainer_admitted_until_ended_seconds", Histogram,
		"Time from the last admission of a TrainJob's Workload until the TrainJob succeeded or failed", queueAnd()}
	EvictedUntilStopped = Metric{"kueue_trainer_evicted_until_stopped_seconds", Histogram,
		"Time from the eviction of a TrainJob's Workload until its last pod was gone", queueAnd()}
	Starts = Metric{"kueue_trainer_starts_total", Counter,
		"TrainJobs resumed, for the first time or again after a stop", queueAnd(Kind)}
	// Reasons are those of Kueue's evictions, too.
	Stops = Metric{"kueue_trainer_stops_total", Counter,
		"TrainJobs stopped, by the reason of the eviction or of the manager", queueAnd(Reason)}
	UngatedPods = Metric{"kueue_trainer_ungated_pods_total", Counter,
		"Pods that were made with the admission gate though admitted, freed of it or, at each look, refused that", []string{Outcome}}
	Writes = Metric{"kueue_trainer_writes_total", Counter,
		"Requests of the manager that write, events and leases among them, by resource and outcome; what is in vain was done, and counts twice",
		[]string{Resource, Outcome}}
	// A reason is the field that the refusal names, without keys and indexes, such as spec.runtimePatches; or Kubernetes'
	// word where it names none. Operations are those of Kubernetes and OperationOther.
	WebhookRequests = Metric{"kueue_trainer_webhook_requests_total", Counter,
		"Answers of the webhooks, by what was asked and the field that it was refused for; reason is empty for what is allowed",
		[]string{Kind, Operation, Outcome, Reason}}
)

// Told are those that are found out at each scrape.
var Told = []Metric{
	TrainJobs, StuckTrainJobs, GatedPods,
	TrainerInfo, InTree, KueueConfigurationRead, SettingDiffers, WebhooksEveryTrainJob,
	CertificateExpiry, BuildInfo,
}

// The metrics of Told.
var (
	TrainJobs = Metric{"kueue_trainer_trainjobs", Gauge,
		"TrainJobs of queues that have not finished or hold quota still, by what they do now; the leader tells it", queueAnd(State)}
	// Reasons are reasons of the manager's events.
	StuckTrainJobs = Metric{"kueue_trainer_stuck_trainjobs", Gauge,
		"TrainJobs that wait for what does not come by itself, by the reason of the event that says so; the leader tells it", queueAnd(Reason)}
	GatedPods   = Metric{"kueue_trainer_gated_pods", Gauge, "Pods that hold the admission gate now; the leader tells it", nil}
	TrainerInfo = Metric{"kueue_trainer_trainer_info", Gauge,
		"The release of Trainer that is served; always 1, and absent while it is unknown", []string{Version}}
	InTree = Metric{"kueue_trainer_in_tree_integration", Gauge,
		"Whether Kueue's in-tree integration of TrainJobs is active: 1 for the state that holds, 0 for the others", []string{State}}
	KueueConfigurationRead = Metric{"kueue_trainer_kueue_configuration_read", Gauge,
		"1 while Kueue's configuration can be read and its settings hold here, else 0", nil}
	SettingDiffers = Metric{"kueue_trainer_setting_differs", Gauge,
		"1 for every setting and feature gate of Kueue's that the manager's configuration overrides with another value", []string{Setting}}
	WebhooksEveryTrainJob = Metric{"kueue_trainer_webhooks_every_trainjob", Gauge,
		"1 while the webhooks are asked about every TrainJob, 0 while only about those with a queue; the leader tells it", nil}
	CertificateExpiry = Metric{"kueue_trainer_certificate_expiry_timestamp_seconds", Gauge,
		"When the webhooks' serving certificate ends, in seconds since 1970", nil}
	BuildInfo = Metric{"kueue_trainer_build_info", Gauge,
		"Which build of kueue-trainer this is; always 1", []string{Version, Revision, GoVersion}}
)

// Ledger are those of what TrainJobs hold and held.
var Ledger = []Metric{HeldResources, QuotaSeconds, EndedSeconds, LedgerBegan, LedgerSaved, LedgerUnsaved}

// The metrics of Ledger, which the leader alone tells.
var (
	HeldResources = Metric{"kueue_trainer_held_resources", Gauge,
		"Quota that TrainJobs hold now, in the resource's base unit, by what they do with it", ledgerAnd(Phase)}
	// QuotaSeconds is HeldResources integrated over time.
	QuotaSeconds = Metric{"kueue_trainer_quota_resource_seconds_total", Counter,
		"Quota that TrainJobs held, in the resource's base unit times seconds, by what they did with it", ledgerAnd(Phase)}
	// EndedSeconds is the running part of QuotaSeconds whose end is known.
	EndedSeconds = Metric{"kueue_trainer_ended_resource_seconds_total", Counter,
		"Resource seconds that TrainJobs ran until they succeeded (useful), failed, were evicted (lost) or were deleted", ledgerAnd(Outcome)}
	// LedgerBegan changes where what was saved was lost: then the counters begin again, and at no other time.
	LedgerBegan = Metric{"kueue_trainer_ledger_began_timestamp_seconds", Gauge,
		"When the totals of the resource seconds began at 0, in seconds since 1970", nil}
	LedgerSaved = Metric{"kueue_trainer_ledger_saved_timestamp_seconds", Gauge,
		"When the totals of the resource seconds were saved last, in seconds since 1970", nil}
	LedgerUnsaved = Metric{"kueue_trainer_ledger_unsaved_seconds", Gauge,
		"For how many seconds every attempt to save the totals of the resource seconds has failed; 0 where the last one succeeded", nil}
)

// The values of label state of kueue_trainer_trainjobs.
const (
	// StateWaitingForTrainer: there is no Workload yet.
	StateWaitingForTrainer = "waiting_for_trainer"
	// StateQueued: the Workload is not admitted.
	StateQueued = "queued"
	// StateAdmitted: the Workload is admitted, the TrainJob still suspended.
	StateAdmitted = "admitted"
	// StateStarting: the TrainJob is resumed, and pods are not all ready.
	StateStarting = "starting"
	// StateRunning: every pod that could have started is ready or done.
	StateRunning = "running"
	// StateStopping: evicted, suspended, finished or deleted, and the quota is not given back yet.
	StateStopping = "stopping"
)

// The values of label kind of kueue_trainer_starts_total.
const (
	// StartFirst: the first start that is known of.
	StartFirst = "first"
	// StartAgain: after a stop.
	StartAgain = "again"
)

// The values of label reason of kueue_trainer_stops_total that are the manager's.
const (
	// StopByUser: somebody else than the manager suspended the TrainJob.
	StopByUser = "SuspendedByUser"
	// StopTrainJobDeleted: the TrainJob waits for its dependents to be deleted.
	StopTrainJobDeleted = "TrainJobDeleted"
	// StopRuntimeChanged: its runtime asks for other resources than it was admitted for.
	StopRuntimeChanged = "RuntimeChanged"
	// StopWorkloadDeleted: somebody deleted the Workload, or the job gave its quota back.
	StopWorkloadDeleted = "WorkloadDeleted"
	// StopNotAdmitted: it ran, or was resumed by somebody, without being admitted or placed, or after its end.
	StopNotAdmitted = "NotAdmitted"
	// StopNoMatchingWorkload: its Workload is of another job than it is now.
	StopNoMatchingWorkload = "NoMatchingWorkload"
)

// The values of label outcome of kueue_trainer_ungated_pods_total.
const (
	// UngateFreed: its gate is removed, and it may be bound.
	UngateFreed = "freed"
	// UngateRefused: it was made too unlike its admission, or the write was refused; its TrainJob is told by event UngateRefused.
	UngateRefused = "refused"
)

// The values of label outcome of kueue_trainer_writes_total.
const (
	// WriteDone: the API server has stored it.
	WriteDone = "done"
	// WriteConflict: the object has changed, or is gone, since the manager looked.
	WriteConflict = "conflict"
	// WriteRefused: by validation, a webhook, a policy or a lack of permission.
	WriteRefused = "refused"
	// WriteInVain: done, but not stored as it was meant, because somebody's webhook changes it.
	WriteInVain = "in_vain"
	// WriteFailed: no answer, or one that the request was not dealt with.
	WriteFailed = "failed"
)

// The values of label kind of kueue_trainer_webhook_requests_total.
const (
	// WebhookMutating: it sets suspend and the gate.
	WebhookMutating = "mutating"
	// WebhookValidating: it refuses what could not run.
	WebhookValidating = "validating"
	// WebhookWorkload: it puts the deactivation of Workloads off.
	WebhookWorkload = "workload"
)

// OperationOther is the value of label operation for what the API server never asks.
const OperationOther = "other"

// The values of label outcome of kueue_trainer_webhook_requests_total.
const (
	// AnswerAllowed: the request goes on, changed or as it is.
	AnswerAllowed = "allowed"
	// AnswerRefused: who asked has to change something.
	AnswerRefused = "refused"
	// AnswerFailed: the webhook could not decide, which refuses the request, too.
	AnswerFailed = "failed"
)

// The values of label state of kueue_trainer_in_tree_integration.
const (
	// InTreeActive: both are active, and this manager stands aside.
	InTreeActive = "active"
	// InTreeOff: TrainJobs are in this manager's hands.
	InTreeOff = "off"
	// InTreeUnknown: there was no answer yet, or none for long since the last one, which was off.
	InTreeUnknown = "unknown"
)

// The values of label phase.
const (
	// PhaseWaiting: quota is held and pods are not all ready yet.
	PhaseWaiting = "waiting"
	// PhaseRunning: every pod that could have started is ready or done; where Kueue does not wait for pods, the first Job of the TrainJob has started.
	PhaseRunning = "running"
	// PhaseStopping: evicted, finished or deleted, and pods are left.
	PhaseStopping = "stopping"
)

// The values of label outcome of kueue_trainer_ended_resource_seconds_total.
const (
	// OutcomeUseful: the TrainJob succeeded.
	OutcomeUseful = "useful"
	// OutcomeLost: it was evicted, and has to do it again.
	OutcomeLost = "lost"
	// OutcomeFailed: the TrainJob failed, or has reached its time limit.
	OutcomeFailed = "failed"
	// OutcomeDeleted: somebody deleted the TrainJob or its Workload.
	OutcomeDeleted = "deleted"
)
