// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// healthy are the facts of an installation as its manifests make it, with one pool of two nodes, on which nothing runs.
func healthy(t *testing.T) *Facts {
	t.Helper()
	f := &Facts{
		Now:       now,
		Unread:    map[Kind]error{},
		Inventory: &inventory.Inventory{},
		CRDs: []apiextensionsv1.CustomResourceDefinition{
			crd(cluster.Kueue.CRD, "v1beta2"), crd(cluster.JobSet.CRD, "v1alpha2"), crd(trainjob.CRDName, "v1alpha1", "runtimePatches"),
		},
		Probed: gatedJob(t, "jobs", "dry-run"),
		ConfigMaps: []corev1.ConfigMap{
			configMap(kueuePart, kueueHead+"integrations:\n  frameworks: [batch/job, jobset.x-k8s.io/jobset]\n  externalFrameworks: [TrainJob.v1alpha1.trainer.kubeflow.org]\n"),
			configMap(managerPart, "kind: Configuration\n"),
		},
		Leases: []coordinationv1.Lease{{
			ObjectMeta: metav1.ObjectMeta{Namespace: managerPart.Namespace, Name: "manager.kueue-trainer.dev"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("pod"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(now.Add(-2 * time.Second))),
			},
		}},
	}
	f.Namespaces = partNamespaces()
	for _, p := range parts {
		f.Deployments = append(f.Deployments, deployment(p))
		f.Services = append(f.Services, corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "webhook"}})
		f.EndpointSlices = append(f.EndpointSlices, discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "webhook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "webhook"}},
			Endpoints:  []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		})
		f.Mutating = append(f.Mutating, mutatingConfiguration(p))
		f.Validating = append(f.Validating, validatingConfiguration(p))
	}
	withPermissions(f)
	withPolicies(f)
	f.Nodes = []corev1.Node{gpuNode("gpu-0", kit.H100), gpuNode("gpu-1", kit.H100)}
	f.Flavors = []kueue.ResourceFlavor{flavor("h100", kit.H100)}
	f.ClusterQueues = []kueue.ClusterQueue{clusterQueue("gpus", "h100", "16")}
	f.LocalQueues = []kueue.LocalQueue{localQueue("jobs", "queue", "gpus")}
	return f
}

// partNamespaces are those of the parts.
func partNamespaces() []corev1.Namespace {
	return expect.Each(parts, func(p *part) corev1.Namespace { return namespace(p.Namespace, "") })
}

// kueueHead heads Kueue's configuration.
const kueueHead = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"

func crd(name, version string, specFields ...string) apiextensionsv1.CustomResourceDefinition {
	return *kit.CRD(name, version, specFields...)
}

func configMap(p *part, content string) corev1.ConfigMap {
	return *kit.ConfigMap(p.Namespace, p.ConfigMap, p.configKey, content)
}

func deployment(p *part) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Deployment}, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
	d.Spec.Template.Spec.ServiceAccountName = p.Deployment
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "registry:5000/" + p.Deployment + ":v0.19.2"}}
	return d
}

func clientConfig(p *part) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{
		CABundle: []byte("authority"), Service: &admissionregistrationv1.ServiceReference{Namespace: p.Namespace, Name: "webhook"},
	}
}

func trainJobRules(operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{Operations: operations, Rule: admissionregistrationv1.Rule{
		APIGroups: []string{"trainer.kubeflow.org"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"trainjobs"},
	}}}
}

func mutatingConfiguration(p *part) admissionregistrationv1.MutatingWebhookConfiguration {
	c := admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: p.mutating},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "m." + p.Name, ClientConfig: clientConfig(p), FailurePolicy: new(admissionregistrationv1.Fail),
			ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
			MatchConditions:    []admissionregistrationv1.MatchCondition{{Name: "not-deleting"}, {Name: webhookconfig.Queued}, {Name: webhookconfig.NotOwn}},
			Rules:              trainJobRules(admissionregistrationv1.Create, admissionregistrationv1.Update),
		}},
	}
	if p == managerPart {
		ofWorkloads := c.Webhooks[0].DeepCopy()
		ofWorkloads.Name, ofWorkloads.ReinvocationPolicy = "w."+p.Name, nil
		ofWorkloads.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "deactivates"}}
		ofWorkloads.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"kueue.x-k8s.io"}, APIVersions: []string{"v1beta2"}, Resources: []string{"workloads"}},
		}}
		c.Webhooks = append(c.Webhooks, *ofWorkloads)
	}
	return c
}

func validatingConfiguration(p *part) admissionregistrationv1.MutatingWebhookConfiguration {
	return asMutating(&admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: p.validating},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "v." + p.Name, ClientConfig: clientConfig(p), FailurePolicy: new(admissionregistrationv1.Fail),
			Rules: trainJobRules(admissionregistrationv1.OperationAll),
		}},
	})
}

func withPermissions(f *Facts) {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: managerPart.Namespace, Name: managerPart.Deployment}}
	f.Roles = neededRoles()
	for _, role := range f.Roles {
		f.RoleBindings = append(f.RoleBindings, rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: managerBinding}, RoleRef: rbacv1.RoleRef{Kind: role.Kind, Name: role.Name}, Subjects: slices.Clone(subjects),
		})
	}
}

