// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	kueuemetrics "sigs.k8s.io/kueue/pkg/metrics"

	// They register what every manager serves.
	_ "sigs.k8s.io/controller-runtime/pkg/controller"
	_ "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Labels that Prometheus gives to what it scrapes.
var ofTargets = []string{"job", "instance"}

// elsewhere are the series of others, whose modules are not asked here: the API server's, those of
// kube-state-metrics and of NVIDIA's exporter. test/monitoring has the API server's scraped.
var elsewhere = map[string][]string{
	"apiserver_admission_webhook_admission_duration_seconds_bucket": {"name", "type", "operation", "rejected", "le"},
	"apiserver_admission_webhook_rejection_count":                   {"name", "type", "operation", "error_type", "rejection_code"},
	"ALERTS": {"alertname", "alertstate", "severity", "cluster_queue", "namespace", "local_queue", "reason"},

	"kube_node_status_allocatable":         {"node", "resource", "unit"},
	"kube_pod_container_resource_requests": {"namespace", "pod", "container", "node", "resource", "unit"},
	"kube_pod_status_phase":                {"namespace", "pod", "phase"},
	"DCGM_FI_DEV_GPU_UTIL":                 {"Hostname", "pod", "namespace"},
	"DCGM_FI_DEV_FB_USED":                  {"Hostname", "pod", "namespace"},
}

// described is how a metric's description prints itself: name and labels have no other way out.
var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// known returns every series that some process serves, with its labels.
func known(t *testing.T) map[string][]string {
	t.Helper()
	all := maps.Clone(elsewhere)
	for _, m := range metrics.All {
		add(all, m.Name, m.Type == metrics.Histogram, m.Labels)
	}
	for _, rule := range records() {
		expr := parsed(t, rule.Expr)
		labels := labelsBelow(expr, all)
		if aggregate, ok := expr.(*parser.AggregateExpr); ok {
			labels = aggregate.Grouping
		}
		add(all, rule.Record, false, labels)
	}
	kueuemetrics.InitMetricVectors(nil)
	kueuemetrics.Register()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		ctrlmetrics.Registry.(prometheus.Collector).Describe(descriptions)
		close(descriptions)
	}()
	for description := range descriptions {
		found := described.FindStringSubmatch(description.String())
		if found == nil {
			continue
		}
		// A description does not say its type; what is not there as a histogram is not asked for either.
		add(all, found[1], strings.HasSuffix(found[1], "_seconds"), strings.Split(found[2], ","))
	}
	return all
}

func labelsBelow(node parser.Node, all map[string][]string) []string {
	var have []string
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if selector, ok := n.(*parser.VectorSelector); ok {
			have = append(have, all[selector.Name]...)
		}
		return nil
	})
	return have
}

func add(all map[string][]string, name string, histogram bool, labels []string) {
	all[name] = labels
	if histogram {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			all[name+suffix] = append(slices.Clone(labels), model.BucketLabel)
		}
	}
}

func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

func parsed(t *testing.T, expr string) parser.Expr {
	t.Helper()
	parsed, err := newParser().ParseExpr(expr)
	expect.Need(t, err == nil, "%v in\n%s", err, expr)
	return parsed
}

// Every series and label that a dashboard, a variable or a rule asks for is one that a process serves.
func TestSeriesAndLabels(t *testing.T) {
	all := known(t)
	t.Run("are known", func(t *testing.T) {
		for where, expr := range expressions(t) {
			for _, unknown := range unknownIn(parsed(t, expr), all) {
				t.Errorf("%s: %s in\n%s", where, unknown, expr)
			}
		}
	})
	t.Run("would be found if they were not", func(t *testing.T) { unknownFound(t, all) })
}

func unknownFound(t *testing.T, all map[string][]string) {
	t.Helper()
	for expr, want := range map[string]string{
		`sum(kueue_trainer_trainjob)`:                                      "no metric kueue_trainer_trainjob",
		`kueue_trainer_trainjobs{queue="a"}`:                               "kueue_trainer_trainjobs has no label queue",
		`sum by (queue) (kueue_trainer_trainjobs)`:                         "nothing below has label queue",
		`rate(kueue_trainer_starts_total_bucket[5m])`:                      "no metric kueue_trainer_starts_total_bucket",
		`sum by (a) (x) / on (job) kueue_trainer_trainer_info`:             "no metric x",
		`workqueue_depth and on (queue) controller_runtime_active_workers`: "nothing below has label queue",
		`max by (state) (kueue_trainer:held_resources:max)`:                "nothing below has label state",
	} {
		unknown := unknownIn(parsed(t, expr), all)
		expect.That(t, slices.Contains(unknown, want), "%s: %q do not have %q", expr, unknown, want)
	}
}

// unknownIn returns what an expression asks for and nobody serves.
func unknownIn(expr parser.Expr, all map[string][]string) []string {
	var unknown []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			have, found := all[n.Name]
			if !found {
				unknown = append(unknown, "no metric "+n.Name)
			}
			for _, matcher := range n.LabelMatchers {
				if found && matcher.Name != labels.MetricName && !slices.Contains(have, matcher.Name) {
					unknown = append(unknown, n.Name+" has no label "+matcher.Name)
				}
			}
		case *parser.AggregateExpr:
			unknown = append(unknown, missing(n.Grouping, n, all)...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				unknown = append(unknown, missing(n.VectorMatching.MatchingLabels, n, all)...)
			}
		}
		return nil
	})
	return unknown
}

// missing returns the labels that no series below a node has.
func missing(wanted []string, node parser.Node, all map[string][]string) []string {
	have := append(slices.Clone(ofTargets), labelsBelow(node, all)...)
	var none []string
	for _, label := range wanted {
		if !slices.Contains(have, label) {
			none = append(none, "nothing below has label "+label)
		}
	}
	return none
}

// variableQuery is how a variable of a dashboard asks for the values of a label.
var variableQuery = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// expressions returns all PromQL of dashboards and rules, by where it stands. Grafana's variables have values.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, group := range ruleGroups().Groups {
		for _, rule := range group.Rules {
			all[rule.Record+rule.Alert] = rule.Expr
		}
	}
	for _, b := range boards() {
		for _, v := range b.variables {
			parts := variableQuery.FindStringSubmatch(v.query)
			expect.Need(t, parts != nil, "%s: variable %s asks %s", b.file, v.name, v.query)
			all[b.file+": "+v.query] = "group by (" + parts[2] + ") (" + withValues(parts[1]) + ")"
		}
		for _, r := range b.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					all[b.file+": "+q.expr] = withValues(q.expr)
				}
			}
		}
	}
	return all
}

func withValues(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$__range_s", "21600", "$__range", "6h", "$__interval", "1m",
		"$cluster_queue", ".*", "$namespace", ".*", "$resource", "nvidia.com/gpu").Replace(expr)
}

// Prometheus takes the rules.
func TestRulesAreValid(t *testing.T) {
	content := expect.Must(os.ReadFile(filepath.Join("..", "..", "config", "monitoring", "rules.yaml")))(t)
	groups, errs := rulefmt.Parse(content, false, model.UTF8Validation, newParser(), slog.New(slog.DiscardHandler))
	expect.Need(t, len(errs) == 0, "%v", errs)
	expect.Same(t, "Unexpected number of groups in rules.yaml", len(ruleGroups().Groups), len(groups.Groups))
}
