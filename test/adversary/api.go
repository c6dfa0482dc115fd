// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
)

// resource is something that a tenant may write in his namespace.
type resource struct {
	schema.GroupVersionResource
	// kind is that of what it takes.
	kind        schema.GroupVersionKind
	subresource string
	verbs       []string
	// watched is set where its objects can be watched.
	watched bool
}

// arg is the resource as kubectl takes it.
func (r resource) arg() string { return r.Resource + "." + r.Version + "." + r.Group }

// outOfReach are subresources that talk to a kubelet or only read, questions that are asked by a create, and
// the tenant's own rights, without which he could do nothing more.
var outOfReach = []string{"exec", "attach", "portforward", "proxy", "log", "token", "localsubjectaccessreviews", "roles", "rolebindings"}

// resourcesOf returns what a user may write in a namespace: what discovery has and his rules allow.
func resourcesOf(ctx context.Context, config *rest.Config, namespace string) ([]resource, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for the rules of a tenant: %w", err)
	}
	groups, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("discovering the API: %w", err)
	}
	preferred := map[string]bool{}
	for _, group := range groups {
		preferred[group.PreferredVersion.GroupVersion] = true
	}
	var out []resource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || !preferred[list.GroupVersion] {
			continue
		}
		for _, of := range list.APIResources {
			if r := allowed(gv, of, review.Status.ResourceRules); of.Namespaced && len(r.verbs) > 0 {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// writing are the verbs that change something.
var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

func allowed(gv schema.GroupVersion, of metav1.APIResource, rules []authorizationv1.ResourceRule) resource {
	name, subresource, _ := strings.Cut(of.Name, "/")
	r := resource{GroupVersionResource: gv.WithResource(name), subresource: subresource, kind: gv.WithKind(of.Kind)}
	if of.Group != "" || of.Version != "" {
		r.kind = schema.GroupVersionKind{Group: of.Group, Version: of.Version, Kind: of.Kind}
	}
	if slices.Contains(outOfReach, subresource) || slices.Contains(outOfReach, name) {
		return r
	}
	r.watched = subresource == "" && slices.Contains(of.Verbs, "watch") && of.Kind != "Event"
	for _, verb := range writing {
		may := slices.ContainsFunc(rules, func(rule authorizationv1.ResourceRule) bool {
			return len(rule.ResourceNames) == 0 && has(rule.Verbs, verb) && has(rule.APIGroups, gv.Group) && has(rule.Resources, of.Name)
		})
		if may && slices.Contains(of.Verbs, verb) {
			r.verbs = append(r.verbs, verb)
		}
	}
	return r
}

func has(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

// schemas are the OpenAPI schemas of the API server.
type schemas struct {
	kinds map[schema.GroupVersionKind]map[string]any
	named map[string]map[string]any
}

// schemasOf reads those of some group versions.
func schemasOf(config *rest.Config, of []resource) (*schemas, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	root := openapi3.NewRoot(client.OpenAPIV3())
	s := &schemas{kinds: map[schema.GroupVersionKind]map[string]any{}, named: map[string]map[string]any{}}
	read := map[schema.GroupVersion]bool{}
	for _, r := range of {
		for _, gv := range []schema.GroupVersion{r.GroupVersion(), r.kind.GroupVersion()} {
			if read[gv] {
				continue
			}
			read[gv] = true
			document, err := root.GVSpecAsMap(gv)
			if err != nil {
				return nil, fmt.Errorf("reading the schema of %s: %w", gv, err)
			}
			s.add(document)
		}
	}
	return s, nil
}

func (s *schemas) add(document map[string]any) {
	components, _ := document["components"].(map[string]any)
	all, _ := components["schemas"].(map[string]any)
	for name, of := range all {
		one, _ := of.(map[string]any)
		s.named["#/components/schemas/"+name] = one
		kinds, _ := one["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			k, _ := kind.(map[string]any)
			s.kinds[schema.GroupVersionKind{Group: fmt.Sprint(k["group"]), Version: fmt.Sprint(k["version"]), Kind: fmt.Sprint(k["kind"])}] = one
		}
	}
}

func (s *schemas) of(kind schema.GroupVersionKind) map[string]any { return s.kinds[kind] }

// resolve follows references.
func (s *schemas) resolve(of map[string]any) map[string]any {
	for range 4 {
		if all, ok := of["allOf"].([]any); ok && len(all) == 1 {
			of, _ = all[0].(map[string]any)
		}
		ref, ok := of["$ref"].(string)
		if !ok {
			break
		}
		of = s.named[ref]
	}
	return of
}

// field returns the schema of a field, or of a map's values.
func (s *schemas) field(of map[string]any, name string) map[string]any {
	of = s.resolve(of)
	properties, _ := of["properties"].(map[string]any)
	if field, ok := properties[name].(map[string]any); ok {
		return field
	}
	values, _ := of["additionalProperties"].(map[string]any)
	return values
}

// fields returns the names of an object's fields.
func (s *schemas) fields(of map[string]any) []string {
	properties, _ := s.resolve(of)["properties"].(map[string]any)
	return slices.Sorted(maps.Keys(properties))
}

func (s *schemas) items(of map[string]any) map[string]any {
	items, _ := s.resolve(of)["items"].(map[string]any)
	return items
}
