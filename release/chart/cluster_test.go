// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"

	"github.com/kueue-trainer/kueue-trainer/release/internal/check"
)

const releaseName = "kueue-trainer"

// asked says that the cluster of KUBECONFIG is there for these tests: make e2e-chart sets it.
const asked = "CHART_ON_A_CLUSTER"

// release is the chart's release on the cluster of KUBECONFIG, whose pods are fake.
type release struct {
	*testing.T
	config *action.Configuration
	client kubernetes.Interface
}

func onCluster(t *testing.T) *release {
	t.Helper()
	if os.Getenv(asked) == "" {
		t.Skip("there is no cluster to install to; make e2e-chart brings one")
	}
	flags := genericclioptions.NewConfigFlags(true)
	ns := namespace
	flags.Namespace = &ns
	rest := check.Must(flags.ToRESTConfig())(t)
	client := check.Must(kubernetes.NewForConfig(rest))(t)
	config := action.NewConfiguration()
	check.OK(t, config.Init(flags, namespace, ""))
	return &release{T: t, config: config, client: client}
}

func (r *release) install(values map[string]any) {
	r.Helper()
	check.OK(r, r.tryInstall(values))
}

func (r *release) tryInstall(values map[string]any) error {
	r.Helper()
	install := action.NewInstall(r.config)
	install.ReleaseName, install.Namespace, install.CreateNamespace = releaseName, namespace, true
	install.ServerSideApply, install.WaitStrategy = true, kube.HookOnlyStrategy
	_, err := install.Run(loadChart(r.T), values)
	return err
}

// upgrade is the command that doctor gives for a release.
func (r *release) upgrade(values map[string]any) {
	r.Helper()
	upgrade := action.NewUpgrade(r.config)
	upgrade.Namespace, upgrade.ServerSideApply, upgrade.WaitStrategy = namespace, "auto", kube.HookOnlyStrategy
	upgrade.ResetThenReuseValues, upgrade.ForceConflicts = true, true
	check.Must(upgrade.Run(releaseName, loadChart(r.T), values))(r)
}

// uninstall has the pods of the hook end in one way.
func (r *release) uninstall(how string) error {
	r.Helper()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	go r.endHook(ctx, how)
	uninstall := action.NewUninstall(r.config)
	uninstall.WaitStrategy, uninstall.Timeout, uninstall.DeletionPropagation = kube.HookOnlyStrategy, 2*time.Minute, "background"
	_, err := uninstall.Run(releaseName)
	return err
}

func (r *release) endHook(ctx context.Context, how string) {
	_ = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := r.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=kueue-trainer-uninstall"})
		if err != nil {
			return false, nil
		}
		for _, pod := range pods.Items {
			patch := []byte(`{"metadata":{"annotations":{"localcluster/finish":"` + how + `"}}}`)
			_, _ = r.client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return false, nil
	})
}

func (r *release) webhooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	r.Helper()
	webhooks := r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	return check.Must(webhooks.Get(r.Context(), "kueue-trainer-validating-webhook-configuration", metav1.GetOptions{}))(r)
}

func (r *release) role() *rbacv1.ClusterRole {
	r.Helper()
	return check.Must(r.client.RbacV1().ClusterRoles().Get(r.Context(), "kueue-trainer-manager-role", metav1.GetOptions{}))(r)
}

func (r *release) authority() *corev1.Secret {
	r.Helper()
	return check.Must(r.client.CoreV1().Secrets(namespace).Get(r.Context(), "kueue-trainer-webhook-server-cert", metav1.GetOptions{}))(r)
}

func TestTheChartGoesToNobodysCluster(t *testing.T) {
	t.Setenv(asked, "")
	t.Setenv("KUBECONFIG", "somebody's")
	t.Run("skips", func(t *testing.T) {
		onCluster(t)
		t.Error("The chart would be installed on the cluster of whoever runs the unit tests")
	})
}

