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
	"os"
	"path/filepath"
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

// labels returns the labels of a metric as code.
func labels(m metrics.Metric) string {
	if len(m.Labels) == 0 {
		return ""
	}
	return "`" + strings.Join(m.Labels, "`, `") + "`"
}
