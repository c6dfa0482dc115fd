// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// What the loader reads.
const (
	nodes           Kind = "nodes"
	pods            Kind = "pods"
	flavors         Kind = "resourceflavors.kueue.x-k8s.io"
	clusterQueues   Kind = "clusterqueues.kueue.x-k8s.io"
	cohorts         Kind = "cohorts.kueue.x-k8s.io"
	localQueues     Kind = "localqueues.kueue.x-k8s.io"
	admissionChecks Kind = "admissionchecks.kueue.x-k8s.io"
	workloads       Kind = "workloads.kueue.x-k8s.io"
	// schedulerView is what Kueue's scheduler makes of the inventory.
	schedulerView Kind = "Kueue's view of queues and quotas"

	namespaceKind Kind = "namespaces"
	events        Kind = "events"
	trainJobs     Kind = "trainjobs.trainer.kubeflow.org"
	jobSets       Kind = "jobsets.jobset.x-k8s.io"
	jobs          Kind = "jobs.batch"
	classes       Kind = "workloadpriorityclasses.kueue.x-k8s.io"
	crds          Kind = "customresourcedefinitions.apiextensions.k8s.io"
	mutating      Kind = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	validating    Kind = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	// admissionPolicies are read with their bindings.
	admissionPolicies Kind = "validatingadmissionpolicies.admissionregistration.k8s.io"
	services          Kind = "services"
	endpointSlices    Kind = "endpointslices.discovery.k8s.io"
	deployments       Kind = "deployments.apps"
	configMaps        Kind = "configmaps"
	leases            Kind = "leases.coordination.k8s.io"
	clusterRoles      Kind = "clusterroles.rbac.authorization.k8s.io"
	roleBindings      Kind = "rolebindings.rbac.authorization.k8s.io"

	trainJobProbe Kind = "a TrainJob made as a dry run"
	jobSetProbe   Kind = "a JobSet made as a dry run"
	flavorProbe   Kind = "a ResourceFlavor made as a dry run"
)

// verb is what one has to be allowed.
func (k Kind) verb() string {
	switch k {
	case trainJobProbe, jobSetProbe, flavorProbe:
		return "make one"
	case accessReviews:
		return "make them"
	case secrets:
		return "get them"
	}
	return "list them"
}

// loader reads the facts. What it cannot read it notes, and goes on.
type loader struct {
	client client.Client
	facts  *Facts
}

// Load reads the whole installation. Dry runs are made in the namespace.
func Load(ctx context.Context, c client.Client, namespace string) *Facts {
	l := &loader{client: c, facts: &Facts{Now: time.Now(), Inventory: &inventory.Inventory{}, Unread: map[Kind]error{}}}
	l.installation(ctx)
	l.inventory(ctx)
	l.trainJobs(ctx)
	l.fleet(ctx)
	l.probe(ctx, namespace)
	return l.facts
}

// installation reads what the parts consist of.
func (l *loader) installation(ctx context.Context) {
	f := l.facts
	list(ctx, l, crds, &apiextensionsv1.CustomResourceDefinitionList{}, func(list *apiextensionsv1.CustomResourceDefinitionList) { f.CRDs = list.Items })
	list(ctx, l, mutating, &admissionregistrationv1.MutatingWebhookConfigurationList{}, func(list *admissionregistrationv1.MutatingWebhookConfigurationList) { f.Mutating = list.Items })
	list(ctx, l, validating, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, func(list *admissionregistrationv1.ValidatingWebhookConfigurationList) { f.Validating = list.Items })
	list(ctx, l, admissionPolicies, &admissionregistrationv1.ValidatingAdmissionPolicyList{}, func(list *admissionregistrationv1.ValidatingAdmissionPolicyList) { f.Policies = list.Items })
	list(ctx, l, admissionPolicies, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, func(list *admissionregistrationv1.ValidatingAdmissionPolicyBindingList) {
		f.PolicyBindings = list.Items
	})
	list(ctx, l, clusterRoles, &rbacv1.ClusterRoleList{}, func(list *rbacv1.ClusterRoleList) { f.ClusterRoles = list.Items })
	list(ctx, l, clusterRoles, &rbacv1.ClusterRoleBindingList{}, func(list *rbacv1.ClusterRoleBindingList) { f.ClusterRoleBindings = list.Items })
	// The manager first: its configuration says where Kueue is.
	for _, p := range slices.Backward(parts) {
		in := client.InNamespace(f.at(p).Namespace)
		list(ctx, l, services, &corev1.ServiceList{}, func(list *corev1.ServiceList) { f.Services = append(f.Services, list.Items...) }, in)
		list(ctx, l, endpointSlices, &discoveryv1.EndpointSliceList{}, func(list *discoveryv1.EndpointSliceList) { f.EndpointSlices = append(f.EndpointSlices, list.Items...) }, in)
		l.deployed(ctx, p)
		list(ctx, l, leases, &coordinationv1.LeaseList{}, func(list *coordinationv1.LeaseList) { f.Leases = append(f.Leases, list.Items...) }, in)
	}
	for _, p := range []*part{managerPart, kueuePart} {
		in := client.InNamespace(f.at(p).Namespace)
		list(ctx, l, roleBindings, &rbacv1.RoleList{}, func(list *rbacv1.RoleList) { f.Roles = append(f.Roles, list.Items...) }, in)
		list(ctx, l, roleBindings, &rbacv1.RoleBindingList{}, func(list *rbacv1.RoleBindingList) { f.RoleBindings = append(f.RoleBindings, list.Items...) }, in)
	}
}

