// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
)

const (
	// checkoutChart has a version that no release of the chart has, publishedChart all of those.
	checkoutChart, checkoutVersion = "charts/kueue-trainer", "0.0.0"
	publishedChart                 = "oci://ghcr.io/kueue-trainer/charts/kueue-trainer"
)

// release is Helm's, to which the objects of kueue-trainer belong. kubectl apply -k would take fields
// away from it, have another image and undo its values.
type release struct {
	name, namespace string
	// version of the chart. An upgrade to another one has another image.
	version string
	// serverSide is set where the API server applies it: it refuses a field that somebody else has set
	// to another value.
	serverSide bool
}

// release returns nil where Helm did not install what is there of kueue-trainer.
func (f *Facts) release() *release {
	for _, obj := range slices.Concat(inventory.Objects(f.Deployments), inventory.Objects(f.Mutating), inventory.Objects(f.Validating), inventory.Objects(f.ClusterRoles)) {
		version, ours := strings.CutPrefix(obj.GetLabels()["helm.sh/chart"], "kueue-trainer-")
		name := obj.GetAnnotations()["meta.helm.sh/release-name"]
		if !ours || name == "" {
			continue
		}
		return &release{
			name: name, namespace: obj.GetAnnotations()["meta.helm.sh/release-namespace"],
			version: strings.ReplaceAll(version, "_", "+"), // a label takes no "+"
			serverSide: slices.ContainsFunc(obj.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
				return e.Operation == metav1.ManagedFieldsOperationApply
			}),
		}
	}
	return nil
}

// upgrade is the command that installs the release once more, with the values it has and others.
func (r *release) upgrade(flags ...string) string {
	chart := checkoutChart
	if r.version != checkoutVersion {
		chart = publishedChart + " --version " + r.version
	}
	command := fmt.Sprintf("helm upgrade %s %s --namespace %s --reset-then-reuse-values", r.name, chart, r.namespace)
	if r.serverSide {
		command += " --force-conflicts" // what is to be put right, somebody else has set
	}
	return strings.Join(append([]string{command}, flags...), " ")
}

// configure is the flag that sets values of the manager's configuration; nil takes one out.
func configure(values map[string]any) string {
	data, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("values %v: %v", values, err)) // only texts, switches and rules come here
	}
	return "--set-json " + quoted("configuration="+string(data))
}

// apply is the command that puts back what a directory of config/ has. With Helm that comes with all
// the rest, and with the values that the flags set.
func (f *Facts) apply(directory string, helmFlags ...string) string {
	if r := f.release(); r != nil {
		return r.upgrade(helmFlags...)
	}
	return "kubectl apply -k config/" + directory
}

// releases are Helm's, of which one may be what is to be brought up to date.
const releases = "helm list --all-namespaces"

// install is the command that puts back what is missing of a part; of kueue-trainer, its webhooks. Of a
// part that is there and did not come of its manifests, these would install a second one.
func (f *Facts) install(p *part) string {
	if p == managerPart {
		return f.apply("webhook")
	}
	if f.crd(p.CRD) != nil && !f.byManifests(p) {
		return releases
	}
	return p.install
}
