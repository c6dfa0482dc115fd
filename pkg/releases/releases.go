// SPDX-License-Identifier: Apache-2.0

// Package releases knows what each release of Trainer ships: its runtimes, and the schemas
// of its kinds. `make generate` copies both out of Trainer's modules.
package releases

import (
	"embed"
	"fmt"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

//go:embed 2.*
var files embed.FS

// Runtimes returns the manifest of the ClusterTrainingRuntimes that a release ships.
func Runtimes(release trainjob.TrainerVersion) ([]byte, error) {
	return read(release, "runtimes.yaml")
}

func read(release trainjob.TrainerVersion, name string) ([]byte, error) {
	data, err := files.ReadFile(release.String() + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("what Trainer %s ships is not known: %w", release, err)
	}
	return data, nil
}
