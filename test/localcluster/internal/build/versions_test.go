// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestTrainersAreWhatTheirModulesRequire(t *testing.T) {
	for _, generation := range Trainers {
		t.Run(generation, func(t *testing.T) {
			trainer, jobSet := trainerDirs(generation)
			if version := required(t, trainer, TrainerModule); !strings.HasPrefix(version, "v"+generation+".") {
				t.Errorf("%s requires Trainer %s, not %s", trainer, version, generation)
			}
			library, program := required(t, trainer, JobSetModule), required(t, jobSet, JobSetModule)
			if library != program {
				t.Errorf("Trainer is built with JobSet %s and would run beside JobSet %s", library, program)
			}
		})
	}
}

func TestKubernetesVersionsAreWhatTheirModulesRequire(t *testing.T) {
	for _, minor := range KubernetesVersions {
		if version := required(t, kubernetesDir(minor), "k8s.io/kubernetes"); !strings.HasPrefix(version, "v"+minor+".") {
			t.Errorf("%s requires Kubernetes %s, not %s", kubernetesDir(minor), version, minor)
		}
	}
}

func required(t *testing.T, dir, module string) string {
	t.Helper()
	path := filepath.Join("../../../..", dir, "go.mod")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.ParseLax(path, content, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, require := range file.Require {
		if require.Mod.Path == module {
			return require.Mod.Version
		}
	}
	t.Fatalf("%s does not require %s", path, module)
	return ""
}
