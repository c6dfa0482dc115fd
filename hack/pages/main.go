// SPDX-License-Identifier: Apache-2.0

// Command pages writes docs/doctor.md, what doctor finds, from the table by which it does, and docs/metrics.md from
// pkg/metrics: the metrics from what it describes, the values of labels from its constants and their comments.
//
//	go run ./hack/pages docs
package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/doctor"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

//go:embed *.tmpl
var templates embed.FS

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: pages DIR, in the root of the checkout")
	}
	values, err := labelValues("pkg/metrics/names.go")
	if err != nil {
		return err
	}
	parsed, err := template.New("").Funcs(template.FuncMap{"labels": labels}).ParseFS(templates, "*.tmpl")
	if err != nil {
		return err
	}
	for page, data := range map[string]any{
		"doctor.md":  doctor.Sections,
		"metrics.md": map[string]any{"Recorded": metrics.Recorded, "Told": metrics.Told, "Ledger": metrics.Ledger, "Values": values},
	} {
		var out bytes.Buffer
		if err := parsed.ExecuteTemplate(&out, page+".tmpl", data); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(args[0], page), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// labels returns the labels of a metric as code.
func labels(m metrics.Metric) string {
	if len(m.Labels) == 0 {
		return ""
	}
	return "`" + strings.Join(m.Labels, "`, `") + "`"
}
