// SPDX-License-Identifier: Apache-2.0

// Package policies holds the rules at the API server as they are installed.
package policies

import "embed"

// Files are the manifests: a ValidatingAdmissionPolicy and its binding in each.
//
//go:embed jobs.yaml jobsets.yaml pods.yaml snapshots.yaml trainjobs.yaml workloads.yaml
var Files embed.FS
