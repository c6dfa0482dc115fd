// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ExplicitRetention writes into runtimes what JobSet defaults for their volume claims.
//
// JobSet 0.12 defaults the retention policy when a JobSet is created, but not when it
// is updated. Trainer 2.3 applies the JobSet of a suspended TrainJob again, without
// that default, and JobSet refuses: the field is immutable. So a TrainJob of a runtime
// with volume claims, as the torchtune ones are shipped, never starts once it was
// suspended, be it by Kueue or by hand. An admin has to make the same change when the
// runtime is created; later it is immutable in the runtime, too.
func ExplicitRetention(objects []*unstructured.Unstructured) error {
	for _, obj := range objects {
		if err := explicitRetention(obj); err != nil {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	return nil
}

func explicitRetention(obj *unstructured.Unstructured) error {
	path := []string{"spec", "template", "spec", "volumeClaimPolicies"}
	policies, found, err := unstructured.NestedSlice(obj.Object, path...)
	if err != nil || !found {
		return err
	}
	for _, policy := range policies {
		fields, ok := policy.(map[string]any)
		if ok && fields["retentionPolicy"] == nil {
			fields["retentionPolicy"] = map[string]any{"whenDeleted": "Delete"}
		}
	}
	return unstructured.SetNestedSlice(obj.Object, policies, path...)
}
