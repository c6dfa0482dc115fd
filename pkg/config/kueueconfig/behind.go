// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Behind returns a pod that runs with a ConfigMap as it was before its data changed last, and when that was: Kueue
// reads its configuration when it starts, and not again. It returns nil where there is none that says so.
func Behind(cm *corev1.ConfigMap, pods []corev1.Pod) (*corev1.Pod, time.Time) {
	changed := changedAt(cm)
	for i := range pods {
		if pod := &pods[i]; pod.Namespace == cm.Namespace && mounts(pod, cm.Name) && startedBefore(pod, changed) {
			return pod, changed
		}
	}
	return nil, time.Time{}
}

// changedAt returns when the data of a ConfigMap changed last, as its managed fields say. Whoever changed other fields
// of it as the same manager made it later.
func changedAt(cm *corev1.ConfigMap) time.Time {
	changed := cm.CreationTimestamp.Time
	for _, entry := range cm.ManagedFields {
		if entry.Time != nil && entry.FieldsV1 != nil && entry.Time.After(changed) && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:data"`)) {
			changed = entry.Time.Time
		}
	}
	return changed
}

func mounts(pod *corev1.Pod, configMap string) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.ConfigMap != nil && volume.ConfigMap.Name == configMap {
			return true
		}
	}
	return false
}

func startedBefore(pod *corev1.Pod, at time.Time) bool {
	for _, container := range pod.Status.ContainerStatuses {
		if running := container.State.Running; running != nil && running.StartedAt.Time.Before(at) {
			return true
		}
	}
	return false
}
