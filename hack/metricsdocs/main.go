// SPDX-License-Identifier: Apache-2.0

// Command metricsdocs writes docs/metrics.md from pkg/metrics: the metrics from what it describes, the
// values of labels from its constants and their comments.
//
//	go run ./hack/metricsdocs docs/metrics.md
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"text/template"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

const names = "pkg/metrics/names.go"

//go:embed metrics.md.tmpl
var page string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: metricsdocs FILE")
	}
	values, err := labelValues(names)
	if err != nil {
		return err
	}
	parsed, err := template.New("page").Funcs(template.FuncMap{"labels": labels}).Parse(page)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{
		"Recorded": metrics.Recorded, "Told": metrics.Told, "Ledger": metrics.Ledger, "Values": values,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], out.Bytes(), 0o644)
}

// labels returns the labels of a metric as code.
func labels(m metrics.Metric) string {
	if len(m.Labels) == 0 {
		return ""
	}
	return "`" + strings.Join(m.Labels, "`, `") + "`"
}

// group is what a label may be.
type group struct {
	// Of says which label of which metric.
	Of    string
	Words []word
}

type word struct{ Value, Meaning string }

// introduction is how the comment of constants begins that are values of a label.
const introduction = "The values of "

// labelValues reads the constants of the file that a comment introduces as values of labels.
func labelValues(file string) ([]group, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var groups []group
	for _, decl := range parsed.Decls {
		constants, ok := decl.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST || !strings.HasPrefix(constants.Doc.Text(), introduction) {
			continue
		}
		g := group{Of: strings.TrimSuffix(oneLine(strings.TrimPrefix(constants.Doc.Text(), introduction)), ".")}
		for _, spec := range constants.Specs {
			w, err := wordOf(spec.(*ast.ValueSpec))
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", file, g.Of, err)
			}
			g.Words = append(g.Words, w)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// wordOf reads one constant, whose comment says "Name: what it means."
func wordOf(constant *ast.ValueSpec) (word, error) {
	name := constant.Names[0].Name
	literal, ok := constant.Values[0].(*ast.BasicLit)
	if !ok {
		return word{}, fmt.Errorf("%s is no literal", name)
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		return word{}, err
	}
	meaning, ok := strings.CutPrefix(oneLine(constant.Doc.Text()), name+": ")
	if !ok {
		return word{}, fmt.Errorf("%s has no comment that says what it means", name)
	}
	return word{value, strings.TrimSuffix(meaning, ".")}, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
