// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// part is one of the managers that have to work together, and what there is to say of it.
type part struct {
	cluster.Part
	configKey            string               // where its configuration stands in its ConfigMap
	mutating, validating string               // its webhook configurations, where it has one
	asked                schema.GroupResource // what none but its webhooks and those of parts before it are asked about by name
	without              string               // what does not work while it does not answer
	install              string               // what fixes what is missing of it; of kueue-trainer, Facts.install does
}

var (
	kueuePart = &part{
		Part: cluster.Kueue, configKey: kueueconfig.Default.Key,
		mutating: "kueue-mutating-webhook-configuration", validating: "kueue-validating-webhook-configuration",
		asked:   schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "clusterqueues"},
		without: "No TrainJob is admitted, and Jobs, JobSets and Kueue's own objects cannot be made or changed.",
		install: "kubectl apply --server-side -f https://github.com/kubernetes-sigs/kueue/releases/download/v0.19.2/manifests.yaml",
	}
	jobSetPart = &part{
		Part:     cluster.JobSet,
		mutating: "jobset-mutating-webhook-configuration", validating: "jobset-validating-webhook-configuration",
		asked:   schema.GroupResource{Group: jobsetapi.SchemeGroupVersion.Group, Resource: "jobsets"},
		without: "No JobSet can be made, so no TrainJob gets pods.",
		install: "kubectl apply --server-side -f https://github.com/kubernetes-sigs/jobset/releases/download/v0.12.0/manifests.yaml",
	}
	trainerPart = &part{
		Part:     cluster.Trainer,
		mutating: "defaulter.trainer.kubeflow.org", validating: "validator.trainer.kubeflow.org",
		asked:   schema.GroupResource{Group: trainjob.GVK.Group, Resource: "trainjobs"},
		without: "TrainJobs cannot be made or changed, and nobody makes their JobSets.",
		install: `kubectl apply --server-side -k "https://github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=v2.3.0"`,
	}
	managerPart = &part{
		Part: cluster.Manager, configKey: cluster.ManagerConfigKey,
		mutating: cluster.Manager.Webhook, validating: "kueue-trainer-validating-webhook-configuration",
		without: "TrainJobs cannot be made or changed, and none is started or stopped; running ones run on.",
	}
	// parts in the order in which they are installed.
	parts = []*part{kueuePart, jobSetPart, trainerPart, managerPart}
)

// of are the values that texts about a part name.
func (f *Facts) of(p *part) []any {
	return []any{"part", p.Name, "without", p.without, "install", f.install(p), "reinstall", f.reinstall(p), "logs", p.logs(), "restart", p.restart()}
}

// restart is the command that starts the part again.
func (p *part) restart() string {
	return fmt.Sprintf("kubectl -n %s rollout restart deployment %s", p.Namespace, p.Deployment)
}

// logs is the command that shows what it says.
func (p *part) logs() string {
	return fmt.Sprintf("kubectl -n %s logs deployment/%s --tail=20", p.Namespace, p.Deployment)
}

// at is a part where it was found: in the namespace of its webhooks' Service, and Kueue where the
// manager reads its configuration. Where nothing tells, it is where its manifests install it.
func (f *Facts) at(p *part) *part {
	found := *p
	for _, w := range f.webhooks() {
		if w.part == p && w.ClientConfig.Service != nil {
			found.Namespace = w.ClientConfig.Service.Namespace
			break
		}
	}
	if p != kueuePart {
		return &found
	}
	if manager := cluster.ManagerConfigurationIn(f.configMap(managerPart)); manager != nil {
		place := manager.KueueConfigMap
		found.Namespace, found.ConfigMap, found.configKey = place.Namespace, place.Name, place.Key
	}
	return &found
}

// relocation returns the names that the table says for the parts by their manifests, and those by which they are installed.
func (f *Facts) relocation() map[string]string {
	names := map[string]string{}
	for _, p := range parts {
		at := f.at(p)
		names[p.Namespace], names[p.ConfigMap] = at.Namespace, at.ConfigMap
	}
	return names
}

