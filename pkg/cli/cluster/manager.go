// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// The manager by the names that its manifests give.
const (
	ManagerDeployment = installed.ManagerDeployment
	// ManagerConfigMap may carry a suffix; its ManagerConfigKey is the configuration.
	ManagerConfigMap = "kueue-trainer-config"
	ManagerConfigKey = "configuration.yaml"
)

// ManagerConfiguration reads the manager's configuration with its defaults; nil without a
// ConfigMap, and where it cannot be decoded, with which the manager does not start. The error
// is Forbidden for users who may not list ConfigMaps of the manager's namespace.
func ManagerConfiguration(ctx context.Context, c client.Reader) (*config.Configuration, error) {
	namespace, err := ManagerNamespace(ctx, c)
	if err != nil {
		return nil, err
	}
	cm, err := configMapOf(ctx, c, namespace, ManagerDeployment, ManagerConfigMap)
	return ManagerConfigurationIn(cm), err
}

// configMapOf reads the ConfigMap of a Deployment; nil where there is none.
func configMapOf(ctx context.Context, c client.Reader, namespace, of, name string) (*corev1.ConfigMap, error) {
	var configMaps corev1.ConfigMapList
	if err := c.List(ctx, &configMaps, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the ConfigMaps of namespace %s: %w", namespace, err)
	}
	var deployment appsv1.Deployment
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: of}, &deployment)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("reading Deployment %s/%s: %w", namespace, of, err)
	}
	return ConfigMapOf(&deployment, configMaps.Items, name), nil
}

// ManagerConfigurationIn decodes the manager's configuration as ManagerConfiguration does. The
// ConfigMap may be nil.
func ManagerConfigurationIn(cm *corev1.ConfigMap) *config.Configuration {
	var cfg config.Configuration
	if cm == nil || yaml.Unmarshal([]byte(cm.Data[ManagerConfigKey]), &cfg) != nil {
		return nil
	}
	config.Default(&cfg)
	return &cfg
}

// WithDefaults returns the manager's configuration, of which nil has the defaults alone.
func WithDefaults(cfg *config.Configuration) *config.Configuration {
	if cfg == nil {
		cfg = &config.Configuration{}
		config.Default(cfg)
	}
	return cfg
}

// KueueConfiguration reads Kueue's configuration from the ConfigMap that the manager reads it from;
// nil where there is none, or none that can be read. The error is Forbidden for users who may not.
func KueueConfiguration(ctx context.Context, c client.Reader) (*configapi.Configuration, error) {
	manager, err := ManagerConfiguration(ctx, c)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return KueueConfigurationAt(ctx, c, WithDefaults(manager).KueueConfigMap)
}

// KueueConfigurationAt is KueueConfiguration for who knows the place already.
func KueueConfigurationAt(ctx context.Context, c client.Reader, at kueueconfig.ConfigMap) (*configapi.Configuration, error) {
	cm, err := configMapOf(ctx, c, at.Namespace, Kueue.Deployment, at.Name)
	if cm == nil {
		return nil, err
	}
	cfg, err := kueueconfig.Decode([]byte(cm.Data[at.Key]), at.Namespace)
	if err != nil {
		return nil, nil //nolint:nilerr // Kueue does not start with it, which is doctor's to tell.
	}
	return cfg, nil
}

// ConfigMapOf picks, of the ConfigMaps of a namespace, the one with this name, suffixes
// such as kustomize's included, that the Deployment mounts; without that the newest. Nil
// without any. The Deployment may be nil.
func ConfigMapOf(deployment *appsv1.Deployment, configMaps []corev1.ConfigMap, name string) *corev1.ConfigMap {
	var found *corev1.ConfigMap
	mounted := mountedConfigMap(deployment, name)
	for i := range configMaps {
		switch cm := &configMaps[i]; {
		case !named(cm.Name, name):
		case cm.Name == mounted:
			return cm
		case found == nil || found.CreationTimestamp.Before(&cm.CreationTimestamp):
			found = cm
		}
	}
	return found
}

func mountedConfigMap(deployment *appsv1.Deployment, name string) string {
	if deployment == nil {
		return ""
	}
	for _, volume := range deployment.Spec.Template.Spec.Volumes {
		if volume.ConfigMap != nil && named(volume.ConfigMap.Name, name) {
			return volume.ConfigMap.Name
		}
	}
	return ""
}

