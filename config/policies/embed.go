// SPDX-License-Identifier: Apache-2.0

// Package policies holds the rules at the API server as they are installed.
package policies

import (
	"embed"
	"io/fs"
	"strings"
)

// Files are the manifests: a ValidatingAdmissionPolicy and its binding in each.
//
//go:embed claims.yaml jobs.yaml jobsets.yaml localqueues.yaml pod-adoptions.yaml pod-bindings.yaml pod-claims.yaml pod-deletions.yaml pods.yaml runtimes.yaml snapshots.yaml trainjobs.yaml workloads.yaml
var Files embed.FS

// Names are those of the policies, and of their bindings: each is named after its file.
func Names() []string {
	files, _ := fs.Glob(Files, "*.yaml") // The pattern is right.
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, "kueue-trainer-"+strings.TrimSuffix(file, ".yaml"))
	}
	return names
}
