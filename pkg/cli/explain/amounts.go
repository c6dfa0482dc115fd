// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// requestsOf returns what all pods of a PodSet ask for, in Kueue's units (CPU in
// thousandths). Limits count where there is no request.
func requestsOf(ps *kueue.PodSet) map[corev1.ResourceName]int64 {
	pod := ps.Template.Spec.DeepCopy()
	kueuelib.UseLimitsAsMissingRequests(pod)
	requests := map[corev1.ResourceName]int64{}
	for name, amount := range kueuelib.ByResource(kueuelib.RequestsOf(pod)) {
		if amount > 0 {
			requests[name] = amount * int64(ps.Count)
		}
	}
	return requests
}

func sumOf(podSets []kueue.PodSet) map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for i := range podSets {
		for name, amount := range requestsOf(&podSets[i]) {
			sum[name] += amount
		}
	}
	return sum
}

// number is an amount as kubectl prints it: 16, 500m, 64Gi.
func number(name corev1.ResourceName, amount int64) string {
	q := kueuelib.NewResourceFormatter().ResourceQuantity(name, amount)
	return q.String()
}

// quantity is number with what it is of: 8 GPUs, 64Gi memory.
func quantity(name corev1.ResourceName, amount int64) string {
	switch {
	case name == gpu.Whole:
		return show.Count(amount, "GPU")
	case name == corev1.ResourceCPU && amount%1000 == 0:
		return show.Count(amount/1000, "CPU")
	case name == corev1.ResourcePods:
		return show.Count(amount, "pod")
	case gpu.IsResource(name):
		return fmt.Sprintf("%d %s", amount, strings.TrimPrefix(string(name), "nvidia.com/"))
	}
	return number(name, amount) + " " + string(name)
}

// needs sums up what PodSets ask for, in words: the GPUs or, where there are none,
// everything.
func needs(podSets []kueue.PodSet) string {
	sum := sumOf(podSets)
	names := sortedResources(sum)
	if n := slices.IndexFunc(names, func(name corev1.ResourceName) bool { return !gpu.IsResource(name) }); n > 0 {
		names = names[:n]
	}
	var parts []string
	for _, name := range names {
		parts = append(parts, quantity(name, sum[name]))
	}
	return cmp.Or(strings.Join(parts, " and "), "nothing that has a quota")
}
