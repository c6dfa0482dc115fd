// SPDX-License-Identifier: Apache-2.0

// Package stages holds what the fake kubelet and the fake volume provisioner do,
// as kwok Stages. Pods run until they are told to end, by these annotations:
//
//	localcluster/run-for: 10s             succeeds that long after it started
//	localcluster/finish: succeeded|failed ends at once, also when added later
//	localcluster/terminate-after: 5s      when deleted, keeps terminating that
//	                                      long (at most its grace period)
package stages

import _ "embed"

// KwokConfiguration is kwok's options and all Stages in one stream, as its --config takes them.
//
//go:embed kwok.yaml
var KwokConfiguration []byte
