// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestGrants(t *testing.T) {
	quotas := func(flavor string, resources ...kueue.ResourceQuota) kueue.FlavorQuotas {
		return kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor), Resources: resources}
	}
	groups := []kueue.ResourceGroup{
		{Flavors: []kueue.FlavorQuotas{quotas("cpus", kueue.ResourceQuota{Name: "cpu"}, kueue.ResourceQuota{Name: "memory"})}},
		{},
		{Flavors: []kueue.FlavorQuotas{quotas("h100", kueue.ResourceQuota{Name: "nvidia.com/gpu"}), quotas("a100", kueue.ResourceQuota{Name: "nvidia.com/gpu"})}},
	}
	var got [][]string
	for grant := range Grants(groups) {
		got = append(got, []string{string(grant.Flavor), string(grant.Quota.Name), grant.Path})
	}
	want := [][]string{
		{"cpus", "cpu", "/spec/resourceGroups/0/flavors/0/resources/0"},
		{"cpus", "memory", "/spec/resourceGroups/0/flavors/0/resources/1"},
		{"h100", "nvidia.com/gpu", "/spec/resourceGroups/2/flavors/0/resources/0"},
		{"a100", "nvidia.com/gpu", "/spec/resourceGroups/2/flavors/1/resources/0"},
	}
	expect.Same(t, "Unexpected grants", want, got)
	for grant := range Grants(groups) {
		expect.That(t, grant.Quota == &groups[0].Flavors[0].Resources[0], "The quota is a copy of the object's")
		break
	}
}
