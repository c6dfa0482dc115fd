// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// ofTarget are labels by which the replicas of one cluster differ, or by which its manager differs
// once it is installed again: they do not tell clusters apart.
var ofTarget = []model.LabelName{
	model.MetricNameLabel, model.InstanceLabel, model.JobLabel,
	"pod", "container", "endpoint", "service", "namespace", "node",
}

// sideBySide is the time in which ledgers that began at different times have to be told to be those of
// several clusters: what is told of one that was lost ends after Stale.
const sideBySide = 30 * time.Minute

// OneCluster returns an error where Prometheus has the ledgers of several clusters in a window: their
// series have the same names, and a bill or a forecast would mix them.
func (c *Client) OneCluster(ctx context.Context, from, to time.Time) error {
	series := metrics.LedgerBegan.Name + c.match
	from = to.Add(-max(to.Sub(from), sideBySide))
	count := fmt.Sprintf(`count(count_values("began", last_over_time(%s[%s])))`, series, model.Duration(Stale))
	ledgers, err := Ask[model.Matrix](c.QueryRange(ctx, count, prometheus.Range{Start: from, End: to, Step: max(Step(from, to), Stale)}))
	if err != nil || !several(ledgers) {
		return err
	}
	began, err := Ask[model.Vector](c.Query(ctx, fmt.Sprintf("last_over_time(%s[%s])", series, model.Duration(to.Sub(from))), to))
	if err != nil {
		return err
	}
	label, values := clusterLabel(began)
	if label == "" {
		return errors.New("it has the ledgers of several clusters, and no label tells them apart")
	}
	return fmt.Errorf("it has the ledgers of several clusters, with label %s %q: choose one with --match %s=%s",
		label, values, label, values[len(values)-1])
}

// several reports whether there was more than one ledger at two looks in a row, by their count.
func several(ledgers model.Matrix) bool {
	for _, series := range ledgers {
		for i, look := range series.Values {
			if i > 0 && look.Value > 1 && series.Values[i-1].Value > 1 {
				return true
			}
		}
	}
	return false
}

// clusterLabel returns a label by which ledgers that began at different times differ, and its values;
// empty where there is none. Every cluster has a ledger with a beginning of its own, whichever
// replicas of Prometheus tell it. Clusters of which only some have the label differ by it, too.
func clusterLabel(began model.Vector) (string, []string) {
	labels := sets.New[model.LabelName]()
	for _, sample := range began {
		labels = labels.Union(sets.KeySet(sample.Metric))
	}
	// In their order, so that the same is said every time.
	for _, label := range sets.List(labels.Delete(ofTarget...)) {
		values, ledgers := sets.New[string](), map[model.SampleValue]sets.Set[string]{}
		for _, sample := range began {
			value := string(sample.Metric[label])
			values.Insert(value)
			ledgers[sample.Value] = ledgers[sample.Value].Union(sets.New(value))
		}
		if disjoint(slices.Collect(maps.Values(ledgers))) {
			return string(label), sets.List(values)
		}
	}
	return "", nil
}

// disjoint reports whether some two have nothing in common.
func disjoint(all []sets.Set[string]) bool {
	for i, one := range all {
		for _, other := range all[:i] {
			if !one.HasAny(other.UnsortedList()...) {
				return true
			}
		}
	}
	return false
}
