// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// member is a field of a JSON object, or an item of a list by its number, with its place
// in the text.
type member struct {
	name              string
	start, value, end int
}

// members reads those of the object or list that begins at an offset of valid JSON.
func members(data []byte, at int) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(data[at:]))
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	var all []member
	for dec.More() {
		m := member{name: fmt.Sprint(len(all))}
		m.start = at + int(dec.InputOffset())
		m.start += len(data[m.start:]) - len(bytes.TrimLeft(data[m.start:], " \t\r\n,"))
		if open == json.Delim('{') {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			m.name = fmt.Sprint(key)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		m.end = at + int(dec.InputOffset())
		m.value = m.end - len(value)
		all = append(all, m)
	}
	return all, nil
}

// editJSON makes the changes of a conversion in the text of a JSON document.
func editJSON(text []byte, o *object, c *conversion) (_ []byte, err error) {
	if c.before.APIVersion != c.after.APIVersion {
		value, _ := json.Marshal(c.after.APIVersion)
		if text, err = change(text, o.Steps, "apiVersion", "apiVersion", value); err != nil {
			return nil, err
		}
	}
	patches, spec := c.patches(), append(slices.Clone(o.Steps), "spec")
	for _, name := range c.gone() {
		if text, err = change(text, spec, name, "runtimePatches", patches); err != nil {
			return nil, err
		}
		patches = nil
	}
	return text, nil
}

// membersAt goes down the path from the whole text.
func membersAt(text []byte, path []string, name string) (all []member, index int, err error) {
	at := 0
	for _, step := range append(slices.Clone(path), name) {
		if all, err = members(text, at); err != nil {
			return nil, 0, err
		}
		if index = slices.IndexFunc(all, func(m member) bool { return m.name == step }); index < 0 {
			return nil, 0, fmt.Errorf("%s is not in the text", step)
		}
		at = all[index].value
	}
	return all, index, nil
}

// change puts a field in the place of another one; without a value it takes that away, with the comma
// before or behind.
func change(text []byte, path []string, name, newName string, value json.RawMessage) ([]byte, error) {
	all, i, err := membersAt(text, path, name)
	if err != nil {
		return nil, err
	}
	start, end, made := all[i].start, all[i].end, ""
	switch {
	case value != nil:
		made, err = written(text, start, len(path)+1, newName, value)
	case i > 0:
		start = all[i-1].end
	case len(all) > 1:
		end = all[1].start
	}
	return slices.Concat(text[:start], []byte(made), text[end:]), err
}

// written is a field as the text has them at a place, which is at a depth in it: each on a line of its
// own, or all in one.
func written(text []byte, start, depth int, name string, value json.RawMessage) (string, error) {
	between := ":"
	line := text[bytes.LastIndexByte(text[:start], '\n')+1 : start]
	if len(bytes.TrimSpace(line)) == 0 && bytes.Contains(text, []byte("\n")) {
		var out bytes.Buffer
		if err := json.Indent(&out, value, string(line), string(line[:len(line)/depth])); err != nil {
			return "", err
		}
		value, between = out.Bytes(), ": "
	}
	made := fmt.Sprintf("%q%s%s", name, between, value)
	if bytes.Contains(text, []byte("\r\n")) {
		made = strings.ReplaceAll(made, "\n", "\r\n")
	}
	return made, nil
}
