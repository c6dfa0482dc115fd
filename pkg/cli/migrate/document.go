// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

type result struct {
	file *manifest.File
	// data is the file's content; as it was when anything in it could not be converted.
	data []byte
	// changes are lines of the report, one for each TrainJob that is another one; remarks are warnings and errors.
	changes, remarks []string
	// found are the TrainJobs in the file, of which some failed.
	found, failed int
	// unreadable are the documents that cannot be read as objects.
	unreadable int
}

// migrateFile converts every TrainJob of a file. Patches without an owner get owner.
func migrateFile(file *manifest.File, owner string) result {
	r := result{file: file}
	end := 0
	for i := range file.Documents {
		doc := &file.Documents[i]
		r.data = slices.Concat(r.data, file.Data[end:doc.Start], r.document(doc, owner))
		end = doc.End
	}
	r.data = slices.Concat(r.data, file.Data[end:])
	if r.failed+r.unreadable > 0 {
		r.leave()
	}
	return r
}

// leave takes back what changed.
func (r *result) leave() { r.data, r.changes = r.file.Data, nil }

func (r *result) tell(doc *manifest.Document, line int, text string) {
	r.remarks = append(r.remarks, fmt.Sprintf("%s:%d: %s", doc.Path, line, text))
}

func (r *result) document(doc *manifest.Document, owner string) []byte {
	objects, err := doc.TrainJobs()
	if err != nil {
		r.unreadable++
		line, text := doc.Complaint(err)
		r.tell(doc, line, "error: "+text)
		return doc.Text()
	}
	if len(objects) == 0 {
		r.overlook(doc)
		return doc.Text()
	}
	var conversions []*conversion
	for i := range objects {
		if c := r.convert(&objects[i], owner); c != nil {
			conversions = append(conversions, c)
		}
	}
	if len(conversions) < len(objects) {
		return doc.Text()
	}
	text, lost, err := edited(doc, conversions)
	if err != nil {
		r.failed++
		r.tell(doc, objects[0].LineOf("spec"), "error: "+err.Error())
		return doc.Text()
	}
	for _, comment := range lost {
		r.tell(doc, objects[0].LineOf("spec"), "warning: this comment has no place any more: "+comment)
	}
	return text
}

// convert converts a TrainJob, unless it cannot be.
func (r *result) convert(o *manifest.Object, owner string) *conversion {
	r.found++
	c, errs := newConversion(o, owner)
	if len(errs) > 0 {
		r.failed++
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return o.LineOf(a.Field) - o.LineOf(b.Field) })
	for _, err := range errs {
		line := o.LineOf(err.Field)
		err.Field = o.Field(err.Field)
		r.tell(o.Document, line, "error: "+err.Error())
	}
	if c == nil {
		return nil
	}
	if c.change != "" {
		r.changes = append(r.changes, fmt.Sprintf("%s:%d: trainjob %s: %s", o.Document.Path, o.LineOf(""), o.Name(), c.change))
	}
	for _, text := range c.warnings {
		r.tell(o.Document, c.lineOf(text), "warning: "+text)
	}
	return c
}

var olderField = regexp.MustCompile(`\b(podTemplate|jobTemplate|template)Overrides\b`)

// overlook warns of a document without a TrainJob that names an older field all the same: a JSON patch of one, say, or one
// within a ConfigMap.
func (r *result) overlook(doc *manifest.Document) {
	at := olderField.FindIndex(doc.Text())
	if at == nil || doc.Of(apiextensions.GroupName, "CustomResourceDefinition") {
		return
	}
	line := doc.Line + bytes.Count(doc.Text()[:at[0]], []byte("\n"))
	r.tell(doc, line, fmt.Sprintf("warning: %s stands in what is no TrainJob, such as a patch or a text in it: write runtimePatches there yourself", doc.Text()[at[0]:at[1]]))
}

// conversion is what becomes of a TrainJob in a document.
type conversion struct {
	*manifest.Object
	// owner is the manager of patches that nobody is named as the owner of.
	owner string
	// after is all of the TrainJob after it, of which apiVersion may be another one.
	after      json.RawMessage
	apiVersion string
	// gone are the fields of the spec that it takes away, and patches what it makes of them; nil for nothing.
	gone    []string
	patches json.RawMessage
	// change tells what it changes; empty for nothing.
	change   string
	warnings []string
}

// newConversion makes a TrainJob of the newest Trainer of an object, which that would take, or a part of one, as patches are of
// Kustomize.
func newConversion(o *manifest.Object, owner string) (*conversion, field.ErrorList) {
	after, warnings, errs := convert.ManifestToRuntimePatches(o.JSON, owner)
	if len(errs) > 0 {
		return nil, errs
	}
	for _, err := range rules.Fields(trainjob.Trainer23, after) {
		if err.Type != field.ErrorTypeRequired || strings.Contains(err.Field, "[") {
			errs = append(errs, err)
			continue
		}
		warnings = append(warnings, err.Error()+", unless this is a patch of another manifest")
	}
	if len(errs) > 0 {
		return nil, errs
	}
	c := &conversion{Object: o, owner: owner, after: after, warnings: warnings}
	if err := c.compare(); err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	return c, nil
}

func (c *conversion) compare() error {
	var before, after struct {
		APIVersion string
		Spec       map[string]json.RawMessage
	}
	if err := errors.Join(json.Unmarshal(c.JSON, &before), json.Unmarshal(c.after, &after)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(before.Spec)) {
		if _, stays := after.Spec[name]; !stays {
			c.gone = append(c.gone, name)
		}
	}
	var changes []string
	if len(c.gone) > 0 {
		c.patches = after.Spec["runtimePatches"]
		changes = append(changes, fmt.Sprintf("%s → %s", strings.Join(c.gone, ", "), made(c.patches)))
	}
	if c.apiVersion = after.APIVersion; c.apiVersion != before.APIVersion {
		changes = append(changes, fmt.Sprintf("apiVersion %s → %s", before.APIVersion, c.apiVersion))
	}
	c.change = strings.Join(changes, "; ")
	return nil
}

func made(patches json.RawMessage) string {
	var entries []struct{ Manager string }
	if err := json.Unmarshal(patches, &entries); err != nil || len(entries) == 0 {
		return "nothing"
	}
	var managers []string
	for _, entry := range entries {
		managers = append(managers, entry.Manager)
	}
	return "runtimePatches of " + strings.Join(managers, ", ")
}

// lineOf is the line of what a warning is about, which begins with a field of the TrainJob before or after the conversion.
func (c *conversion) lineOf(warning string) int {
	path, _, _ := strings.Cut(warning, ": ")
	if c.patches != nil && strings.HasPrefix(path, "spec.runtimePatches") {
		path = "spec." + c.gone[max(0, slices.IndexFunc(c.gone, isOverrides))]
	}
	return c.LineOf(path)
}

// isOverrides tells the older fields that are lists of overrides from labels and annotations.
func isOverrides(name string) bool { return strings.HasSuffix(name, "Overrides") }
