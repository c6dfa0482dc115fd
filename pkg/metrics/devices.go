// SPDX-License-Identifier: Apache-2.0

package metrics

import "regexp"

// NoDevice matches, as PromQL does, a whole label resource of what is not counted one by one. All else is something like a GPU:
// a resource that stands for device classes needs no slash in its name.
const NoDevice = "cpu|memory|ephemeral-storage|pods|hugepages-.+"

var noDevice = regexp.MustCompile("^(?:" + NoDevice + ")$")

// IsDevice reports whether a resource is something like a GPU, which is counted one by one.
func IsDevice(resource string) bool { return !noDevice.MatchString(resource) }
