// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// object is a TrainJob in a document.
type object struct {
	manifest.Object
	// limit is the first line after the object, as the nodes count.
	limit int
}

// trainJobsIn finds the TrainJobs of a document.
func trainJobsIn(doc *manifest.Document) ([]object, error) {
	found, err := doc.TrainJobs()
	objects := make([]object, 0, len(found))
	for _, f := range found {
		o := object{Object: f, limit: 1 + len(lines(doc.Text()))}
		if len(f.Steps) > 0 {
			at := indexOf(doc.Node, "items")
			_, items := pair(doc.Node, "items")
			o.limit = after(items, slices.Index(items.Content, f.Node), after(doc.Node, at+1, o.limit))
		}
		objects = append(objects, o)
	}
	return objects, err
}

// conversion is a TrainJob before and after.
type conversion struct {
	before, after trainJob
	// json is all of the TrainJob after it.
	json     json.RawMessage
	warnings []string
}

// trainJob is what a conversion changes of one.
type trainJob struct {
	APIVersion string                     `json:"apiVersion"`
	Spec       map[string]json.RawMessage `json:"spec"`
}

// convert makes a TrainJob of the newest Trainer of the object, which would take it, or a part of one, as patches are of
// Kustomize. What is left as it is has its bytes.
func (o *object) convert(owner string) (*conversion, field.ErrorList) {
	converted, warnings, errs := convert.ManifestToRuntimePatches(o.JSON, owner)
	if len(errs) > 0 {
		return nil, errs
	}
	var refused field.ErrorList
	for _, err := range rules.Fields(trainjob.Trainer23, converted) {
		if err.Type != field.ErrorTypeRequired || strings.Contains(err.Field, "[") {
			refused = append(refused, err)
			continue
		}
		warnings = append(warnings, err.Error()+", unless this is a patch of another manifest")
	}
	if len(refused) > 0 {
		return nil, refused
	}
	c := &conversion{json: converted, warnings: warnings}
	if err := errors.Join(json.Unmarshal(o.JSON, &c.before), json.Unmarshal(converted, &c.after)); err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return c, nil
}

// gone names the fields of the spec that the conversion takes away.
func (c *conversion) gone() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.before.Spec)), func(name string) bool {
		_, stays := c.after.Spec[name]
		return stays
	})
}

// patches is spec.runtimePatches if the conversion made it.
func (c *conversion) patches() json.RawMessage {
	if len(c.gone()) == 0 {
		return nil
	}
	return c.after.Spec["runtimePatches"]
}

// origin returns the field of the old text that a path is about, which may be of what the
// conversion made.
func (c *conversion) origin(path string) string {
	if c.patches() == nil || !strings.HasPrefix(path, "spec.runtimePatches") {
		return path
	}
	gone := c.gone()
	i := slices.IndexFunc(gone, func(name string) bool { return strings.HasSuffix(name, "Overrides") })
	return "spec." + gone[max(i, 0)]
}

func (c *conversion) changes() bool {
	return len(c.gone()) > 0 || c.before.APIVersion != c.after.APIVersion
}

// String tells what the conversion changes.
func (c *conversion) String() string {
	var parts []string
	if gone := c.gone(); len(gone) > 0 {
		parts = append(parts, fmt.Sprintf("%s → %s", strings.Join(gone, ", "), c.made()))
	}
	if c.before.APIVersion != c.after.APIVersion {
		parts = append(parts, fmt.Sprintf("apiVersion %s → %s", c.before.APIVersion, c.after.APIVersion))
	}
	return strings.Join(parts, "; ")
}

func (c *conversion) made() string {
	var entries []struct{ Manager string }
	if err := json.Unmarshal(c.patches(), &entries); err != nil || len(entries) == 0 {
		return "nothing"
	}
	var managers []string
	for _, entry := range entries {
		managers = append(managers, entry.Manager)
	}
	return "runtimePatches of " + strings.Join(managers, ", ")
}
