// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Pods finds, outside the patches of a manifest in JSON, what a generation of Trainer
// takes although the API server refuses the pods that come of it: the TrainJob never runs.
func Pods(generation trainjob.TrainerVersion, data []byte) field.ErrorList {
	var job trainjob.TrainJob
	_ = json.Unmarshal(data, &job) // What cannot be decoded is of Fields.
	errs := checkTrainer(generation, &job)
	if initializer := job.Spec.Initializer; initializer != nil {
		path := specPath.Child("initializer")
		if initializer.Dataset != nil {
			errs = append(errs, checkEnv(path.Child("dataset", "env"), initializer.Dataset.Env)...)
		}
		if initializer.Model != nil {
			errs = append(errs, checkEnv(path.Child("model", "env"), initializer.Model.Env)...)
		}
	}
	// A value that could not be decoded looks like none.
	undecoded := refusals(trainjob.Trainer23, data)
	errs = slices.DeleteFunc(errs, func(err *field.Error) bool {
		return slices.ContainsFunc(undecoded, func(u *field.Error) bool { return u.Field == err.Field })
	})
	for _, err := range errs {
		err.Detail += "; Trainer accepts it and makes a JobSet that cannot run"
	}
	return errs
}

func checkTrainer(generation trainjob.TrainerVersion, job *trainjob.TrainJob) field.ErrorList {
	t := job.Spec.Trainer
	if t == nil {
		return nil
	}
	path := specPath.Child("trainer")
	errs := append(checkEnv(path.Child("env"), t.Env), podset.ValidateNodes(job)...)
	if t.ResourcesPerNode != nil {
		errs = append(errs, checkResources(generation, path.Child("resourcesPerNode"), t.ResourcesPerNode)...)
	}
	return errs
}

// checkEnv: pods. Names may be nearly everything since Kubernetes 1.34.
func checkEnv(path *field.Path, variables []corev1.EnvVar) field.ErrorList {
	var errs field.ErrorList
	for i, variable := range variables {
		errs = append(errs, Complaints(path.Index(i).Child("name"), variable.Name, validation.IsRelaxedEnvVarName(variable.Name))...)
	}
	return errs
}

// checkResources: pods. Since Trainer 2.3 a limit, or cpu and memory, may be the runtime's.
func checkResources(generation trainjob.TrainerVersion, path *field.Path, resources *corev1.ResourceRequirements) field.ErrorList {
	var errs field.ErrorList
	for _, wrong := range quantity.Check(resources) {
		if wrong.NeedsMore && generation >= trainjob.Trainer23 {
			continue
		}
		errs = append(errs, field.Invalid(path.Child(wrong.List).Key(string(wrong.Name)), wrong.Quantity.String(), wrong.Why))
	}
	return errs
}
