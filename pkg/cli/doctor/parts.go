// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// part is one of the managers that have to work together, and what there is to say of it.
type part struct {
	cluster.Part
	configKey            string // where its configuration stands in its ConfigMap
	mutating, validating string // its webhook configurations, where it has one
	// asked is what none but its webhooks and those of the parts before it are asked about by name.
	asked   schema.GroupResource
	without string // what does not work while it does not answer
	install string // what fixes what is missing of it; of kueue-trainer, Facts.install does
}

var (
	kueuePart = &part{
		Part: cluster.Kueue, configKey: cluster.KueueConfigKey,
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

// install is the command that puts back what is missing of a part; of kueue-trainer, its webhooks. Of a
// part that is there and did not come of its manifests, but of a Helm release say, these would install a second one.
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
