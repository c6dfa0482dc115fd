// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// helmed marks an object as Helm does.
func helmed(obj metav1.Object, version string, how metav1.ManagedFieldsOperationType) {
	obj.SetLabels(map[string]string{"helm.sh/chart": "kueue-trainer-" + version})
	obj.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "trainjobs", "meta.helm.sh/release-namespace": "kueue-trainer-system"})
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "manager", Operation: metav1.ManagedFieldsOperationUpdate}, {Manager: "helm", Operation: how}})
}

// byHelm has the installation of a checkout's chart.
func byHelm(f *Facts) {
	helmed(&f.Deployments[3], "0.0.0", metav1.ManagedFieldsOperationApply)
	helmed(&f.ClusterRoles[0], "0.0.0", metav1.ManagedFieldsOperationApply)
}

func TestReleaseOfHelm(t *testing.T) {
	const upgrade = "helm upgrade trainjobs charts/kueue-trainer --namespace kueue-trainer-system --reset-then-reuse-values --force-conflicts"
	const managerConfig = "ConfigMap kueue-trainer-system/kueue-trainer-config"
	eachFinds(t, map[string]broken{
		"a RoleBinding is missing": {
			change: all(byHelm, func(f *Facts) { f.RoleBindings = f.RoleBindings[1:] }),
			want:   one(Error, "PermissionsMissing", "Role kueue-system/kueue-trainer-manager-role", upgrade),
		},
		"a webhook is missing": {
			change: all(byHelm, func(f *Facts) { f.Mutating[3].Webhooks = nil }),
			want:   one(Error, "WebhookMissing", ourMutating, upgrade),
		},
		"a webhook is not asked about all": {
			change: all(byHelm, func(f *Facts) {
				f.Mutating[3].Webhooks[0].Rules = trainJobRules(admissionregistrationv1.Create)
			}),
			want: one(Error, "WebhookScope", ourMutating, upgrade+` --set-json 'webhooks={"matchConditions":[],"namespaceSelector":null}'`),
		},
		"a policy is missing": {
			change: all(byHelm, func(f *Facts) { f.Policies = f.Policies[1:] }),
			want: one(Warning, "PolicyNotEnforced", "ValidatingAdmissionPolicy kueue-trainer-claims",
				upgrade+" --set policies.enabled=true"),
		},
		"scaled to nothing": {
			change: all(byHelm, func(f *Facts) {
				f.Deployments[3].Spec.Replicas, f.Deployments[3].Status.ReadyReplicas = ptr.To(int32(0)), 0
			}),
			want: one(Error, "ManagerNotRunning", ourDeployment, upgrade+" --set replicas=2"),
		},
		"gone, but for a role": {
			change: all(byHelm, uninstalled),
			want:   one(Error, "NoIntegration", ourDeployment, upgrade),
		},
		"other settings than Kueue's": {
			change: all(byHelm, func(f *Facts) { f.managerConfig("manageJobsWithoutQueueName: true\ncontroller: {}") }),
			want: one(Warning, "SettingsDiffer", managerConfig,
				upgrade+` --set-json 'configuration={"manageJobsWithoutQueueName":null}'`, restartManager),
		},
		"another gate than Kueue has by a flag": {
			change: all(byHelm, func(f *Facts) {
				f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=VisibilityOnDemand=false"}
				f.managerConfig("featureGates: {VisibilityOnDemand: true, PartialAdmission: true}")
			}),
			want: one(Warning, "FeatureGatesDiffer", managerConfig,
				upgrade+` --set-json 'configuration={"featureGates":{"PartialAdmission":true,"VisibilityOnDemand":false}}'`, restartManager),
		},
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
