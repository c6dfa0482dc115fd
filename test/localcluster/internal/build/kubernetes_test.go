// SPDX-License-Identifier: Apache-2.0

package build

import (
	"slices"
	"strings"
	"testing"
)

func TestKubernetesVersionsAreWhatTheirModulesRequire(t *testing.T) {
	for _, k := range KubernetesVersions {
		if version := required(t, k.Dir, "k8s.io/kubernetes"); !strings.HasPrefix(version, "v"+k.Name+".") {
			t.Errorf("%s requires Kubernetes %s, not %s", k.Dir, version, k.Name)
		}
	}
}

func TestOnlyTheChosenControlPlaneIsBuilt(t *testing.T) {
	for _, k := range KubernetesVersions {
		t.Run(k.Name, func(t *testing.T) {
			var built []string
			for _, bin := range All(k, DefaultTrainer()) {
				if strings.HasPrefix(bin.Name, "kube-") {
					built = append(built, bin.Dir+" "+bin.Name)
				}
			}
			want := []string{k.Dir + " " + Program("kube-apiserver", k, DefaultTrainer()), k.Dir + " " + Program("kube-controller-manager", k, DefaultTrainer()), k.Dir + " " + Program("kube-scheduler", k, DefaultTrainer())}
			if !slices.Equal(built, want) {
				t.Errorf("built is %v, want %v", built, want)
			}
		})
	}
}
