// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Behind returns a pod that runs now with a ConfigMap as it was before its data changed last, and when that was: Kueue
// reads its configuration when it starts, and not again. It returns nil where there is none that says so. A pod that
// was made since is none, whatever the clock of its node says, nor is one that is past its grace period: its node is lost.
// Whoever changed other fields of the ConfigMap as the manager of its data made that time later.
func Behind(cm *corev1.ConfigMap, pods []corev1.Pod, now time.Time) (*corev1.Pod, time.Time) {
	changed := cm.CreationTimestamp.Time
	if written := LastWritten(cm.ManagedFields, "data"); written.After(changed) {
		changed = written
	}
	for i := range pods {
		pod := &pods[i]
		gone := pod.DeletionTimestamp != nil && pod.DeletionTimestamp.Time.Before(now)
		if pod.Namespace == cm.Namespace && pod.CreationTimestamp.Time.Before(changed) && !gone && startedBefore(pod, cm.Name, changed) {
			return pod, changed
		}
	}
	return nil, time.Time{}
}

// startedBefore reports whether a container that mounts a ConfigMap runs since before a time.
func startedBefore(pod *corev1.Pod, configMap string, at time.Time) bool {
	for _, container := range pod.Spec.Containers {
		if !mounts(pod, container.VolumeMounts, configMap) {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			if running := status.State.Running; status.Name == container.Name && running != nil && running.StartedAt.Time.Before(at) {
				return true
			}
		}
	}
	return false
}

func mounts(pod *corev1.Pod, mounts []corev1.VolumeMount, configMap string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.ConfigMap != nil && volume.ConfigMap.Name == configMap &&
			slices.ContainsFunc(mounts, func(mount corev1.VolumeMount) bool { return mount.Name == volume.Name })
	})
}
