// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Facts are what the checks look at. Of an object that is not there, there is nothing.
type Facts struct {
	Now time.Time
	// Inventory has nodes, flavors, queues and Workloads.
	*inventory.Inventory

	// Cluster is the scheduler's view of the Inventory; nil where there is none.
	Cluster *explain.Cluster

	Namespaces []corev1.Namespace
	// Events are warnings, and what kubelets say of images that they pull.
	Events    []corev1.Event
	TrainJobs []trainjob.TrainJob
	// ProcessesByName are names by namespace; no TrainJob here has what makes them so.
	ProcessesByName map[string][]string
	// PriorityClasses are Kueue's.
	PriorityClasses []kueue.WorkloadPriorityClass
	JobSets         []jobsetapi.JobSet
	// Jobs of JobSets.
	Jobs []batchv1.Job

	CRDs       []apiextensionsv1.CustomResourceDefinition
	Mutating   []admissionregistrationv1.MutatingWebhookConfiguration
	Validating []admissionregistrationv1.MutatingWebhookConfiguration // see asMutating

	Policies       []admissionregistrationv1.ValidatingAdmissionPolicy
	PolicyBindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding

	// Of the namespaces of the parts.
	Services       []corev1.Service
	EndpointSlices []discoveryv1.EndpointSlice
	Deployments    []appsv1.Deployment
	ConfigMaps     []corev1.ConfigMap
	Leases         []coordinationv1.Lease

	// Roles and RoleBindings of the manager's namespace, and those of the cluster, which have none.
	Roles        []rbacv1.Role
	RoleBindings []rbacv1.RoleBinding

	// Probed is a queued TrainJob as the webhooks of every part left it, which was not stored; nil without an answer.
	Probed *trainjob.TrainJob
	// Refusals are why the object of a probe was refused.
	Refusals map[Kind]error

	// What a manager cluster of MultiKueue knows of workers; Workers have an entry for each MultiKueueCluster.
	MultiKueueClusters []kueue.MultiKueueCluster
	MultiKueueConfigs  []kueue.MultiKueueConfig
	Workers            []Worker
	// Runtimes are read of such a cluster and of its workers; those of all namespaces have none.
	Runtimes []trainer.TrainingRuntime

	// Unread is what could not be read, and why.
	Unread map[Kind]error
}

// Kind is what the loader reads in one go: a resource as RBAC names it, or a probe.
type Kind string

// crd returns a CRD by its name, or nil.
func (f *Facts) crd(name string) *apiextensionsv1.CustomResourceDefinition {
	return inventory.Find(f.CRDs, "", name)
}

// generation is that of the served Trainer; 0 where it is unknown.
func (f *Facts) generation() trainjob.TrainerVersion {
	crd := f.crd(trainjob.CRDName)
	if crd == nil {
		return 0
	}
	generation, _ := trainjob.TrainerVersionOf(crd)
	return generation
}

// deployment returns the Deployment of a part, or nil.
func (f *Facts) deployment(p *part) *appsv1.Deployment {
	return inventory.Find(f.Deployments, f.at(p).Namespace, p.Deployment)
}

// configMap returns the configuration of a part, or nil. Of several that carry suffixes
// it is the one that the Deployment mounts, or else the newest.
func (f *Facts) configMap(p *part) *corev1.ConfigMap {
	at := f.at(p)
	elsewhere := func(cm corev1.ConfigMap) bool { return cm.Namespace != at.Namespace }
	return cluster.ConfigMapOf(f.deployment(p), slices.DeleteFunc(slices.Clone(f.ConfigMaps), elsewhere), at.ConfigMap)
}

// managerInstalled reports whether kueue-trainer is there, in whatever state.
func (f *Facts) managerInstalled() bool {
	return f.deployment(managerPart) != nil || slices.ContainsFunc(f.webhooks(), func(w webhook) bool { return w.part == managerPart })
}

// integration is who takes TrainJobs into queues, as far as the API server can tell.
type integration int

const (
	// unknown is without an answer to the probe.
	unknown integration = iota
	nobody
	inTree
	external
)

// integrates tells by the probe who takes TrainJobs into queues. While both are active
// kueue-trainer stands aside, and it is the in-tree integration.
func (f *Facts) integrates() integration {
	job := f.Probed
	switch {
	case job == nil:
		return unknown
	case !job.Suspended() && f.leftOut(job.Namespace):
		return unknown
	case !job.Suspended():
		return nobody
	case patch.HoldsGate(&job.Spec):
		return external
	default:
		return inTree
	}
}

// failedWebhook returns the name of the webhook that did not answer, and what the API
// server says of it; empty when err is of another kind.
func failedWebhook(err error) (name, reason string) {
	_, rest, _ := strings.Cut(fmt.Sprint(err), `failed calling webhook "`)
	name, reason, _ = strings.Cut(rest, `": `)
	return name, strings.TrimPrefix(reason, "failed to call webhook: ")
}
