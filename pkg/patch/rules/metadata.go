// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Metadata returns what the API server, which checks what is of no CRD's schema for objects
// of every kind, refuses of one's metadata.
func Metadata(metadata *metav1.ObjectMeta) field.ErrorList {
	path := field.NewPath("metadata")
	var errs field.ErrorList
	if metadata.Namespace != "" {
		errs = append(errs, complaints(path.Child("namespace"), metadata.Namespace, apivalidation.ValidateNamespaceName(metadata.Namespace, false))...)
	}
	if metadata.GenerateName != "" {
		errs = append(errs, complaints(path.Child("generateName"), metadata.GenerateName, apivalidation.NameIsDNSSubdomain(metadata.GenerateName, true))...)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata.Labels)) {
		at := path.Child("labels").Key(key)
		errs = append(errs, complaints(at, key, validation.IsQualifiedName(key))...)
		errs = append(errs, complaints(at, metadata.Labels[key], validation.IsValidLabelValue(metadata.Labels[key]))...)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata.Annotations)) {
		// Kubernetes takes capitals in the prefix of an annotation.
		errs = append(errs, complaints(path.Child("annotations").Key(key), key, validation.IsQualifiedName(strings.ToLower(key)))...)
	}
	return append(errs, apivalidation.ValidateFinalizers(metadata.Finalizers, path.Child("finalizers"))...)
}

// complaints makes one error of what there is to say of a value.
func complaints(path *field.Path, value string, texts []string) field.ErrorList {
	if len(texts) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, strings.Join(texts, "; "))}
}