// wholeName is a name of an object, which may be a part of another one's.
var wholeName = regexp.MustCompile(`[a-z0-9](?:[a-z0-9-]*[a-z0-9])?`)

func relocated(finding Finding, names map[string]string) Finding {
	replace := func(text string) string {
		return wholeName.ReplaceAllStringFunc(text, func(name string) string { return cmp.Or(names[name], name) })
	}
	finding.Object, finding.Problem, finding.Advice = replace(finding.Object), replace(finding.Problem), replace(finding.Advice)
	finding.Commands = slices.Clone(finding.Commands)
	for i, command := range finding.Commands {
		finding.Commands[i] = replace(command)
	}
	return finding
}

// reinstall is what to do about a part that did not come of its manifests.
func (f *Facts) reinstall(p *part) string {
	if f.install(p) != releases {
		return ""
	}
	return "Install " + p.Name + " again, or upgrade it, the way it was installed. Where Helm did, upgrade its release:"
}

const (
	// checkoutChart has a version that no release of the chart has, publishedChart all of those.
	checkoutChart, checkoutVersion = "charts/kueue-trainer", "0.0.0"
	publishedChart                 = "oci://ghcr.io/kueue-trainer/charts/kueue-trainer"
)

// upgrade is the command that installs kueue-trainer's Helm release once more, with the values it has and those of the
// flags; empty where Helm did not install it. Where it did, kubectl apply -k would take fields away from it, have
// another image and undo its values.
func (f *Facts) upgrade(flags ...string) string {
	for _, obj := range slices.Concat(inventory.Objects(f.Deployments), inventory.Objects(f.Mutating), inventory.Objects(f.Validating), inventory.Objects(f.Roles)) {
		version, ours := strings.CutPrefix(obj.GetLabels()["helm.sh/chart"], "kueue-trainer-")
		name := obj.GetAnnotations()["meta.helm.sh/release-name"]
		if !ours || name == "" {
			continue
		}
		chart := checkoutChart
		if version != checkoutVersion { // Another version would have another image.
			chart = publishedChart + " --version " + strings.ReplaceAll(version, "_", "+") // a label takes no "+"
		}
		command := fmt.Sprintf("helm upgrade %s %s --namespace %s --reset-then-reuse-values", name, chart, obj.GetAnnotations()["meta.helm.sh/release-namespace"])
		if slices.ContainsFunc(obj.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Operation == metav1.ManagedFieldsOperationApply }) {
			command += " --force-conflicts" // The API server applies it, and what is to be put right, somebody else has set.
		}
		return strings.Join(append([]string{command}, flags...), " ")
	}
	return ""
}

// configure is the flag that sets values of the manager's configuration; nil takes one out.
func configure(values map[string]any) string {
	data, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("values %v: %v", values, err)) // only texts, switches and rules come here
	}
	return "--set-json " + quoted("configuration="+string(data))
}

// apply is the command that puts back what a directory of config/ has; with Helm all the rest, and what the flags set.
func (f *Facts) apply(directory string, helmFlags ...string) string {
	return cmp.Or(f.upgrade(helmFlags...), "kubectl apply -k config/"+directory)
}

// releases are Helm's, of which one may be what is to be brought up to date.
const releases = "helm list --all-namespaces"

// install is the command that puts back what is missing of a part, but no second one beside a Helm release.
func (f *Facts) install(p *part) string {
	if p == managerPart {
		return f.apply("webhook")
	}
	d := inventory.Find(f.Deployments, p.Namespace, p.Deployment)
	if f.crd(p.CRD) != nil && (d == nil || d.Annotations["meta.helm.sh/release-name"] != "") {
		return releases
	}
	return p.install
}

const (
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
)

