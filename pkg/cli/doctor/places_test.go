// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// moved has Kueue in namespace queues, with a ConfigMap of another name, and the manager in ml.
func moved(f *Facts) {
	data, err := json.Marshal(f)
	text := strings.NewReplacer(`"kueue-system"`, `"queues"`, `"kueue-trainer-system"`, `"ml"`).Replace(string(data))
	*f = Facts{}
	if err := errors.Join(err, json.Unmarshal([]byte(text), f)); err != nil {
		panic(err)
	}
	f.managerConfig("kind: Configuration\nkueueConfigMap: {namespace: queues, name: mine}\n")
	f.ConfigMaps[0].Name, f.ConfigMaps[1].Namespace = "mine", "ml"
}

// asHelmNames returns a change that adds the webhook configurations of a part as a Helm release names them.
func asHelmNames(n int) func(*Facts) {
	return func(f *Facts) {
		rules := []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{
			APIGroups: []string{parts[n].asked.Group}, Resources: []string{parts[n].asked.Resource}}}}
		f.Mutating[n].Name, f.Mutating[n].Webhooks[0].Rules = "mine-mutating", rules
		f.Validating[n].Name, f.Validating[n].Webhooks[0].Rules = "mine-validating", rules
		f.Deployments[n].Annotations = map[string]string{"meta.helm.sh/release-name": "mine"}
	}
}

func TestPartsThatAreElsewhere(t *testing.T) {
	eachFinds(t, map[string]broken{
		"are found":                  on(moved),
		"by names of a Helm release": on(asHelmNames(0), asHelmNames(1), asHelmNames(2)),
		"and by both":                on(moved, asHelmNames(0)),
		"are not installed once more": on(asHelmNames(1), func(f *Facts) { f.Mutating = append(f.Mutating[:1], f.Mutating[2:]...) }).
			fails("WebhookMissing", "MutatingWebhookConfiguration jobset-mutating-webhook-configuration", releases),
		"are not upgraded by manifests": on(asHelmNames(0), func(f *Facts) { f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "kueue:v0.18.2" }).
			warns("KueueVersion", "Kueue", releases),
		"are told where they are": on(moved, func(f *Facts) { f.Deployments[3].Status.ReadyReplicas = 0 }).
			fails("ManagerNotRunning", "Deployment ml/"+cluster.ManagerDeployment, "kubectl -n ml describe pods",
				"kubectl -n ml logs deployment/kueue-trainer-controller-manager --tail=20", "kubectl -n ml rollout restart deployment kueue-trainer-controller-manager"),
		"lack permissions there": on(moved, func(f *Facts) { f.Roles = f.Roles[:1] }).fails("PermissionsMissing", "Role ml/kueue-trainer-manager-role", applyRoles),
	})
}

// A value of the chart is meant; what somebody has patched in is not.
func TestWhatTheChartNarrows(t *testing.T) {
	narrowedBy := func(manager string) func(*Facts) {
		return func(f *Facts) {
			w := &f.Mutating[3].Webhooks[0]
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"ml": "true"}}
			w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{Name: "mine", Expression: "true"})
			fields := `{"f:webhooks":{"k:{\"name\":\"m.kueue-trainer\"}":{"f:namespaceSelector":{},"f:matchConditions":{"k:{\"name\":\"mine\"}":{".":{},"f:expression":{},"f:name":{}}}}}}`
			f.Mutating[3].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}}
		}
	}
	eachFinds(t, map[string]broken{
		"values of the chart":      on(narrowedBy("helm")),
		"what was patched by hand": on(narrowedBy("kubectl-patch")).fails("WebhookScope", ourMutating, applyWebhook),
	})
}

// What is moved has to be read first where it is.
func TestTheLoaderReadsWherePartsAre(t *testing.T) {
	moved := with(t, moved)
	objects := slices.Concat(inventory.Objects(moved.Mutating), inventory.Objects(moved.Deployments), inventory.Objects(moved.ConfigMaps), inventory.Objects(moved.Leases), inventory.Objects(moved.Roles[1:]))
	c := kit.Fake(cluster.Scheme(), objects...).Build()
	l := newLoader(c, now)
	l.installation(t.Context())
	f := l.facts
	expect.Same(t, "Kinds that could not be read", map[Kind]error{}, f.Unread)
	for _, p := range parts {
		expect.That(t, f.deployment(p) != nil, "The Deployment of %s was not read", p.Name)
	}
	expect.That(t, f.configMap(kueuePart) != nil, "Kueue's ConfigMap was not read")
	expect.Same(t, "Unexpected Leases and Roles", []int{1, 1}, []int{len(f.Leases), len(f.Roles)})
	worker := newLoader(c, now)
	worker.worker(t.Context())
	expect.That(t, worker.facts.deployment(managerPart) != nil, "The Deployment of a worker's manager was not read")
}

