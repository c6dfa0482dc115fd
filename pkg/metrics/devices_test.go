// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestIsDevice(t *testing.T) {
	for resource, want := range map[string]bool{
		"nvidia.com/gpu": true, "nvidia.com/mig-1g.10gb": true, "whole-gpus": true, "cpus": true,
		"cpu": false, "memory": false, "ephemeral-storage": false, "pods": false, "hugepages-2Mi": false,
	} {
		expect.Same(t, "Is it a device? "+resource, want, IsDevice(resource))
	}
}
