// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/validation/field"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

// The levels of a message.
const (
	changed = ""
	warning = "warning: "
	failure = "error: "
)

// message is a line of the report.
type message struct {
	// path and line say where.
	path string
	line int
	// level is changed, warning or failure.
	level string
	text  string
}

func (m message) String() string {
	return fmt.Sprintf("%s:%d: %s%s", m.path, m.line, m.level, m.text)
}

// result is a file after its conversion.
type result struct {
	file *manifest.File
	// data is the file's content; as it was when anything in it could not be converted.
	data     []byte
	messages []message
	// found are the TrainJobs in the file, of which some changed, some failed, and the
	// others need nothing.
	found, changed, failed int
	// unreadable are the documents that cannot be read as objects.
	unreadable int
}

// migrateFile converts every TrainJob of a file. Patches without an owner get owner.
func migrateFile(file *manifest.File, owner string) result {
	r := result{file: file}
	var data []byte
	end := 0
	for i := range file.Documents {
		doc := &file.Documents[i]
		data = append(data, file.Data[end:doc.Start]...)
		data = append(data, r.document(doc, owner)...)
		end = doc.End
	}
	r.data = slices.Concat(data, file.Data[end:])
	if r.failed+r.unreadable > 0 {
		r.leave()
	}
	return r
}

// leave takes back what changed.
func (r *result) leave() {
	r.data, r.changed = r.file.Data, 0
	r.messages = slices.DeleteFunc(r.messages, func(m message) bool { return m.level == changed })
}

// document returns the new text of a document.
func (r *result) document(doc *manifest.Document, owner string) []byte {
	objects, err := trainJobsIn(doc)
	if err != nil {
		r.unreadable++
		line, text := doc.Complaint(err)
		r.tell(doc, line, failure, text)
		return doc.Text()
	}
	if len(objects) == 0 {
		r.overlook(doc)
	}
	conversions, ok := r.convert(doc, objects, owner)
	if !ok {
		return doc.Text()
	}
	text, lost, err := rewrite(doc, objects, conversions, owner)
	if err != nil {
		r.failed++
		r.say(doc, objects[0].Field("spec"), failure, err.Error())
		return doc.Text()
	}
	for i, c := range conversions {
		if c.changes() {
			r.changed++
			r.say(doc, objects[i].Field(""), changed, fmt.Sprintf("trainjob %s: %s", objects[i].Name(), c))
		}
		for _, text := range c.warnings {
			// They begin with the field.
			path, _, _ := strings.Cut(text, ": ")
			r.say(doc, objects[i].Field(c.origin(path)), warning, text)
		}
	}
	for _, comment := range lost {
		r.say(doc, objects[0].Field("spec"), warning, "this comment has no place any more: "+comment)
	}
	return text
}

// olderField is the name of one.
var olderField = regexp.MustCompile(`\b(podTemplate|jobTemplate|template)Overrides\b`)

// overlook warns of a document without a TrainJob that names an older field all the same: a JSON patch of one, say, or one
// within a ConfigMap.
func (r *result) overlook(doc *manifest.Document) {
	at := olderField.FindIndex(doc.Text())
	if at == nil || doc.Of(apiextensions.GroupName, "CustomResourceDefinition") {
		return
	}
	r.tell(doc, doc.Line+bytes.Count(doc.Text()[:at[0]], []byte("\n")), warning,
		fmt.Sprintf("%s stands in what is no TrainJob, such as a patch or a text in it: write runtimePatches there yourself", doc.Text()[at[0]:at[1]]))
}

// say adds a message about a field, tell one about a line.
func (r *result) say(doc *manifest.Document, path, level, text string) {
	r.tell(doc, doc.LineOf(path), level, text)
}

func (r *result) tell(doc *manifest.Document, line int, level, text string) {
	r.messages = append(r.messages, message{doc.Path, line, level, text})
}

// convert converts the TrainJobs of a document, unless one of them cannot be.
func (r *result) convert(doc *manifest.Document, objects []object, owner string) (conversions []*conversion, ok bool) {
	ok = true
	for _, o := range objects {
		r.found++
		c, errs := o.convert(owner)
		if len(errs) > 0 {
			r.failed, ok = r.failed+1, false
		}
		slices.SortStableFunc(errs, func(a, b *field.Error) int { return doc.LineOf(o.Field(a.Field)) - doc.LineOf(o.Field(b.Field)) })
		for _, err := range errs {
			err.Field = o.Field(err.Field)
			r.say(doc, err.Field, failure, err.Error())
		}
		conversions = append(conversions, c)
	}
	return conversions, ok
}

// rewrite makes the conversions in the text of a document. The error is of text that
// does not come to say what the conversions do.
func rewrite(doc *manifest.Document, objects []object, conversions []*conversion, owner string) (text []byte, lost []string, err error) {
	if !slices.ContainsFunc(conversions, (*conversion).changes) {
		return doc.Text(), nil, nil
	}
	text = doc.Text()
	if json.Valid(text) {
		for i := range objects {
			if text, err = editJSON(text, &objects[i], conversions[i]); err != nil {
				return nil, nil, err
			}
		}
		return text, nil, agree(doc, text, objects, conversions)
	}
	if strings.ContainsAny(strings.ReplaceAll(string(text), "\r\n", "\n"), "\r\u0085\u2028\u2029") {
		return nil, nil, errBreaks
	}
	b := &block{text: text, lines: lines(text), owner: owner}
	for i := range objects {
		if slices.ContainsFunc(objects[:i], func(o object) bool { return o.Node == objects[i].Node }) {
			// An alias: both are the same lines.
			return nil, nil, errDisagree
		}
		if err := b.edit(&objects[i], conversions[i]); err != nil {
			return nil, nil, err
		}
	}
	text = b.edited()
	return text, b.lost, agree(doc, text, objects, conversions)
}

var errDisagree = errors.New("the edited text would not say the same as the converted TrainJob, so it is left alone: " +
	"write the older fields in plain block style, without anchors, and run this again")

// errBreaks is of text in which the YAML library counts other lines than everybody else.
var errBreaks = errors.New("it has line breaks other than LF and CRLF (a CR alone, U+0085, U+2028 or U+2029): convert them, " +
	"or write them as \\r, \\N, \\L or \\P in double quotes, and run this again")

// agree compares the new text with the document in which the objects are replaced by what
// they were converted to.
func agree(doc *manifest.Document, text []byte, objects []object, conversions []*conversion) error {
	want, err := doc.JSON()
	if err != nil {
		return err
	}
	for i, o := range objects {
		if len(o.Steps) == 0 {
			want = conversions[i].json
			continue
		}
		all, at, err := membersAt(want, o.Steps[:1], o.Steps[1])
		if err != nil {
			return err
		}
		want = slices.Concat(want[:all[at].value], conversions[i].json, want[all[at].end:])
	}
	got, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		return fmt.Errorf("%w (%w)", errDisagree, err)
	}
	if !sameJSON(got, want) || bytes.Count(text, []byte("\r\n")) > 0 != (bytes.Count(doc.Text(), []byte("\r\n")) > 0) {
		return errDisagree
	}
	return nil
}
