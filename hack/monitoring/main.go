// SPDX-License-Identifier: Apache-2.0

// Command monitoring writes what Prometheus and Grafana are given: dashboards, alerts and
// recording rules into config/monitoring, and the table of alerts into docs/operate.md.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

const notice = "# Made by make generate from hack/monitoring. Do not edit.\n"

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: monitoring ROOT")
	}
	dir := filepath.Join(os.Args[1], "config", "monitoring")
	for _, b := range boards() {
		content, err := b.render()
		write(filepath.Join(dir, "dashboards", b.file+".json"), content, err)
	}
	groups := ruleGroups()
	for name, content := range map[string]any{
		"rules.yaml": groups,
		"prometheusrule.yaml": map[string]any{
			"apiVersion": "monitoring.coreos.com/v1",
			"kind":       "PrometheusRule",
			"metadata":   map[string]any{"name": "kueue-trainer", "labels": map[string]any{"app.kubernetes.io/name": "kueue-trainer"}},
			"spec":       groups,
		},
	} {
		var out bytes.Buffer
		out.WriteString(notice)
		encoder := yaml.NewEncoder(&out)
		encoder.SetIndent(2)
		err := encoder.Encode(content)
		write(filepath.Join(dir, name), out.Bytes(), err)
	}
	if err := pages.Fill(filepath.Join(os.Args[1], "docs", "operate.md"), begin, end, alertTable()); err != nil {
		log.Fatal(err)
	}
}

// write writes a file, unless its content could not be made.
func write(path string, content []byte, err error) {
	if err == nil {
		err = os.WriteFile(path, content, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func boards() []board { return []board{trainJobs(), pools(), manager()} }

// Between these lines of docs/operate.md lies the table of alerts.
const (
	begin = "<!-- alerts: made by make generate -->\n"
	end   = "<!-- end of alerts -->\n"
)

func alertTable() string {
	rows := [][]string{{"alert", "severity", "fires when, for how long"}}
	for _, a := range alerts() {
		page := fmt.Sprintf("[%s](runbooks/%s.md)", a.name, a.name)
		rows = append(rows, []string{page, a.severity, fmt.Sprintf("%s, %s", a.when, model.Duration(a.lasts))})
	}
	return pages.Table(rows...)
}