// withPolicies installs all of them.
func withPolicies(f *Facts) {
	for _, name := range policies.Names() {
		meta := metav1.ObjectMeta{Name: name}
		f.Policies = append(f.Policies, admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta})
		f.PolicyBindings = append(f.PolicyBindings, admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}})
	}
}

// gpuNode has 8 GPUs and the taint that GPU nodes have.
func gpuNode(name, product string, taints ...corev1.Taint) corev1.Node {
	node := kit.ReadyNode(name, map[string]string{gpu.ProductLabel: product}, "nvidia.com/gpu", "8")
	node.Spec.Taints = append([]corev1.Taint{kit.GPUTaint()}, taints...)
	return *node
}

func flavor(name, product string) kueue.ResourceFlavor {
	return *kit.PlainFlavor(name, gpu.ProductLabel, product)
}

func clusterQueue(name, flavor, gpus string) kueue.ClusterQueue {
	cq := kit.ClusterQueue(name, kit.Quota{Flavor: flavor, GPUs: gpus})
	cq.Spec.NamespaceSelector = nil
	cq.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionTrue}}
	return *cq
}

func localQueue(namespace, name, clusterQueue string) kueue.LocalQueue {
	return *kit.LocalQueue(namespace, name, clusterQueue)
}

// gatedJob is a TrainJob as our webhook leaves it.
func gatedJob(t *testing.T, namespace, name string) *trainjob.TrainJob {
	t.Helper()
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	job.Spec.Suspend = new(true)
	patch.Of(trainjob.Trainer23).Set(&job.Spec, []patch.Placement{patch.Gated("node")})
	return job
}

// broken is what becomes of a healthy installation, and what is found then.
type broken struct {
	change func(*Facts)
	want   []Finding
}

// on changes a healthy installation, in which nothing is found where no more is said.
func on(changes ...func(*Facts)) broken { return broken{change: kit.All(changes...)} }

// fails has one error found.
func (b broken) fails(reason, object string, commands ...string) broken {
	return b.finds(found(Error, reason, object, commands...))
}

// warns has one warning found.
func (b broken) warns(reason, object string, commands ...string) broken {
	return b.finds(found(Warning, reason, object, commands...))
}

func (b broken) finds(want ...Finding) broken { return broken{change: b.change, want: want} }

func found(severity Severity, reason, object string, commands ...string) Finding {
	return Finding{Severity: severity, Reason: reason, Object: object, Commands: commands}
}

// with is a healthy installation after changes.
func with(t *testing.T, changes ...func(*Facts)) *Facts {
	t.Helper()
	f := healthy(t)
	return kit.With(f, changes...)
}

// eachFinds breaks a healthy installation in each way, after some other, and compares what is found.
func eachFinds(t *testing.T, ways map[string]broken, first ...func(*Facts)) {
	t.Helper()
	expect.Rows(t, ways, func(t *testing.T, tc broken) {
		finds(t, with(t, slices.Concat(first, []func(*Facts){tc.change})...), tc.want...)
	})
}

// unfilled is the name of a value, not what it stands for.
var unfilled = regexp.MustCompile(`\{[a-z]+\}`)

// finds runs all checks and compares what is worse than info. Every finding has to say
// what is wrong, what it causes, and a command.
func finds(t *testing.T, f *Facts, want ...Finding) {
	t.Helper()
	f.Cluster = expect.Must(explain.NewCluster(context.Background(), f.Inventory))(t)
	report := newReport(f)
	got := slices.DeleteFunc(slices.Clone(report.Findings), func(f Finding) bool { return f.Severity == Info })
	sortFindings(want)
	expect.Same(t, fmt.Sprintf("Unexpected findings %+v", got), want, got, cmpopts.IgnoreFields(Finding{}, "Problem", "Effect", "Advice"), cmpopts.EquateEmpty())
	for _, finding := range report.Findings {
		expect.That(t, !unfilled.MatchString(fmt.Sprint(finding)), "Finding with a value that was not filled in: %+v", finding)
	}
	for _, finding := range got {
		expect.That(t, finding.Problem != "" && finding.Effect != "" && len(finding.Commands) != 0, "Finding without problem, effect or command: %+v", finding)
	}
}

func TestHealthy(t *testing.T) {
	f := healthy(t)
	finds(t, f)
	report := newReport(f)
	expect.Same(t, "Unexpected checks, and those that passed", []int{len(checks()), len(checks())}, []int{report.Checks, len(report.Passed)})
}

func TestEveryRowIsComplete(t *testing.T) {
	for _, s := range Sections {
		expect.That(t, s.Checks[0].wrong != nil, "The first row of %q finds nothing", s.Title)
		told := map[string]bool{}
		for _, c := range s.Checks {
			expect.That(t, c.ID != "" && c.Severity != "" && (c.When != "" || told[c.ID]), "A row that the docs cannot describe: %+v", c)
			told[c.ID] = true
			expect.Same(t, "It is another case of a check: "+c.ID, c.wrong == nil, c.inOrder == "")
			expect.That(t, (c.wrong == nil) == (c.looksAt == nil), "A row that is neither a check nor another case of one: %s, %s", c.ID, c.When)
		}
	}
}
