// SPDX-License-Identifier: Apache-2.0

// Package rbac holds the manager's permissions as they are installed.
package rbac

import _ "embed"

// Role is role.yaml: the ClusterRole and the Role of the manager.
//
//go:embed role.yaml
var Role []byte
