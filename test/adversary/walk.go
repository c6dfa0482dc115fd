// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// quota is the GPUs of the ClusterQueue that tenant and neighbour share, and of each job.
const quota = "8"

// mostPods is the limit of a walk's pods, beyond which none are made.
const mostPods = 40

// walk is a tenant in a namespace of his own, who shares a ClusterQueue with a neighbour.
type walk struct {
	*world.World
	symbols
	neighbour *world.World
	asTenant  dynamic.Interface
	resources []resource
	ledger    *ledger.Ledger
	log       io.Writer
	// unhindered is how long a job takes to start that waits for nobody: a slow machine is slow for all.
	unhindered time.Duration
	// written are the objects that the tenant can write.
	written *record.Recorder
	stop    context.CancelFunc
	sent    atomic.Int64
	// beside is how many actions are repeated beside all else, until calm is called.
	beside   int
	repeated context.Context
	calm     context.CancelFunc
}

// newWalk makes namespaces, queues, a runtime of the tenant's, and a job of the neighbour's that nobody is to touch.
func newWalk(ctx context.Context, g gomega.Gomega, cluster *world.Cluster, log io.Writer) *walk {
	w := &walk{World: world.New(ctx, g, log, cluster, "adversary", world.NewSuffix()), log: log}
	w.symbols = symbols{namespace: w.Namespace, suffix: w.Suffix, tenant: "tenant-" + w.Suffix}
	w.Pool(ctx, w.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100}), quota)
	w.neighbour = world.New(ctx, g, log, cluster, w.Namespace, "neighbour")
	w.Make(ctx, kit.LocalQueue(w.neighbour.Namespace, "queue", w.Name("gpus")),
		kit.ClusterQueue(w.Name("own"), kit.Quota{Flavor: w.Name("h100"), GPUs: quota}), kit.LocalQueue(w.neighbour.Namespace, "own", w.Name("own")),
		kit.Priority(w.Name("high"), 10), kit.Priority(w.Name("highest"), 1000),
		w.neighbour.Job("bystander").Queue("own").GPUs(quota).Obj(), limits(w.Namespace))
	w.AllowTenant(ctx, w.tenant)
	w.Make(ctx, ofTwo(w.CopyRuntime(ctx, "torch-distributed"), w.Namespace))

	config := rest.CopyConfig(cluster.Config)
	config.WarningHandler = rest.NoWarnings{}
	// A tenant's clients have the limits that he gives them.
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: w.tenant, Groups: []string{"system:authenticated"}}
	g.Eventually(ctx, func() error {
		return attempt.To(func() {
			w.resources = resourcesOf(ctx, config, w.Namespace)
			attempt.Succeed(complete(w.resources))
		})
	}).WithTimeout(time.Minute).Should(gomega.Succeed())
	g.Expect(attempt.To(func() { w.watch(ctx, config) })).To(gomega.Succeed())
	return w
}

func (w *walk) watch(ctx context.Context, asTenant *rest.Config) {
	w.asTenant = attempt.Must(dynamic.NewForConfig(asTenant))
	admin := attempt.Must(dynamic.NewForConfig(w.Cluster.Config))
	ctx, w.stop = context.WithCancel(ctx)
	w.repeated, w.calm = context.WithCancel(ctx)
	w.ledger = attempt.Must(ledger.Watch(ctx, admin, w.Namespace, w.neighbour.Namespace))
	var kinds []record.Kind
	for _, r := range w.resources {
		if r.watched {
			kinds = append(kinds, record.Kind{GroupVersionResource: r.GroupVersionResource, Namespace: w.Namespace})
		}
	}
	w.written = attempt.Must(record.Start(ctx, admin, kinds, func(record.Version) {}))
}

// limits keep a tenant from filling the machine that this runs on.
func limits(namespace string) client.Object {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limits"},
		Spec:       corev1.ResourceQuotaSpec{Hard: kit.Amounts("pods", strconv.Itoa(mostPods), "count/jobs.batch", "40", "count/jobsets.jobset.x-k8s.io", "20")},
	}
}

// ofTwo is a runtime of two replicated jobs, whose quota can be reclaimed one by one.
func ofTwo(copied *trainer.ClusterTrainingRuntime, namespace string) client.Object {
	own := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "two", Labels: copied.Labels}, Spec: copied.Spec}
	jobs := &own.Spec.Template.Spec.ReplicatedJobs
	side := (*jobs)[0].DeepCopy()
	side.Name, side.Template.Labels = "b-node", nil
	side.Template.Spec.Template.Spec.Containers[0].Resources = kit.GPUResources("4")
	*jobs = append(*jobs, *side)
	return own
}

