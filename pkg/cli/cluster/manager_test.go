// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// configMap has a rule for one resource.
func configMap(name, resource string, minutes int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: config.Namespace, Name: name,
			CreationTimestamp: metav1.NewTime(time.Date(2030, 1, 1, 12, minutes, 0, 0, time.UTC)),
		},
		Data: map[string]string{ManagerConfigKey: "tolerationRules: [{resources: [" + resource + "], tolerations: [{key: a}]}]"},
	}
}

func mounting(configMap string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: ManagerDeployment}}
	d.Spec.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
	}}}
	return d
}

func TestManagerConfiguration(t *testing.T) {
	older, newer := configMap(ManagerConfigMap+"-a", "amd.com/gpu", 0), configMap(ManagerConfigMap+"-b", "habana.ai/gaudi", 1)
	cases := map[string]struct {
		objects []client.Object
		// get is what becomes of reading the Deployment.
		get  error
		want []string
	}{
		"nothing installed":                      {},
		"a ConfigMap of another name":            {objects: []client.Object{configMap("other", "amd.com/gpu", 0)}},
		"no YAML":                                {objects: []client.Object{configMap(ManagerConfigMap, "[", 0)}},
		"the newest":                             {objects: []client.Object{older, newer}, want: []string{"habana.ai/gaudi"}},
		"the one that the Deployment mounts":     {objects: []client.Object{older, newer, mounting(older.Name)}, want: []string{"amd.com/gpu"}},
		"a Deployment that may not be looked at": {objects: []client.Object{older, newer, mounting(older.Name)}, get: kit.Forbidden("deployments"), want: []string{"habana.ai/gaudi"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := kit.Fake(kit.Scheme(), tc.objects...).WithInterceptorFuncs(kit.RefusingGet(func(client.Object, client.ObjectKey) error { return tc.get })).Build()
			cfg := expect.Must(ManagerConfiguration(t.Context(), c))(t)
			expect.That(t, cfg == nil || *cfg.Webhook.Port == 9443, "The configuration lacks its defaults")
			var got []string
			for _, rule := range Rules(cfg) {
				got = append(got, rule.Resources...)
			}
			expect.Same(t, "Unexpected resources", tc.want, got)
		})
	}
}

func TestManagerConfigurationThatMayNotBeSeen(t *testing.T) {
	c := kit.Fake(kit.Scheme()).WithInterceptorFuncs(kit.Refusing(func(any, client.ObjectKey) error { return kit.Forbidden("configmaps") })).Build()
	_, err := ManagerConfiguration(t.Context(), c)
	expect.That(t, apierrors.IsForbidden(err), "The error is not of kind Forbidden: %v", err)
}
