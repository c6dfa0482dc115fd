// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

// unknownKinds tells of objects of Trainer's group, also in a list, whose kind it does not
// have: nothing would be checked of a Trainjob.
func unknownKinds(doc *manifest.Document) []finding {
	type object struct{ APIVersion, Kind string }
	var content struct {
		object
		Items []object
	}
	data, err := doc.JSON()
	if err != nil || json.Unmarshal(data, &content) != nil {
		return nil // It is not an object of Trainer's, which could be read.
	}
	known := []string{trainer.TrainJobKind, trainer.ClusterTrainingRuntimeKind, trainer.TrainingRuntimeKind}
	var found []finding
	check := func(path *field.Path, o object) {
		isKnown := slices.Contains(known, strings.TrimSuffix(o.Kind, "List"))
		if isKnown || !strings.HasPrefix(o.APIVersion, trainer.GroupVersion.Group+"/") {
			return
		}
		at := path.Child("kind").String()
		err := field.NotSupported(nil, o.Kind, known)
		found = append(found, finding{File: doc.Path, Line: doc.LineOf(at), Severity: doubtful, Field: at, Reason: string(err.Type), Message: err.ErrorBody()})
	}
	check(nil, content.object)
	for i, item := range content.Items {
		check(field.NewPath("items").Index(i), item)
	}
	return found
}

// nothing is the error for files without a TrainJob or a runtime.
func nothing(files []string) error {
	return fmt.Errorf("there is no TrainJob and no runtime in %s: name files that have one, of apiVersion %s and kind %s",
		strings.Join(files, ", "), trainer.GroupVersion, trainer.TrainJobKind)
}
