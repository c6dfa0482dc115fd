// SPDX-License-Identifier: Apache-2.0

// Package inttest has the clients and objects that the tests of the integration's packages share.
package inttest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Scheme has all kinds that the integration reads and writes.
var Scheme = kit.Scheme(trainjob.AddToScheme)

// Fake starts a client of a cluster with those objects, and the indexes of the manager's caches.
func Fake(objects ...client.Object) *fake.ClientBuilder {
	builder := kit.Fake(Scheme, objects...)
	if err := caches.SetupIndexes(context.Background(), builderIndexer{builder}); err != nil {
		panic(err) // the builder returns no errors
	}
	return builder
}

type builderIndexer struct {
	builder *fake.ClientBuilder
}

func (i builderIndexer) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	i.builder.WithIndex(obj, field, values)
	return nil
}

// PodsByPhase selects pods by their phase as the API server does; the fake one cannot.
func PodsByPhase(c client.Client) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			pods, ok := list.(*corev1.PodList)
			if !ok {
				return c.List(ctx, list, opts...)
			}
			var asked client.ListOptions
			asked.ApplyOptions(opts)
			selector := asked.FieldSelector
			asked.FieldSelector = nil
			err := c.List(ctx, pods, &asked)
			pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
				return selector != nil && !selector.Matches(fields.Set{"status.phase": string(pod.Status.Phase)})
			})
			return err
		},
	})
}

// Reload reads an object as the API server has it by now.
func Reload(tb testing.TB, c client.Reader, obj client.Object) {
	tb.Helper()
	expect.NoError(tb, c.Get(tb.Context(), client.ObjectKeyFromObject(obj), obj))
}

// Exists says whether an object is still there.
func Exists(tb testing.TB, c client.Reader, obj client.Object) bool {
	tb.Helper()
	err := c.Get(tb.Context(), client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object))
	if !apierrors.IsNotFound(err) {
		expect.NoError(tb, err)
	}
	return err == nil
}

// Metrics returns a Recorder that nobody reads.
func Metrics() *metrics.Recorder {
	return metrics.NewRecorder(prometheus.NewRegistry(), metrics.QueueLabels{})
}

// Recorded returns what a registry has: values of counters, and counts of histograms, by name and by
// the values of some labels.
func Recorded(tb testing.TB, registry prometheus.Gatherer, labels ...string) map[string]float64 {
	tb.Helper()
	families := expect.Must(registry.Gather())(tb)
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			names := []string{family.GetName()}
			for _, pair := range metric.Label {
				if slices.Contains(labels, pair.GetName()) {
					names = append(names, pair.GetValue())
				}
			}
			out[strings.Join(names, " ")] += metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// Counted returns what a registry has by kind or reason, without zeros.
func Counted(tb testing.TB, registry prometheus.Gatherer) map[string]float64 {
	tb.Helper()
	out := Recorded(tb, registry, metrics.Kind, metrics.Reason)
	maps.DeleteFunc(out, func(_ string, value float64) bool { return value == 0 })
	return out
}
