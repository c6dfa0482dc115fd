// SPDX-License-Identifier: Apache-2.0

// Package multikueue holds, as they are installed, the permissions that a manager cluster's Kueue
// needs in a worker.
package multikueue

import _ "embed"

// Role is role.yaml: the ClusterRole of whom Kueue acts as.
//
//go:embed role.yaml
var Role []byte
