// SPDX-License-Identifier: Apache-2.0

// Package rbac has no code: it says what the manager may do, and nothing else. config/rbac/role.yaml is made from this.
package rbac

// TrainJobs are started, stopped and, under a retention policy, deleted; they own
// their Workloads, which the finalizers subresource stands for.
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=trainjobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=trainer.kubeflow.org,resources=clustertrainingruntimes;trainingruntimes,verbs=get;list;watch
//
// The runtime as Trainer froze it stands in a ConfigMap per TrainJob, and the settings that Kueue and the manager share
// in Kueue's own configuration.
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get
//
// Child Jobs are brought to their placement, pods lose their gate.
// +kubebuilder:rbac:groups=jobset.x-k8s.io,resources=jobsets,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=batch,resources=jobs/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;patch
//
// The policies of config/policies let those write what they guard who may write this
// resource, which no API serves, in every namespace.
// +kubebuilder:rbac:groups=kueue-trainer.dev,resources=guarded,verbs=create;update;delete
//
// Kueue's objects. Only Workloads are written.
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=workloads/status,verbs=patch
// +kubebuilder:rbac:groups=kueue.x-k8s.io,resources=admissionchecks;clusterqueues;localqueues;resourceflavors;workloadpriorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=workloads.kueue.x-k8s.io;trainjobs.trainer.kubeflow.org,verbs=get;list;watch
//
// Events are told, and those about a job that cannot start are read: a refused JobSet, Job or
// pod shows nowhere else.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;list;patch
//
// Who may read the metrics is asked of the API server.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
//
// Whether Kueue's in-tree integration is active shows in a TrainJob made as a dry run.
// +kubebuilder:rbac:groups=trainer.kubeflow.org,namespace=kueue-trainer-system,resources=trainjobs,verbs=create
//
// Leader election and the serving certificate, in the manager's own namespace; the
// certificate's authority goes into our two webhook configurations.
// What TrainJobs held is saved in one ConfigMap there.
// +kubebuilder:rbac:groups="",namespace=kueue-trainer-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=kueue-trainer-system,resources=configmaps,resourceNames=kueue-trainer-ledger,verbs=update
//
// Leader election tells of itself by events of the old kind.
// +kubebuilder:rbac:groups="",namespace=kueue-trainer-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kueue-trainer-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=kueue-trainer-system,resources=secrets,resourceNames=kueue-trainer-webhook-server-cert,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=kueue-trainer-mutating-webhook-configuration,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=kueue-trainer-validating-webhook-configuration,verbs=get;list;watch;update
