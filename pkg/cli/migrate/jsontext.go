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
func editJSON(text []byte, o *object, c *conversion) ([]byte, error) {
	if c.before.APIVersion != c.after.APIVersion {
		value, _ := json.Marshal(c.after.APIVersion)
		edited, err := replaceMember(text, o.Steps, "apiVersion", "apiVersion", value)
		if err != nil {
			return nil, err
		}
		text = edited
	}
	patches, spec := c.patches(), append(slices.Clone(o.Steps), "spec")
	for _, name := range c.gone() {
		var err error
		if patches == nil {
			text, err = removeMember(text, spec, name)
		} else {
			text, err = replaceMember(text, spec, name, "runtimePatches", patches)
			patches = nil
		}
		if err != nil {
			return nil, err
		}
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

func replaceMember(text []byte, path []string, name, newName string, value json.RawMessage) ([]byte, error) {
	all, i, err := membersAt(text, path, name)
	if err != nil {
		return nil, err
	}
	m := all[i]
	line := text[bytes.LastIndexByte(text[:m.start], '\n')+1 : m.start]
	between := ":"
	if len(bytes.TrimSpace(line)) == 0 && bytes.Contains(text, []byte("\n")) {
		// Every field has a line of its own.
		var out bytes.Buffer
		unit := string(line[:len(line)/(len(path)+1)])
		if err := json.Indent(&out, value, string(line), unit); err != nil {
			return nil, err
		}
		value, between = out.Bytes(), ": "
	}
	made := fmt.Sprintf("%q%s%s", newName, between, value)
	if bytes.Contains(text, []byte("\r\n")) {
		made = strings.ReplaceAll(made, "\n", "\r\n")
	}
	return slices.Concat(text[:m.start], []byte(made), text[m.end:]), nil
}

// removeMember takes the comma before or behind along.
func removeMember(text []byte, path []string, name string) ([]byte, error) {
	all, i, err := membersAt(text, path, name)
	if err != nil {
		return nil, err
	}
	start, end := all[i].start, all[i].end
	switch {
	case i > 0:
		start = all[i-1].end
	case len(all) > 1:
		end = all[1].start
	}
	return slices.Concat(text[:start], text[end:]), nil
}
