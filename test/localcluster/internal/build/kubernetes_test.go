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
			want := []string{k.Dir + " " + k.Binary("kube-apiserver"), k.Dir + " " + k.Binary("kube-controller-manager"), k.Dir + " " + k.Binary("kube-scheduler")}
			if !slices.Equal(built, want) {
				t.Errorf("built is %v, want %v", built, want)
			}
		})
	}
}

func TestFindKubernetesNamesTheValues(t *testing.T) {
	_, err := FindKubernetes("1.35")
	if err == nil || err.Error() != "KUBERNETES=1.35: must be one of 1.36, 1.37" {
		t.Errorf("error %v, want it to name the variable and its values", err)
	}
}