// deployed reads how a part is run.
func (l *loader) deployed(ctx context.Context, p *part) {
	f, in := l.facts, client.InNamespace(l.facts.at(p).Namespace)
	list(ctx, l, deployments, &appsv1.DeploymentList{}, func(list *appsv1.DeploymentList) { f.Deployments = append(f.Deployments, list.Items...) }, in)
	list(ctx, l, configMaps, &corev1.ConfigMapList{}, func(list *corev1.ConfigMapList) { f.ConfigMaps = append(f.ConfigMaps, list.Items...) }, in)
}

// inventory reads nodes, queues and Workloads. Without Kueue there is nothing to join.
func (l *loader) inventory(ctx context.Context) {
	if l.facts.Unread[crds] == nil && l.facts.crd(cluster.Kueue.CRD) == nil {
		return
	}
	read, err := inventory.Load(ctx, l.client)
	if read != nil {
		l.facts.Inventory = read
	}
	for _, unseen := range l.facts.Unseen {
		l.facts.Unread[Kind(unseen.Kind)] = unseen.Err
	}
	if err == nil {
		if l.facts.Cluster, err = explain.NewCluster(ctx, l.facts.Inventory); err != nil {
			l.facts.Unread[schedulerView] = err
		}
		return
	}
	for _, kind := range []Kind{nodes, pods, flavors, clusterQueues, cohorts, localQueues, admissionChecks, workloads, schedulerView} {
		l.facts.Unread[kind] = err
	}
}

func (l *loader) trainJobs(ctx context.Context) {
	f := l.facts
	list(ctx, l, namespaceKind, &corev1.NamespaceList{}, func(list *corev1.NamespaceList) { f.Namespaces = list.Items })
	for _, told := range []client.MatchingFields{{"type": corev1.EventTypeWarning}, {"involvedObject.kind": "Pod", "reason": explain.ImagePulled}} {
		list(ctx, l, events, &corev1.EventList{}, func(list *corev1.EventList) { f.Events = append(f.Events, list.Items...) }, told)
	}
	list(ctx, l, trainJobs, &trainjob.List{}, func(list *trainjob.List) { f.TrainJobs = list.Items })
	stored := &unstructured.UnstructuredList{}
	stored.SetGroupVersionKind(trainjob.GVK)
	list(ctx, l, trainJobs, stored, func(list *unstructured.UnstructuredList) { f.ProcessesByName = processesByName(list.Items) })
	list(ctx, l, classes, &kueue.WorkloadPriorityClassList{}, func(list *kueue.WorkloadPriorityClassList) { f.PriorityClasses = list })
	list(ctx, l, jobSets, &jobsetapi.JobSetList{}, func(list *jobsetapi.JobSetList) { f.JobSets = list.Items })
	list(ctx, l, jobs, &batchv1.JobList{}, func(list *batchv1.JobList) { f.Jobs = list.Items }, client.HasLabels{jobsetapi.JobSetNameKey})
}

// list reads one kind. A kind that is not served has no objects: that its CRD is missing
// is a finding of its own.
func list[L client.ObjectList](ctx context.Context, l *loader, kind Kind, into L, take func(L), options ...client.ListOption) {
	err := l.client.List(ctx, into, options...)
	switch {
	case err == nil:
		take(into)
	case !apimeta.IsNoMatchError(err) && !apierrors.IsNotFound(err):
		l.facts.Unread[kind] = err
	}
}
