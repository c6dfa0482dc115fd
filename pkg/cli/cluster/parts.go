// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

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
		Name: "Kueue", Namespace: KueueNamespace, Deployment: "kueue-controller-manager",
		ConfigMap: KueueConfigMap, CRD: "workloads.kueue.x-k8s.io",
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