// A name may be a part of another one's, which stays.
func TestWholeNamesAreRelocated(t *testing.T) {
	names := map[string]string{"kueue-system": "batch"}
	got := relocated(Finding{
		Object: "ConfigMap kueue-system/kueue-manager-config", Problem: "Namespace my-kueue-system is not kueue-system.",
		Commands: []string{"kubectl -n kueue-system logs kueue-system-1"},
	}, names)
	want := Finding{
		Object: "ConfigMap batch/kueue-manager-config", Problem: "Namespace my-kueue-system is not batch.",
		Commands: []string{"kubectl -n batch logs kueue-system-1"},
	}
	expect.Same(t, "Unexpected finding", want, got)
}

// helmed marks an object as Helm does.
func helmed(obj metav1.Object, version string, how metav1.ManagedFieldsOperationType) {
	obj.SetLabels(map[string]string{"helm.sh/chart": "kueue-trainer-" + version})
	obj.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "trainjobs", "meta.helm.sh/release-namespace": "kueue-trainer-system"})
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "manager", Operation: metav1.ManagedFieldsOperationUpdate}, {Manager: "helm", Operation: how}})
}

// byHelm has the installation of a checkout's chart.
func byHelm(f *Facts) {
	helmed(&f.Deployments[3], "0.0.0", metav1.ManagedFieldsOperationApply)
	helmed(&f.Roles[0], "0.0.0", metav1.ManagedFieldsOperationApply)
}

func TestReleaseOfHelm(t *testing.T) {
	const upgrade = "helm upgrade trainjobs charts/kueue-trainer --namespace kueue-trainer-system --reset-then-reuse-values --force-conflicts"
	const managerConfig = "ConfigMap kueue-trainer-system/kueue-trainer-config"
	eachFinds(t, map[string]broken{
		"a RoleBinding is missing": on(byHelm, func(f *Facts) { f.RoleBindings = f.RoleBindings[:1] }).
			fails("PermissionsMissing", "Role kueue-trainer-system/kueue-trainer-manager-role", upgrade),
		"a webhook is missing": on(byHelm, func(f *Facts) { f.Mutating[3].Webhooks = nil }).fails("WebhookMissing", ourMutating, upgrade),
		"a webhook is not asked about all": on(byHelm, func(f *Facts) {
			f.Mutating[3].Webhooks[0].Rules = trainJobRules(admissionregistrationv1.Create)
		}).fails("WebhookScope", ourMutating, upgrade+` --set-json 'webhooks={"matchConditions":[],"namespaceSelector":null}'`),
		"a policy is missing": on(byHelm, func(f *Facts) { f.Policies = f.Policies[1:] }).
			warns("PolicyNotEnforced", "ValidatingAdmissionPolicy kueue-trainer-claims", upgrade+" --set policies.enabled=true"),
		"scaled to nothing":    on(byHelm, scaledToNothing).fails("ManagerNotRunning", ourDeployment, upgrade+" --set replicas=2"),
		"gone, but for a role": on(byHelm, uninstalled).fails("NoIntegration", ourDeployment, upgrade),
		"other settings than Kueue's": on(byHelm, func(f *Facts) { f.managerConfig("manageJobsWithoutQueueName: true\ncontroller: {}") }).
			warns("SettingsDiffer", managerConfig, upgrade+` --set-json 'configuration={"manageJobsWithoutQueueName":null}'`, restartManager),
		"another gate than Kueue has by a flag": on(byHelm, func(f *Facts) {
			f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=VisibilityOnDemand=false"}
			f.managerConfig("featureGates: {VisibilityOnDemand: true, PartialAdmission: true}")
		}).warns("FeatureGatesDiffer", managerConfig,
			upgrade+` --set-json 'configuration={"featureGates":{"PartialAdmission":true,"VisibilityOnDemand":false}}'`, restartManager),
	})
}

func TestUpgradeOfARelease(t *testing.T) {
	f := healthy(t)
	helmed(&f.Deployments[0], "0.19.2", metav1.ManagedFieldsOperationApply)
	f.Deployments[0].Labels["helm.sh/chart"] = "kueue-0.19.2"
	expect.Same(t, "Unexpected command", "kubectl apply -k config/rbac", f.apply("rbac"))

	helmed(&f.Validating[3], "0.3.0-rc.1_build", metav1.ManagedFieldsOperationUpdate)
	const want = "helm upgrade trainjobs oci://ghcr.io/kueue-trainer/charts/kueue-trainer --version 0.3.0-rc.1+build --namespace kueue-trainer-system --reset-then-reuse-values"
	expect.Same(t, "Unexpected command", want, f.apply("rbac"))

	w := &Worker{Context: "west", Facts: f}
	expect.Same(t, "Unexpected command", want+` --set-json 'configuration={"tolerationRules":[{"resources":["amd.com/gpu"],"tolerations":null}]}' --kube-context west`,
		w.haveRules([]managerconfig.TolerationRule{{Resources: []string{"amd.com/gpu"}}}))
}
