// SPDX-License-Identifier: Apache-2.0

// Command pages writes docs/doctor.md, what doctor finds, from the table by which it does, and docs/metrics.md from
// pkg/metrics: the metrics from what it describes, the values of labels from its constants and their comments.
//
//	go run ./hack/pages docs
package main

import (
	"bytes"
	"context"
	"embed"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/doctor"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

//go:embed *.tmpl
var templates embed.FS

func main() { attempt.Main("pages: ", run) }

func run(context.Context) {
	if len(os.Args) != 2 {
		attempt.Fail("usage: pages DIR, in the root of the checkout")
	}
	values := labelValues("pkg/metrics/names.go")
	parsed := template.Must(template.New("").Funcs(template.FuncMap{"labels": labels}).ParseFS(templates, "*.tmpl"))
	for page, data := range map[string]any{
		"doctor.md":  doctor.Sections,
		"metrics.md": map[string]any{"Recorded": metrics.Recorded, "Told": metrics.Told, "Ledger": metrics.Ledger, "Values": values},
	} {
		var out bytes.Buffer
		attempt.Succeed(parsed.ExecuteTemplate(&out, page+".tmpl", data))
		attempt.Succeed(os.WriteFile(filepath.Join(os.Args[1], page), out.Bytes(), 0o644))
	}
}

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
func labelValues(file string) (groups []group) {
	parsed := attempt.Must(parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments))
	for _, decl := range parsed.Decls {
		constants, ok := decl.(*ast.GenDecl)
		if !ok || constants.Tok != token.CONST || !strings.HasPrefix(constants.Doc.Text(), introduction) {
			continue
		}
		g := group{Of: strings.TrimSuffix(oneLine(strings.TrimPrefix(constants.Doc.Text(), introduction)), ".")}
		for _, spec := range constants.Specs {
			g.Words = append(g.Words, wordOf(spec.(*ast.ValueSpec)))
		}
		groups = append(groups, g)
	}
	return groups
}

// wordOf reads one constant, whose comment says "Name: what it means."
func wordOf(constant *ast.ValueSpec) word {
	name := constant.Names[0].Name
	literal, ok := constant.Values[0].(*ast.BasicLit)
	if !ok {
		attempt.Fail("%s is no literal", name)
	}
	meaning, ok := strings.CutPrefix(oneLine(constant.Doc.Text()), name+": ")
	if !ok {
		attempt.Fail("%s has no comment that says what it means", name)
	}
	return word{attempt.Must(strconv.Unquote(literal.Value)), strings.TrimSuffix(meaning, ".")}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
