// SPDX-License-Identifier: Apache-2.0

// Package manifest reads the files of -f as people wrote them: documents with their place
// in the file and the line of every field.
package manifest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
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
	// Node is the document's content; its lines count from the document's first one.
	Node *yaml.Node

	text []byte
}

// Read reads files and directories; of a directory the files that end in .yaml, .yml or
// .json, in order of their names, and with recursive also those below it.
func Read(paths []string, recursive bool, stdin io.Reader) ([]File, error) {
	var files []File
	for _, path := range paths {
		found, err := find(path, recursive)
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			file, err := read(path, stdin)
			if err != nil {
				return nil, err
			}
			files = append(files, *file)
		}
	}
	return files, nil
}

func find(path string, recursive bool) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var found []string
	err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != path && !recursive:
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)):
			found = append(found, name)
		}
		return nil
	})
	return found, err
}

func read(path string, stdin io.Reader) (*File, error) {
	var data []byte
	var err error
	if path == Stdin {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return Parse(path, data)
}

// A line that begins so always ends a document, also in the middle of a text block
// (YAML 1.2, 9.1.2); what follows on the line belongs to the next document.
var separator = regexp.MustCompile(`(?m)^(---|\.\.\.)(?:[ \t\r]|$)`)

// Parse splits the content of a file into documents. The error is of the first document
// that is not YAML, and names its line.
func Parse(path string, data []byte) (*File, error) {
	file := &File{Path: path, Data: data}
	start := 0
	for _, mark := range append(separator.FindAllIndex(data, -1), []int{len(data), len(data)}) {
		if err := file.add(start, mark[0]); err != nil {
			return nil, err
		}
		start = min(mark[0]+len("---"), len(data))
		if end := bytes.IndexByte(data[start:], '\n'); end >= 0 && len(bytes.TrimSpace(data[start:start+end])) == 0 {
			start += end + 1
		}
	}
	return file, nil
}

func (f *File) add(start, end int) error {
	doc := Document{
		Path: f.Path, Start: start, End: end, text: f.Data[start:end],
		Line: 1 + bytes.Count(f.Data[:start], []byte("\n")),
	}
	var node yaml.Node
	if err := yaml.Unmarshal(doc.text, &node); err != nil {
		return fmt.Errorf("%s: the document that begins in line %d: %w", f.Path, doc.Line, err)
	}
	if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
		return nil
	}
	doc.Node = node.Content[0]
	f.Documents = append(f.Documents, doc)
	return nil
}

// Text is the document as it stands in the file.
func (d *Document) Text() []byte { return d.text }

// Error is about a line of a file.
type Error struct {
	Path string
	Line int
	Text string
}

// Error is the place and the message.
func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Text) }

// complaint is what the YAML library says about a line, which it counts from the
// document's first one.
var complaint = regexp.MustCompile(`line (\d+): (.*)`)

// JSON is the document's content. Doubled keys are an *Error.
func (d *Document) JSON() ([]byte, error) {
	data, err := sigsyaml.YAMLToJSONStrict(d.text)
	if err == nil {
		return data, nil
	}
	found := &Error{Path: d.Path, Line: d.Line, Text: err.Error()}
	if parts := complaint.FindStringSubmatch(err.Error()); parts != nil {
		line, _ := strconv.Atoi(parts[1])
		found.Line, found.Text = d.Line+line-1, parts[2]
	}
	return nil, found
}

// Of reports whether the document is an object of a kind in a group, in any version.
func (d *Document) Of(group, kind string) bool {
	apiVersion := d.value("apiVersion")
	return d.value("kind") == kind && strings.HasPrefix(apiVersion, group+"/")
}

func (d *Document) value(key string) string {
	if node, _ := child(d.Node, key); node != nil {
		return node.Value
	}
	return ""
}

var steps = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)

// LineOf is the line in the file of a field, given as field.Path prints it:
// spec.runtimePatches[0].manager. Of a field that is not there it is the line of the
// nearest one around it.
func (d *Document) LineOf(path string) int {
	node, line := d.Node, d.Node.Line
	for _, step := range steps.FindAllString(path, -1) {
		value, at := child(node, strings.Trim(step, "[]"))
		if value == nil {
			break
		}
		node, line = value, at
	}
	return d.Line + line - 1
}

// child is the value of a key, or an item of a list by its number, and the line where it
// begins, key included.
func child(node *yaml.Node, step string) (*yaml.Node, int) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		for i := range node.Content {
			if fmt.Sprint(i) == step {
				return node.Content[i], node.Content[i].Line
			}
		}
	}
	return nil, 0
}
