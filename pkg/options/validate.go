// SPDX-License-Identifier: Apache-2.0

package options

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// valueSources are what a variable can have its value from.
var valueSources = []string{"configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef"}

// validate refuses what the SDK's ContainerPatch does.
func (c ContainerPatch) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(c.Name) == "" {
		errs = append(errs, field.Required(path.Child("name"), "name a container of the runtime"))
	}
	for i, variable := range c.Env {
		errs = append(errs, validateVariable(path.Child("env").Index(i), variable)...)
	}
	for i, mount := range c.VolumeMounts {
		errs = append(errs, validateMount(path.Child("volumeMounts").Index(i), mount)...)
	}
	return errs
}

func validateVariable(path *field.Path, variable map[string]any) field.ErrorList {
	errs := named(path, variable)
	_, hasValue := variable["value"]
	valueFrom, hasValueFrom := variable["valueFrom"]
	if !hasValue && !hasValueFrom {
		errs = append(errs, field.Required(path, "set value or valueFrom"))
	}
	if !hasValueFrom {
		return errs
	}
	source, _ := valueFrom.(map[string]any)
	if !slices.ContainsFunc(valueSources, func(key string) bool { _, ok := source[key]; return ok }) {
		errs = append(errs, field.Invalid(path.Child("valueFrom"), valueFrom, "set one of "+strings.Join(valueSources, ", ")))
	}
	return errs
}

func validateMount(path *field.Path, mount map[string]any) field.ErrorList {
	errs := named(path, mount)
	switch at, _ := mount["mountPath"].(string); {
	case at == "":
		errs = append(errs, field.Required(path.Child("mountPath"), "set an absolute path"))
	case !strings.HasPrefix(at, "/"):
		errs = append(errs, field.Invalid(path.Child("mountPath"), at, "it must be an absolute path: start it with /"))
	}
	return errs
}

func named(path *field.Path, item map[string]any) field.ErrorList {
	if name, _ := item["name"].(string); name != "" {
		return nil
	}
	return field.ErrorList{field.Required(path.Child("name"), "it must not be empty")}
}
