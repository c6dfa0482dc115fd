// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Needs returns what the pods of a ClusterTrainingRuntime need in their namespace, yet to
// be created: ServiceAccounts, and volume claims where the JobSet does not make them, as
// with Trainer 2.1.
func (c *Cluster) Needs(ctx context.Context, namespace, runtime string) ([]client.Object, error) {
	var r trainer.ClusterTrainingRuntime
	if err := c.Client.Get(ctx, client.ObjectKey{Name: runtime}, &r); err != nil {
		return nil, err
	}
	accounts, claims := sets.New[string](), sets.New[string]()
	for _, rj := range r.Spec.Template.Spec.ReplicatedJobs {
		pod := &rj.Template.Spec.Template.Spec
		if pod.ServiceAccountName != "" {
			accounts.Insert(pod.ServiceAccountName)
		}
		for _, volume := range pod.Volumes {
			if claim := volume.PersistentVolumeClaim; claim != nil {
				claims.Insert(claim.ClaimName)
			}
		}
	}
	var needs []client.Object
	for name := range accounts {
		needs = append(needs, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	for name := range claims {
		needs = append(needs, MakeClaim(namespace, name))
	}
	return needs, nil
}

// MakeClaim builds a claim of a small volume.
func MakeClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}
