// SPDX-License-Identifier: Apache-2.0

package state

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ControllerOfKind returns the controller of obj if it is of a kind, or nil.
func ControllerOfKind(obj client.Object, kind string) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil && owner.Kind == kind {
		return owner
	}
	return nil
}
