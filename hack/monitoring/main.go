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
	if err := write(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func write(root string) error {
	files, err := generated()
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return err
		}
	}
	return pages.Fill(filepath.Join(root, "docs", "operate.md"), begin, end, alertTable())
}

// generated returns every file that is generated as a whole, by its name below the root.
func generated() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, b := range boards() {
		content, err := b.render()
		if err != nil {
			return nil, err
		}
		files["config/monitoring/dashboards/"+b.file+".json"] = content
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
		if err := encoder.Encode(content); err != nil {
			return nil, err
		}
		files["config/monitoring/"+name] = out.Bytes()
	}
	return files, nil
}

func boards() []board { return []board{trainJobs(), pools(), manager()} }

// Between these lines of docs/operate.md lies the table of alerts.
const (
	begin = "<!-- alerts: made by make generate -->\n"
	end   = "<!-- end of alerts -->\n"
)

// alertTable has a row for each alert.
func alertTable() string {
	rows := [][]string{{"alert", "severity", "fires when, for how long"}}
	for _, a := range alerts() {
		page := fmt.Sprintf("[%s](runbooks/%s.md)", a.name, a.name)
		rows = append(rows, []string{page, a.severity, fmt.Sprintf("%s, %s", a.when, model.Duration(a.lasts))})
	}
	return pages.Table(rows...)
}
