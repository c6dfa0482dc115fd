// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"regexp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
)

// at is a part where it was found: in the namespace of its webhooks' Service, and Kueue where the
// manager reads its configuration. Where nothing tells, it is where its manifests install it.
func (f *Facts) at(p *part) *part {
	found := *p
	for _, w := range f.webhooks() {
		if w.part == p && w.ClientConfig.Service != nil {
			found.Namespace = w.ClientConfig.Service.Namespace
			break
		}
	}
	if p != kueuePart {
		return &found
	}
	if manager := cluster.ManagerConfigurationIn(f.configMap(managerPart)); manager != nil {
		place := cluster.KueuePlace(manager)
		found.Namespace, found.ConfigMap, found.configKey = place.Namespace, place.Name, place.Key
	}
	return &found
}

// relocation returns the names that the table says for the parts by their manifests, and those by which they are installed.
func (f *Facts) relocation() map[string]string {
	names := map[string]string{}
	for _, p := range parts {
		at := f.at(p)
		names[p.Namespace], names[p.ConfigMap] = at.Namespace, at.ConfigMap
	}
	return names
}

// wholeName is a name of an object, which may be a part of another one's.
var wholeName = regexp.MustCompile(`[a-z0-9](?:[a-z0-9-]*[a-z0-9])?`)

func relocated(finding Finding, names map[string]string) Finding {
	replace := func(text string) string {
		return wholeName.ReplaceAllStringFunc(text, func(name string) string { return cmp.Or(names[name], name) })
	}
	finding.Object, finding.Problem, finding.Advice = replace(finding.Object), replace(finding.Problem), replace(finding.Advice)
	finding.Commands = slices.Clone(finding.Commands)
	for i, command := range finding.Commands {
		finding.Commands[i] = replace(command)
	}
	return finding
}

// placed is a role of config/rbac as it is installed for parts that are elsewhere.
func (f *Facts) placed(role rbacv1.Role) rbacv1.Role {
	for _, p := range []*part{kueuePart, managerPart} {
		if role.Namespace != p.Namespace {
			continue
		}
		at := f.at(p)
		role.Namespace = at.Namespace
		for i := range role.Rules {
			for n, name := range role.Rules[i].ResourceNames {
				if name == p.ConfigMap {
					role.Rules[i].ResourceNames[n] = at.ConfigMap
				}
			}
		}
		return role
	}
	return role
}

// byManifests reports whether a part is that of its own manifests, which can be applied again: another
// one of the same kinds, a Helm release for instance, would get a second one beside it.
func (f *Facts) byManifests(p *part) bool {
	d := inventory.Find(f.Deployments, p.Namespace, p.Deployment)
	return d != nil && d.Annotations["meta.helm.sh/release-name"] == ""
}

// reinstall is what to do about a part that did not come of its manifests.
func (f *Facts) reinstall(p *part) string {
	if f.install(p) != releases {
		return ""
	}
	return "Install " + p.Name + " again, or upgrade it, the way it was installed. Where Helm did, upgrade its release:"
}