// The API server takes all of it. An upgrade leaves alone what the manager wrote, and puts back what
// somebody else changed or deleted.
func TestTheChartOnACluster(t *testing.T) {
	r := onCluster(t)
	r.install(map[string]any{"image": map[string]any{"repository": "mine"}})
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	caBundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))

	// As the manager does.
	webhooks := r.webhooks()
	webhooks.Webhooks[0].ClientConfig.CABundle = []byte(caBundle)
	webhooks.Webhooks[0].MatchConditions = append(webhooks.Webhooks[0].MatchConditions,
		admissionregistrationv1.MatchCondition{Name: "queued", Expression: "false"})
	check.Must(r.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), webhooks, metav1.UpdateOptions{}))(t)
	secret := r.authority()
	secret.Data = map[string][]byte{"ca.crt": []byte("authority")}
	check.Must(r.client.CoreV1().Secrets(namespace).Update(t.Context(), secret, metav1.UpdateOptions{}))(t)

	// As people do.
	role := r.role()
	rules := role.Rules
	role.Rules = rules[1:]
	check.Must(r.client.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	check.OK(t, r.client.RbacV1().RoleBindings(namespace).Delete(t.Context(), "kueue-trainer-manager-rolebinding", metav1.DeleteOptions{}))

	r.upgrade(map[string]any{"replicas": 3, "webhooks": map[string]any{"timeoutSeconds": 7}})
	deployment, err := r.client.AppsV1().Deployments(namespace).Get(t.Context(), "kueue-trainer-controller-manager", metav1.GetOptions{})
	if err != nil || *deployment.Spec.Replicas != 3 {
		t.Errorf("The Deployment has %v replicas (%v), want 3", deployment.Spec.Replicas, err)
	}
	check.Same(t, "image", "mine:main", deployment.Spec.Template.Spec.Containers[0].Image)
	check.Same(t, "rules", rules, r.role().Rules)
	check.Must(r.client.RbacV1().RoleBindings(namespace).Get(t.Context(), "kueue-trainer-manager-rolebinding", metav1.GetOptions{}))(t)
	upgraded := r.webhooks().Webhooks[0]
	var conditions []string
	for _, condition := range upgraded.MatchConditions {
		conditions = append(conditions, condition.Name)
	}
	got := []any{*upgraded.TimeoutSeconds, string(upgraded.ClientConfig.CABundle), strings.Join(conditions, " "), string(r.authority().Data["ca.crt"])}
	check.Same(t, "webhook and authority", []any{int32(7), caBundle, "not-deleting queued", "authority"}, got)

	if err := r.uninstall("failed"); err == nil {
		t.Error("It is uninstalled, although the hook refused")
	}
	r.webhooks()
	check.OK(t, r.uninstall("succeeded"))
	_, err = r.client.AppsV1().Deployments(namespace).Get(t.Context(), "kueue-trainer-controller-manager", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("The Deployment is still there (%v)", err)
	}
	for _, role := range []string{"kueue-trainer-manager-role", "kueue-trainer-uninstall"} {
		if _, err := r.client.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("ClusterRole %s is still there (%v)", role, err)
		}
	}
}

// An install before Kueue leaves nothing behind that the same command afterwards would stumble over.
func TestTheChartOnAClusterWithoutKueue(t *testing.T) {
	r := onCluster(t)
	values := map[string]any{"kueue": map[string]any{"namespace": "later"}}
	if err := r.tryInstall(values); err == nil || !strings.Contains(err.Error(), "there is no namespace later: install Kueue first") {
		t.Errorf("The chart is not refused before Kueue, or does not say why: %v", err)
	}
	check.Must(r.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}))(t)
	if err := r.tryInstall(values); err == nil || !strings.Contains(err.Error(), "there is no ConfigMap kueue-manager-config in namespace later") {
		t.Errorf("The chart is not refused without Kueue's configuration, or does not say why: %v", err)
	}
	check.Must(r.client.CoreV1().ConfigMaps("later").Create(t.Context(), configurationIn("later"), metav1.CreateOptions{}))(t)
	r.install(values)
	check.OK(t, r.uninstall("succeeded"))
	check.OK(t, r.client.CoreV1().Namespaces().Delete(t.Context(), "later", metav1.DeleteOptions{}))
}
