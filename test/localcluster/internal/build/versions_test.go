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
	for _, trainer := range Trainers {
		t.Run(trainer.Name, func(t *testing.T) {
			if version := required(t, trainer.Dir, TrainerModule); !strings.HasPrefix(version, "v"+trainer.Name+".") {
				t.Errorf("%s requires Trainer %s, not %s", trainer.Dir, version, trainer.Name)
			}
			library, program := required(t, trainer.Dir, JobSetModule), required(t, trainer.JobSetDir, JobSetModule)
			if library != program {
				t.Errorf("Trainer is built with JobSet %s and would run beside JobSet %s", library, program)
			}
		})
	}
}

func TestKubernetesVersionsAreWhatTheirModulesRequire(t *testing.T) {
	for _, k := range KubernetesVersions {
		if version := required(t, k.Dir, "k8s.io/kubernetes"); !strings.HasPrefix(version, "v"+k.Name+".") {
			t.Errorf("%s requires Kubernetes %s, not %s", k.Dir, version, k.Name)
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
