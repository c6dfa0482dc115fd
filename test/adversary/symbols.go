// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// symbols stand for what differs from walk to walk: "{NS}", "{SUFFIX}", "{TENANT}",
// "{UID jobs/first-node-0}" and "{NAME pods/first-node-0-0-}".
type symbols struct {
	namespace, suffix, tenant string
}

// generated is the end of a name that somebody made up.
var generated = regexp.MustCompile(`-[a-z0-9]{5}$`)

// stem returns the part of an object's name that every walk has in common, and whether it is a part only.
func stem(obj *unstructured.Unstructured) (string, bool) {
	name := obj.GetName()
	if obj.GetGenerateName() == "" && obj.GetKind() != "Workload" || !generated.MatchString(name) {
		return name, false
	}
	return name[:len(name)-5], true
}

func plural(obj *unstructured.Unstructured) string { return strings.ToLower(obj.GetKind()) + "s" }

// abstract replaces what a walk made up by symbols.
func (s symbols) abstract(text string, live []*unstructured.Unstructured) string {
	var pairs []string
	for _, obj := range live {
		short, part := stem(obj)
		pairs = append(pairs, string(obj.GetUID()), fmt.Sprintf("{UID %s/%s}", plural(obj), short))
		if part {
			pairs = append(pairs, obj.GetName(), fmt.Sprintf("{NAME %s/%s}", plural(obj), short))
		}
	}
	text = strings.NewReplacer(pairs...).Replace(text)
	return strings.NewReplacer(s.tenant, "{TENANT}", s.namespace, "{NS}", s.suffix, "{SUFFIX}").Replace(text)
}

var symbol = regexp.MustCompile(`\{(UID|NAME) ([a-z]+)/([^}]*)\}`)

// concrete puts in what symbols stand for now, of several the one that was made first. What there is
// nothing for stays, and the API server says that it is not there.
func (s symbols) concrete(text string, live []*unstructured.Unstructured) string {
	text = strings.NewReplacer("{TENANT}", s.tenant, "{NS}", s.namespace, "{SUFFIX}", s.suffix).Replace(text)
	return symbol.ReplaceAllStringFunc(text, func(found string) string {
		parts := symbol.FindStringSubmatch(found)
		var of []*unstructured.Unstructured
		for _, obj := range live {
			if short, _ := stem(obj); plural(obj) == parts[2] && short == parts[3] {
				of = append(of, obj)
			}
		}
		if len(of) == 0 {
			return found
		}
		first := slices.MinFunc(of, func(a, b *unstructured.Unstructured) int {
			return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
		})
		if parts[1] == "UID" {
			return string(first.GetUID())
		}
		return first.GetName()
	})
}