func named(full, name string) bool { return full == name || strings.HasPrefix(full, name+"-") }

// ManagerNamespace finds where the manager runs, which is wherever it was installed, by whom its
// webhooks ask. Without them, and for users who may not read them, it is the manifests' namespace.
func ManagerNamespace(ctx context.Context, c client.Reader) (string, error) {
	var webhooks admissionregistrationv1.MutatingWebhookConfiguration
	err := c.Get(ctx, client.ObjectKey{Name: webhookconfig.Installed.Mutating}, &webhooks)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return "", fmt.Errorf("reading the manager's webhooks: %w", err)
	}
	for _, w := range webhooks.Webhooks {
		if w.ClientConfig.Service != nil {
			return w.ClientConfig.Service.Namespace, nil
		}
	}
	return config.Namespace, nil
}

// Placed is Kueue or the manager where it was installed, as far as the user may see that; of others it
// is where their manifests install them.
func Placed(ctx context.Context, c client.Reader, p Part) (Part, error) {
	var err error
	switch p.Name {
	case Manager.Name:
		p.Namespace, err = ManagerNamespace(ctx, c)
	case Kueue.Name:
		manager, unread := ManagerConfiguration(ctx, c)
		if !apierrors.IsForbidden(unread) {
			err = unread
		}
		at := WithDefaults(manager).KueueConfigMap
		p.Namespace, p.ConfigMap = at.Namespace, at.Name
	}
	return p, err
}

// Part is one of the managers that have to work together, by the names that its own manifests
// give.
type Part struct {
	Name, Namespace, Deployment string
	// ConfigMap has its configuration, where that tells its release; the name may carry a
	// suffix.
	ConfigMap string
	// CRD is the kind that it serves, where it has one.
	CRD string
	// Webhook is the mutating configuration that tells that it is installed, where it has no CRD.
	Webhook string
}

// The parts.
var (
	Kueue = Part{
		Name: "Kueue", Namespace: kueueconfig.Default.Namespace, Deployment: "kueue-controller-manager",
		ConfigMap: kueueconfig.Default.Name, CRD: "workloads.kueue.x-k8s.io",
	}
	JobSet = Part{
		Name: "JobSet", Namespace: "jobset-system", Deployment: "jobset-controller-manager", CRD: "jobsets.jobset.x-k8s.io",
	}
	Trainer = Part{
		Name: "Trainer", Namespace: "kubeflow-system", Deployment: "kubeflow-trainer-controller-manager", CRD: trainjob.CRDName,
	}
	Manager = Part{
		Name: "kueue-trainer", Namespace: config.Namespace, Deployment: ManagerDeployment, ConfigMap: ManagerConfigMap,
		Webhook: webhookconfig.Installed.Mutating,
	}
)

// KueueMinor is the release of Kueue whose library the manager is built with.
const KueueMinor = "0.19"

// MinorOf is the minor release of a version, 0.19 of v0.19.2 and 0.20 of v0.20.0-rc.1; empty for a build that is of none.
func MinorOf(text string) string {
	release, err := version.ParseGeneric(text)
	if err != nil || release.Major()+release.Minor() == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", release.Major(), release.Minor())
}

// VersionLabel is where manifests and Helm charts say what they install.
const VersionLabel = "app.kubernetes.io/version"

// Release tells the release of a part by the image of its Deployment, or by the label of one
// of its objects; empty where neither says it. Both may be nil.
func Release(deployment *appsv1.Deployment, configMap *corev1.ConfigMap) string {
	release := ""
	if deployment != nil {
		release = cmp.Or(imageTag(deployment.Spec.Template.Spec.Containers), deployment.Labels[VersionLabel])
	}
	if configMap != nil {
		release = cmp.Or(release, configMap.Labels[VersionLabel])
	}
	return release
}

// imageTag returns the tag of the manager's image: a number, or empty.
func imageTag(containers []corev1.Container) string {
	for _, container := range containers {
		image, _, _ := strings.Cut(container.Image, "@")
		tag := image[strings.LastIndex(image, ":")+1:]
		if _, err := version.ParseGeneric(tag); container.Name == "manager" && err == nil {
			return tag
		}
	}
	return ""
}
