// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// elsewhere is an installation in namespaces of its admin's choice.
func elsewhere() []client.Object {
	webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ManagerWebhook}}
	webhooks.Webhooks = []admissionregistrationv1.MutatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "ml", Name: "webhook"}}}}
	manager := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: ManagerConfigMap}, Data: map[string]string{
		ManagerConfigKey: "metrics: {userLabel: example.com/user}\nkueueConfigMap: {namespace: queues, name: mine, key: kueue.yaml}"}}
	kueue := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "queues", Name: "mine"}, Data: map[string]string{
		"kueue.yaml": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true"}}
	return []client.Object{webhooks, manager, kueue}
}

func TestConfigurationsAreReadWhereTheyAre(t *testing.T) {
	c := kit.Fake(kit.Scheme(), elsewhere()...).Build()
	expect.Same(t, "Unexpected namespace", "ml", expect.Must(ManagerNamespace(t.Context(), c))(t))
	manager := expect.Must(ManagerConfiguration(t.Context(), c))(t)
	expect.That(t, manager != nil && manager.Metrics.UserLabel == "example.com/user", "The manager's configuration is %+v", manager)
	kueue := expect.Must(KueueConfiguration(t.Context(), c))(t)
	expect.That(t, kueue != nil && kueue.ManageJobsWithoutQueueName, "Kueue's configuration is %+v", kueue)
}

func TestPartsAreWhereTheyWereInstalled(t *testing.T) {
	c := kit.Fake(kit.Scheme(), elsewhere()...).Build()
	for want, part := range map[string]Part{"ml": Manager, "queues": Kueue, JobSet.Namespace: JobSet} {
		expect.Same(t, "Unexpected namespace of "+part.Name, want, expect.Must(Placed(t.Context(), c, part))(t).Namespace)
	}
}

func TestTheManifestsNamespaceIsTakenWhereNothingTells(t *testing.T) {
	byURL := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ManagerWebhook}}
	byURL.Webhooks = []admissionregistrationv1.MutatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1")}}}
	for name, objects := range map[string][]client.Object{"no webhooks": nil, "webhooks at an address": {byURL}} {
		t.Run(name, func(t *testing.T) {
			c := kit.Fake(kit.Scheme(), objects...).Build()
			expect.Same(t, "Unexpected namespace", config.Namespace, expect.Must(ManagerNamespace(t.Context(), c))(t))
		})
	}
	forbidden := kit.Fake(kit.Scheme(), elsewhere()...).WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error {
		return kit.Forbidden("mutatingwebhookconfigurations")
	})).Build()
	expect.Same(t, "Unexpected namespace", config.Namespace, expect.Must(ManagerNamespace(t.Context(), forbidden))(t))
}
