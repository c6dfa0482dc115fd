// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

type board struct {
	// file is its name without .json, and its uid after kueue-trainer-.
	file, title, description string
	variables                []variable
	rows                     []row
}

// variable is a choice that an admin has, of the values of a label.
type variable struct {
	name, label, query string
	// one has no choice of all values, and first is what it begins with.
	one   bool
	first string
}

// row is a titled group of panels. A collapsed one asks nothing until it is opened.
type row struct {
	title     string
	collapsed bool
	panels    []panel
}

type kind int

const (
	// number is the latest value of each series.
	number kind = iota
	lines
	// stacked are lines on top of each other: a whole and its parts.
	stacked
	// rows of a table, one for each series.
	rows
)

// panel answers one question. Widths are of 24.
type panel struct {
	kind          kind
	title, why    string
	unit          string
	width, height uint32
	queries       []query
	// bad is the value at which a number is shown as trouble; 0 is none.
	bad float64
	// named shows of a number the name of its series instead.
	named bool
}

type query struct{ expr, legend string }

// The heights of panels.
const (
	low  = 4
	high = 8
)

// latest has one series of what several replicas tell, or one after the other.
func latest(m metrics.Metric, filter string) string {
	series := m.Name
	if filter != "" {
		series += "{" + filter + "}"
	}
	if len(m.Labels) == 0 {
		return "max(" + series + ")"
	}
	return fmt.Sprintf("max by (%s) (%s)", strings.Join(m.Labels, ", "), series)
}

// over is how much a total of the ledger grew in a window, whichever replica told of it. It is no
// increase: what a killed leader told may be seconds ahead of what the next one begins with, and
// increase would take that for a start at 0. The resolution is Grafana's, so that a month asks for no
// more points than an hour.
func over(m metrics.Metric, filter string, w window) string {
	return growth(latest(m, filter), fmt.Sprintf("(%s)[%s:$__interval]", latest(m, filter), w.duration), w)
}

// window is a time up to now, as a duration of Prometheus and in seconds.
type window struct{ duration, seconds string }

var (
	day   = window{"1d", "86400"}
	shown = window{"$__range", "$__range_s"}
)

// growth is how much a total grew over a window. Where the ledger began in it, that is the whole total;
// the one that was lost before is told until five minutes later.
func growth(total, over string, w window) string {
	began := fmt.Sprintf("on () (%s > time() - %s - 300)", latest(metrics.LedgerBegan, ""), w.seconds)
	return fmt.Sprintf("(max_over_time(%s) - min_over_time(%s) unless %s) or (%s and %s)", over, over, began, total, began)
}

// quantile is of a histogram, by ClusterQueue.
func quantile(q float64, name, filter string) string {
	return fmt.Sprintf("histogram_quantile(%g, sum by (cluster_queue, le) (rate(%s_bucket{%s}[30m])))", q, name, filter)
}

// source is the Prometheus that was chosen.
var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

func (b board) render() ([]byte, error) {
	builder := dashboard.NewDashboardBuilder(b.title).
		Uid("kueue-trainer-"+b.file).
		Description(b.description).
		Tags([]string{"kueue-trainer", "kueue"}).
		Readonly().
		Refresh("1m").
		Time("now-6h", "now").
		Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("kueue-trainer").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{"kueue-trainer"}).KeepTime(true).IncludeVars(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus"))
	for _, v := range b.variables {
		builder.WithVariable(v.build())
	}
	id := uint32(0)
	for _, r := range b.rows {
		group := dashboard.NewRowBuilder(r.title).Collapsed(r.collapsed)
		panels := make([]cog.Builder[dashboard.Panel], 0, len(r.panels))
		for _, p := range r.panels {
			id++
			panels = append(panels, p.build(id))
		}
		if r.collapsed {
			for _, p := range panels {
				group.WithPanel(p)
			}
			panels = nil
		}
		builder.WithRow(group)
		for _, p := range panels {
			builder.WithPanel(p)
		}
	}
	built, err := builder.Build()
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", b.file, err)
	}
	content, err := json.MarshalIndent(built, "", "  ")
	return append(content, '\n'), err
}

func (v variable) build() cog.Builder[dashboard.VariableModel] {
	builder := dashboard.NewQueryVariableBuilder(v.name).Label(v.label).Datasource(source).
		Query(dashboard.StringOrMap{String: &v.query}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc)
	if v.one {
		return builder.Current(option(v.first, v.first))
	}
	return builder.Multi(true).IncludeAll(true).AllValue(".*").Current(option("All", "$__all"))
}

func option(text, value string) dashboard.VariableOption {
	return dashboard.VariableOption{
		Text: dashboard.StringOrArrayOfString{String: &text}, Value: dashboard.StringOrArrayOfString{String: &value},
	}
}

// targets are a panel's queries: of one moment, or of the time that is looked at.
func (p panel) targets(moment bool) []cog.Builder[variants.Dataquery] {
	targets := make([]cog.Builder[variants.Dataquery], 0, len(p.queries))
	for i, q := range p.queries {
		target := prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Datasource(source).
			Expr(strings.TrimSpace(q.expr)).LegendFormat(q.legend)
		if moment {
			target.Instant().Format(prometheus.PromQueryFormatTable)
		} else {
			target.Range()
		}
		targets = append(targets, target)
	}
	return targets
}

func (p panel) build(id uint32) cog.Builder[dashboard.Panel] {
	switch p.kind {
	case number:
		text := common.BigValueTextModeAuto
		if p.named {
			text = common.BigValueTextModeName
		}
		return stat.NewPanelBuilder().Id(id).Title(p.title).Description(p.why).Datasource(source).
			Span(p.width).Height(p.height).Unit(p.unit).Targets(p.targets(false)).
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
			TextMode(text).ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeArea).
			Thresholds(p.thresholds())
	case rows:
		return table.NewPanelBuilder().Id(id).Title(p.title).Description(p.why).Datasource(source).
			Span(p.width).Height(p.height).Unit(p.unit).Targets(p.targets(true)).
			WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
			WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: p.columns()})
	}
	builder := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.why).Datasource(source).
		Span(p.width).Height(p.height).Unit(p.unit).Min(0).Targets(p.targets(false)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.kind == stacked {
		builder.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal)).FillOpacity(30)
	}
	return builder
}

func (p panel) thresholds() cog.Builder[dashboard.ThresholdsConfig] {
	steps := []dashboard.Threshold{{Color: "green"}}
	if p.bad != 0 {
		steps = append(steps, dashboard.Threshold{Value: &p.bad, Color: "red"})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// columns hides the time, and names a table's values after their queries; those without a name are hidden.
func (p panel) columns() map[string]any {
	hidden, names := map[string]any{"Time": true}, map[string]any{}
	for i, q := range p.queries {
		column := "Value #" + string(rune('A'+i))
		if len(p.queries) == 1 {
			column = "Value"
		}
		if q.legend == "" {
			hidden[column] = true
		} else {
			names[column] = q.legend
		}
	}
	return map[string]any{"excludeByName": hidden, "renameByName": names}
}
