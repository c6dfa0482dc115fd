// SPDX-License-Identifier: Apache-2.0

// Package manifest reads the files of -f as people wrote them: documents with their place in the
// file and the line of every field.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"k8s.io/cli-runtime/pkg/resource"
	sigsyaml "sigs.k8s.io/yaml"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// File is a file and the documents in it.
type File struct {
	// Path is as given, or below the directory given; Stdin for standard input.
	Path string
	Data []byte
	// Documents have content: those of comments alone are left out.
	Documents []Document
}

// Document is a YAML or JSON document.
type Document struct {
	// Path is the file's.
	Path string
	// Start and End are where the document is in the file's data, separators left out.
	Start, End int
	// Line is the document's first line in the file, from 1.
	Line int
	// Node is the document's content; its lines count from the document's first one. It is
	// empty if there is an Err.
	Node *yaml.Node
	// Err is of a document that cannot be read.
	Err *Error

	text []byte
	// yaml is the text as YAML has it.
	yaml []byte
}

// Flags are -f and -R, which name the files of a command.
type Flags struct {
	Filenames []string
	Recursive bool
}

// AddTo adds the flags to a command; more is what -f means to it beside that.
func (f *Flags) AddTo(cmd *cobra.Command, more string) {
	cmd.Flags().StringSliceVarP(&f.Filenames, "filename", "f", nil, "files, directories, or - for standard input"+more)
	cmd.Flags().BoolVarP(&f.Recursive, "recursive", "R", false, "also the directories below those named")
}

// Given reports whether files are named.
func (f *Flags) Given() bool { return len(f.Filenames) > 0 }

// Read reads the files.
func (f *Flags) Read(stdin io.Reader) ([]File, error) {
	return Read(f.Filenames, f.Recursive, stdin)
}

// Read reads files and directories; of a directory the files that end in .yaml, .yml or
// .json, in order of their names, and with recursive also those below it. The error is of a
// path that is not there; a file that cannot be read is a document with an error.
func Read(paths []string, recursive bool, stdin io.Reader) ([]File, error) {
	var files []File
	for _, path := range paths {
		if path == Stdin {
			files = append(files, *read(path, stdin))
			continue
		}
		found, err := resource.ExpandPathsToFileVisitors(nil, path, recursive, resource.FileExtensions, nil)
		if err != nil {
			return nil, err
		}
		for _, visitor := range found {
			files = append(files, *read(visitor.(*resource.FileVisitor).Path, stdin))
		}
	}
	return files, nil
}

func read(path string, stdin io.Reader) *File {
	var data []byte
	var err error
	if path == Stdin {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		doc := Document{Path: path, Line: 1, Node: &yaml.Node{Line: 1}, Err: &Error{path, 1, err.Error()}}
		return &File{Path: path, Documents: []Document{doc}}
	}
	return Parse(path, data)
}

var (
	// A line that begins so always ends a document, also in the middle of a text block
	// (YAML 1.2, 9.1.2); what follows on the line belongs to the next document.
	separator = regexp.MustCompile(`(?m)^(---|\.\.\.)(?:[ \t\r]|$)`)
	// directives are lines such as %YAML 1.2, with comments around them.
	directives = regexp.MustCompile(`\A(?:[ \t]*(?:#.*)?\r?\n)*(?:%.*\n(?:[ \t]*(?:#.*)?\r?\n)*)+`)
)

// Parse splits the content of a file into documents. One that is neither YAML nor JSON has
// an Err.
func Parse(path string, data []byte) *File {
	file := &File{Path: path, Data: data}
	start := 0
	for _, mark := range append(separator.FindAllIndex(data, -1), []int{len(data), len(data)}) {
		end := mark[0]
		// The directives of a document stand before its separator. Nothing here needs them.
		if !bytes.HasPrefix(data[end:], []byte("---")) || len(directives.Find(data[start:end])) < end-start {
			file.split(start, end)
		}
		start = min(end+len("---"), len(data))
		if end := bytes.IndexByte(data[start:], '\n'); end >= 0 && len(bytes.TrimSpace(data[start:start+end])) == 0 {
			start += end + 1
		}
	}
	return file
}

// HasDirectives reports whether the file begins with YAML directives, which only the end of
// a document may precede.
func (f *File) HasDirectives() bool { return directives.Match(f.Data) }