// seen returns the objects of the namespace, in an order that does not depend on chance.
func (w *walk) seen() []*unstructured.Unstructured {
	return slices.SortedFunc(slices.Values(w.written.Live()), func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// resource is something that a tenant may write in his namespace.
type resource struct {
	schema.GroupVersionResource
	// kind is that of what it takes.
	kind        schema.GroupVersionKind
	subresource string
	verbs       []string
	// watched is set where its objects can be watched.
	watched bool
}

func (r resource) arg() string { return r.Resource + "." + r.Version + "." + r.Group }

// outOfReach are subresources that talk to a kubelet or only read, questions that are asked by a create, and
// the tenant's own rights, without which he could do nothing more.
var outOfReach = []string{"exec", "attach", "portforward", "proxy", "log", "token", "localsubjectaccessreviews", "roles", "rolebindings"}

// resourcesOf returns what a user may write in a namespace: what discovery has and his rules allow.
func resourcesOf(ctx context.Context, config *rest.Config, namespace string) (out []resource) {
	client := attempt.Must(kubernetes.NewForConfig(config))
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	attempt.Succeed(err, "asking for the rules of a tenant")
	groups, lists, err := client.Discovery().ServerGroupsAndResources()
	if !discovery.IsGroupDiscoveryFailedError(err) {
		attempt.Succeed(err, "discovering the API")
	}
	preferred := map[string]bool{}
	for _, group := range groups {
		preferred[group.PreferredVersion.GroupVersion] = true
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || !preferred[list.GroupVersion] {
			continue
		}
		for _, of := range list.APIResources {
			if r := allowed(gv, of, review.Status.ResourceRules); of.Namespaced && len(r.verbs) > 0 {
				out = append(out, r)
			}
		}
	}
	return out
}

// complete returns an error where the API server does not know yet all that AllowTenant binds a tenant to.
func complete(resources []resource) error {
	missing := sets.New("pods/", "pods/binding", "localqueues/", "trainjobs/", "workloads/")
	for _, r := range resources {
		missing.Delete(r.Resource + "/" + r.subresource)
	}
	if missing.Len() > 0 {
		return fmt.Errorf("the tenant may not write %v yet", sets.List(missing))
	}
	return nil
}

var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

func allowed(gv schema.GroupVersion, of metav1.APIResource, rules []authorizationv1.ResourceRule) resource {
	name, subresource, _ := strings.Cut(of.Name, "/")
	r := resource{GroupVersionResource: gv.WithResource(name), subresource: subresource, kind: gv.WithKind(of.Kind)}
	if of.Group != "" || of.Version != "" {
		r.kind = schema.GroupVersionKind{Group: of.Group, Version: of.Version, Kind: of.Kind}
	}
	if slices.Contains(outOfReach, subresource) || slices.Contains(outOfReach, name) {
		return r
	}
	r.watched = subresource == "" && slices.Contains(of.Verbs, "watch") && of.Kind != "Event"
	for _, verb := range writing {
		may := slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
			return len(rule.ResourceNames) == 0 && has(rule.Verbs, verb) && has(rule.APIGroups, gv.Group) && has(rule.Resources, of.Name)
		})
		if may && slices.Contains(of.Verbs, verb) {
			r.verbs = append(r.verbs, verb)
		}
	}
	return r
}

func has(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

type schemas struct {
	kinds map[schema.GroupVersionKind]*spec.Schema
	named map[string]*spec.Schema
}

func schemasOf(config *rest.Config, of []resource) (*schemas, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	root := openapi3.NewRoot(client.OpenAPIV3())
	s := &schemas{kinds: map[schema.GroupVersionKind]*spec.Schema{}, named: map[string]*spec.Schema{}}
	versions := sets.New[schema.GroupVersion]()
	for _, r := range of {
		versions.Insert(r.GroupVersion(), r.kind.GroupVersion())
	}
	for gv := range versions {
		document, err := root.GVSpec(gv)
		if err != nil {
			return nil, fmt.Errorf("reading the schema of %s: %w", gv, err)
		}
		for name, of := range document.Components.Schemas {
			s.named["#/components/schemas/"+name] = of
			var kinds []schema.GroupVersionKind
			if err := of.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
				return nil, fmt.Errorf("reading the kinds of %s: %w", name, err)
			}
			for _, kind := range kinds {
				s.kinds[kind] = of
			}
		}
	}
	return s, nil
}

// resolve follows references. What nobody knows has an empty schema.
func (s *schemas) resolve(of *spec.Schema) *spec.Schema {
	for range 4 {
		if of != nil && len(of.AllOf) == 1 {
			of = &of.AllOf[0]
		}
		if of == nil || of.Ref.String() == "" {
			break
		}
		of = s.named[of.Ref.String()]
	}
	return cmp.Or(of, &spec.Schema{})
}

// field returns the schema of a field, or of a map's values, and nil where nobody knows it.
func (s *schemas) field(of *spec.Schema, name string) *spec.Schema {
	of = s.resolve(of)
	if field, ok := of.Properties[name]; ok {
		return &field
	}
	if of.AdditionalProperties != nil {
		return of.AdditionalProperties.Schema
	}
	return nil
}

func (s *schemas) fields(of *spec.Schema) []string {
	return slices.Sorted(maps.Keys(s.resolve(of).Properties))
}

func (s *schemas) items(of *spec.Schema) *spec.Schema {
	if items := s.resolve(of).Items; items != nil {
		return items.Schema
	}
	return nil
}