// webhook is a webhook of a part, and where it stands.
type webhook struct {
	*admissionregistrationv1.MutatingWebhook

	part          *part
	kind          string // kind and configuration are of the object, index is the place in it
	configuration *admissionregistrationv1.MutatingWebhookConfiguration
	index         int
}

// webhooks returns those of the parts, mutating first.
func (f *Facts) webhooks() []webhook {
	var all []webhook
	add := func(kind string, configurations []admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range configurations {
			c := &configurations[i]
			p := f.owner(c)
			for n := range c.Webhooks {
				if p != nil {
					all = append(all, webhook{MutatingWebhook: &c.Webhooks[n], part: p, kind: kind, configuration: c, index: n})
				}
			}
		}
	}
	add(mutatingKind, f.Mutating)
	add(validatingKind, f.Validating)
	return all
}

// asMutating is a validating configuration as a mutating one that is asked again: it sees what all others have made.
func asMutating(c *admissionregistrationv1.ValidatingWebhookConfiguration) admissionregistrationv1.MutatingWebhookConfiguration {
	same := admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: c.ObjectMeta}
	for _, w := range c.Webhooks {
		same.Webhooks = append(same.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchConditions: w.MatchConditions, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			ReinvocationPolicy: ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
		})
	}
	return same
}

// owner returns the part that a webhook configuration belongs to, or nil: by its name, or by what it is
// asked about where the part has none of that name, as Helm releases name theirs after themselves.
func (f *Facts) owner(c *admissionregistrationv1.MutatingWebhookConfiguration) *part {
	if p := slices.IndexFunc(parts, func(p *part) bool { return c.Name == p.mutating || c.Name == p.validating }); p >= 0 {
		return parts[p]
	}
	for _, p := range parts {
		if p.asked == (schema.GroupResource{}) || !slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return installed.Asked(w.Rules, p.asked) }) {
			continue
		}
		if inventory.Find(f.Mutating, "", p.mutating) != nil || inventory.Find(f.Validating, "", p.validating) != nil {
			return nil
		}
		return p
	}
	return nil
}

// deployers write fields that somebody has declared, values of the chart for instance.
var deployers = []string{"helm", "helm-controller", "argocd-controller"}

// declares reports whether a field of the webhook is a value of the chart: its deployer has set it, and nobody has since.
func (w webhook) declares(path ...any) bool {
	field := fieldpath.MakePathOrDie(append([]any{"webhooks", fieldpath.KeyByFields("name", w.Name)}, path...)...)
	return slices.ContainsFunc(w.configuration.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		var fields fieldpath.Set
		return slices.Contains(deployers, e.Manager) && e.FieldsV1 != nil && fields.FromJSON(e.FieldsV1.GetRawReader()) == nil && fields.Has(field)
	})
}

func (w webhook) object() string { return object(w.kind, "", w.configuration.Name) }

// address is what the API server calls.
func (w webhook) address() string {
	if service := w.ClientConfig.Service; service != nil {
		return fmt.Sprintf("https://%s.%s.svc:", service.Name, service.Namespace)
	}
	return ptr.Deref(w.ClientConfig.URL, "")
}

func (w webhook) asksAbout(resource string) bool {
	return slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.Resources, resource)
	})
}

// ownConditions leave out what is being deleted, has no queue or is written by the manager: see pkg/webhookconfig.
var ownConditions = []string{"not-deleting", "queued", "not-own"}

// narrowed reports whether the webhook is not asked about every object of its rules in the namespaces that it is for,
// those that are being deleted aside: it has a condition beside our own and values of the chart, or a selector.
func (w webhook) narrowed() bool {
	return narrows(w.ObjectSelector) || slices.ContainsFunc(w.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
		return !slices.Contains(ownConditions, c.Name) && !w.declares("matchConditions", fieldpath.KeyByFields("name", c.Name), "expression")
	})
}

// narrows reports whether a selector leaves anything out.
func narrows(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0
}