// Err is of all documents that cannot be read.
func (f *File) Err() error {
	var all []error
	for i := range f.Documents {
		if err := f.Documents[i].Err; err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// split adds what stands between separators: one YAML document, or JSON values one after
// the other, as jq -c prints them.
func (f *File) split(start, end int) {
	var ends []int
	decoder := json.NewDecoder(bytes.NewReader(f.Data[start:end]))
	for {
		var value map[string]json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.add(start, end)
			return
		}
		ends = append(ends, start+int(decoder.InputOffset()))
	}
	for i, next := range ends {
		if i == len(ends)-1 {
			next = end
		}
		f.add(start, next)
		start = next + len(f.Data[next:]) - len(bytes.TrimLeft(f.Data[next:], " \t\r\n"))
	}
}

// escapes finds those of JSON's strings, and both of a surrogate pair at once.
var escapes = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\.`)

// asYAML writes out what JSON escapes by surrogate pairs, which YAML does not have.
func asYAML(text []byte) []byte {
	if !json.Valid(text) {
		return text
	}
	return escapes.ReplaceAllFunc(text, func(escape []byte) []byte {
		var pair string
		if len(escape) == len(`\n`) || json.Unmarshal([]byte(`"`+string(escape)+`"`), &pair) != nil {
			return escape
		}
		return []byte(pair)
	})
}

func (f *File) add(start, end int) {
	doc := Document{
		Path: f.Path, Start: start, End: end, text: f.Data[start:end], yaml: asYAML(f.Data[start:end]),
		Line: 1 + bytes.Count(f.Data[:start], []byte("\n")),
	}
	var node yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(doc.yaml))
	err := decoder.Decode(&node)
	if err == nil {
		// Behind one content there must not be another.
		err = decoder.Decode(&yaml.Node{})
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		doc.Node, doc.Err = &yaml.Node{Line: 1}, doc.complaint(err)
	case err == nil:
		doc.Node, doc.Err = &yaml.Node{Line: 1}, &Error{doc.Path, doc.Line, "there are several documents in it, between line breaks other than LF and CRLF: convert those"}
	case len(node.Content) == 0 || node.Content[0].Tag == "!!null":
		return
	default:
		doc.Node = node.Content[0]
	}
	f.Documents = append(f.Documents, doc)
}

// Text is the document as it stands in the file.
func (d *Document) Text() []byte { return d.text }

// Error is about a line of a file.
type Error struct {
	Path string
	Line int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Text) }

// complaint is what the YAML library says about a line, which it counts from the
// document's first one.
var complaint = regexp.MustCompile(`line (\d+): (.*)`)

// JSON is the document's content. Doubled keys are an *Error.
func (d *Document) JSON() ([]byte, error) {
	data, err := sigsyaml.YAMLToJSONStrict(d.yaml)
	if err == nil {
		return data, nil
	}
	return nil, d.complaint(err)
}

func (d *Document) complaint(err error) *Error {
	found := &Error{Path: d.Path, Line: d.Line, Text: strings.TrimPrefix(err.Error(), "yaml: ")}
	if parts := complaint.FindStringSubmatch(err.Error()); parts != nil {
		line, _ := strconv.Atoi(parts[1])
		found.Line, found.Text = d.Line+line-1, parts[2]
	}
	if strings.Contains(found.Text, "expected <document start>") {
		// Of these the library counts lines from 0.
		found.Line, found.Text = found.Line+1, "there is something behind the end of the document: put a line --- between the two"
	}
	return found
}

// Complaint is the line and the text of an error that the document cannot be read for.
func (d *Document) Complaint(err error) (line int, text string) {
	if at := new(Error); errors.As(err, &at) {
		return at.Line, at.Text
	}
	return d.Line, err.Error()
}

// Of reports whether the document is an object of a kind in a group, in any version.
func (d *Document) Of(group, kind string) bool {
	of, _, named := strings.Cut(d.value("apiVersion"), "/")
	if !named { // v1, which is in the core group.
		of = ""
	}
	return d.value("kind") == kind && of == group
}

func (d *Document) value(key string) string {
	if node, _ := child(d.Node, key); node != nil {
		return node.Value
	}
	return ""
}

// Steps finds those of a path as field.Path prints it.
var Steps = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// LineOf is the line in the file of a field, given as field.Path prints it:
// spec.runtimePatches[0].manager. Of a field that is not there it is the line of the
// nearest one around it.
func (d *Document) LineOf(path string) int {
	node, line := d.Node, d.Node.Line
	for _, step := range Steps.FindAllString(path, -1) {
		value, at := child(node, strings.Trim(step, "[]"))
		if value == nil {
			break
		}
		node, line = value, at
	}
	return d.Line + line - 1
}

// child is the value of a key, or an item of a list by its number, and the line where it
// begins, key included; nil where there is none.
func child(node *yaml.Node, step string) (*yaml.Node, int) {
	if node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node == nil {
		return nil, 0
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	}
	return nil, 0
}
