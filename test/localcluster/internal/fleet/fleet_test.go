// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestDownRemovesWhatIsOfAFleet(t *testing.T) {
	for state, left := range map[string]bool{"there": false, "none": true} {
		dir := t.TempDir()
		kubeconfig, manifest := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "manifests", "kustomization.yaml")
		err := errors.Join(os.Mkdir(filepath.Dir(manifest), 0o755), os.Mkdir(filepath.Join(dir, Workers[1]), 0o755),
			os.WriteFile(kubeconfig, nil, 0o600), os.WriteFile(manifest, nil, 0o600))
		if state == "there" {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, Workers[1], "state.json"), []byte(`{"ports":{}}`), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
		New(dir, dir, io.Discard, 8).Down(t.Context())
		for _, file := range []string{kubeconfig, manifest} {
			if _, err := os.Stat(file); (err == nil) != left {
				t.Errorf("With state %s: %s: %v", state, file, err)
			}
		}
	}
}
