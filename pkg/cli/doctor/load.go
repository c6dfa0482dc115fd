// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// What the loader reads.
const (
	nodes           Kind = inventory.Nodes
	pods            Kind = inventory.Pods
	flavors         Kind = inventory.Flavors
	topologies      Kind = inventory.Topologies
	clusterQueues   Kind = inventory.ClusterQueues
	cohorts         Kind = inventory.Cohorts
	localQueues     Kind = inventory.LocalQueues
	admissionChecks Kind = inventory.AdmissionChecks
	workloads       Kind = inventory.Workloads
	schedulerView   Kind = "Kueue's view of queues and quotas" // what Kueue's scheduler makes of the inventory

	namespaceKind     Kind = "namespaces"
	events            Kind = "events"
	trainJobs         Kind = "trainjobs.trainer.kubeflow.org"
	jobSets           Kind = "jobsets.jobset.x-k8s.io"
	jobs              Kind = "jobs.batch"
	classes           Kind = "workloadpriorityclasses.kueue.x-k8s.io"
	crds              Kind = "customresourcedefinitions.apiextensions.k8s.io"
	mutating          Kind = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	validating        Kind = "validatingwebhookconfigurations.admissionregistration.k8s.io"
	admissionPolicies Kind = "validatingadmissionpolicies.admissionregistration.k8s.io" // with their bindings
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

// probes are in the order of how many webhooks are asked.
var probes = []Kind{flavorProbe, jobSetProbe, trainJobProbe}

// verb is what one has to be allowed.
func (k Kind) verb() string {
	if slices.Contains(probes, k) {
		return "make one"
	}
	return cmp.Or(map[Kind]string{accessReviews: "make them", secrets: "get them"}[k], "list them")
}

// loader reads the facts. What it cannot read it notes, and goes on.
type loader struct {
	client client.Client
	facts  *Facts
}

func newLoader(c client.Client, now time.Time) *loader {
	return &loader{client: c, facts: &Facts{Now: now, Inventory: &inventory.Inventory{}, Unread: map[Kind]error{}}}
}

// Load reads the whole installation. Dry runs are made in the namespace.
func Load(ctx context.Context, c client.Client, namespace string) *Facts {
	l := newLoader(c, time.Now())
	l.installation(ctx)
	l.inventory(ctx)
	l.trainJobs(ctx)
	l.fleet(ctx)
	l.probe(ctx, namespace)
	return l.facts
}

func (l *loader) installation(ctx context.Context) {
	f := l.facts
	list(ctx, l, crds, &f.CRDs)
	list(ctx, l, mutating, &f.Mutating)
	var onlyValidating []admissionregistrationv1.ValidatingWebhookConfiguration
	list(ctx, l, validating, &onlyValidating)
	f.Validating = kueuelib.Map(onlyValidating, asMutating)
	list(ctx, l, admissionPolicies, &f.Policies)
	list(ctx, l, admissionPolicies, &f.PolicyBindings)
	// The manager first: its configuration says where Kueue is.
	for _, p := range slices.Backward(parts) {
		in := client.InNamespace(f.at(p).Namespace)
		list(ctx, l, services, &f.Services, in)
		list(ctx, l, endpointSlices, &f.EndpointSlices, in)
		list(ctx, l, leases, &f.Leases, in)
		l.deployed(ctx, p)
	}
	l.roles(ctx, client.InNamespace(f.at(managerPart).Namespace))
}

func (l *loader) roles(ctx context.Context, in client.InNamespace) {
	f := l.facts
	var roles []rbacv1.ClusterRole
	var bindings []rbacv1.ClusterRoleBinding
	list(ctx, l, clusterRoles, &roles)
	list(ctx, l, clusterRoles, &bindings)
	f.Roles = kueuelib.Map(roles, func(r *rbacv1.ClusterRole) rbacv1.Role { return rbacv1.Role{ObjectMeta: r.ObjectMeta, Rules: r.Rules} })
	f.RoleBindings = kueuelib.Map(bindings, func(b *rbacv1.ClusterRoleBinding) rbacv1.RoleBinding { return rbacv1.RoleBinding(*b) })
	list(ctx, l, roleBindings, &f.Roles, in)
	list(ctx, l, roleBindings, &f.RoleBindings, in)
}

// deployed reads how a part is run.
func (l *loader) deployed(ctx context.Context, p *part) {
	in := client.InNamespace(l.facts.at(p).Namespace)
	list(ctx, l, deployments, &l.facts.Deployments, in)
	list(ctx, l, configMaps, &l.facts.ConfigMaps, in)
}

// inventory reads nodes, queues and Workloads. Without Kueue there is nothing to join.
func (l *loader) inventory(ctx context.Context) {
	f := l.facts
	if f.Unread[crds] == nil && f.crd(cluster.Kueue.CRD) == nil {
		return
	}
	var unread map[string]error
	f.Inventory, unread = inventory.LoadAll(ctx, l.client)
	for kind, err := range unread {
		l.note(Kind(kind), err)
	}
	if err := unread[string(workloads)]; notServed(err) { // Its CRD is there, in versions that are not ours.
		for _, kind := range []Kind{flavors, topologies, clusterQueues, cohorts, localQueues, admissionChecks, workloads, schedulerView} {
			f.Unread[kind] = err
		}
		return
	}
	var err error
	if f.Cluster, err = explain.NewCluster(ctx, f.Inventory); err != nil {
		f.Unread[schedulerView] = err
	}
}

func (l *loader) trainJobs(ctx context.Context) {
	f := l.facts
	list(ctx, l, namespaceKind, &f.Namespaces)
	list(ctx, l, events, &f.Events, client.MatchingFields{"type": corev1.EventTypeWarning})
	list(ctx, l, events, &f.Events, client.MatchingFields{"involvedObject.kind": "Pod", "reason": explain.ImagePulled})
	list(ctx, l, trainJobs, &f.TrainJobs)
	l.processesByName(ctx)
	list(ctx, l, classes, &f.PriorityClasses)
	list(ctx, l, jobSets, &f.JobSets)
	list(ctx, l, jobs, &f.Jobs, client.HasLabels{jobsetapi.JobSetNameKey})
}

// processesByName finds TrainJobs whose numProcPerNode is a text: what Trainer 2.1 takes, the API server goes on giving out.
func (l *loader) processesByName(ctx context.Context) {
	stored := &unstructured.UnstructuredList{}
	stored.SetGroupVersionKind(trainjob.GVK)
	if err := l.client.List(ctx, stored); err != nil {
		l.note(trainJobs, err)
	}
	l.facts.ProcessesByName = map[string][]string{}
	for _, job := range stored.Items {
		value, _, _ := unstructured.NestedFieldNoCopy(job.Object, "spec", "trainer", "numProcPerNode")
		if _, isText := value.(string); isText {
			l.facts.ProcessesByName[job.GetNamespace()] = append(l.facts.ProcessesByName[job.GetNamespace()], job.GetName())
		}
	}
}

// list reads objects of one kind, and adds them to those that are known.
func list[T any, P inventory.Object[T]](ctx context.Context, l *loader, kind Kind, into *[]T, options ...client.ListOption) {
	found, err := inventory.List[T, P](ctx, l.client, options...)
	if err != nil {
		l.note(kind, err)
	}
	*into = append(*into, found...)
}

// note takes down why a kind could not be read. One that is not served has no objects, of which its CRD tells.
func (l *loader) note(kind Kind, err error) {
	if !notServed(err) {
		l.facts.Unread[kind] = err
	}
}

// notServed is of a kind that the API server does not have in the version that is read here.
func notServed(err error) bool { return apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// probeName names objects that are never stored.
const probeName = "kubectl-trainjob-doctor"

// probe asks the API server what becomes of new objects, as dry runs: it shows whether all webhooks answer.
func (l *loader) probe(ctx context.Context, namespace string) {
	f := l.facts
	f.Refusals = map[Kind]error{
		flavorProbe: l.client.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: probeName}}, client.DryRunAll),
		jobSetProbe: l.client.Create(ctx, plainJobSet(namespace), client.DryRunAll),
	}
	f.Probed, f.Refusals[trainJobProbe] = trainjob.DryRun(ctx, l.client, namespace, trainjob.ProbeQueue)
	for kind, err := range f.Refusals {
		if name, _ := failedWebhook(err); err != nil && name == "" {
			f.Unread[kind] = err
		}
	}
}

// plainJobSet is the least that JobSet takes.
func plainJobSet(namespace string) *jobsetapi.JobSet {
	return &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probeName},
		Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{{
			Name: "probe", Replicas: 1,
			Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "probe", Image: "probe"}},
			}}}},
		}}},
	}
}
