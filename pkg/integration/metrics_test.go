// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

func TestFollowQueues(t *testing.T) {
	labels, err := kueuelib.NewCustomLabels([]configapi.ControllerMetricsCustomLabel{
		{Name: "team"}, {Name: "project", SourceKind: ptr.To(configapi.SourceKindLocalQueue)},
	})
	if err != nil {
		t.Fatal(err)
	}
	queues := &informertest.FakeInformers{Scheme: inttest.Scheme(t)}
	if err := followQueues(t.Context(), queues, labels); err != nil {
		t.Fatal(err)
	}
	queue := func(name, value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "jobs", Name: name, Labels: map[string]string{"team": value, "project": value}}
	}
	informerOf(t, queues, &kueue.LocalQueue{}).Add(&kueue.LocalQueue{ObjectMeta: queue("queue", "ocr")})
	clusterQueues := informerOf(t, queues, &kueue.ClusterQueue{})
	clusterQueues.Add(&kueue.ClusterQueue{ObjectMeta: queue("gpus", "vision")})
	clusterQueues.Add(&kueue.ClusterQueue{ObjectMeta: queue("cpus", "vision")})
	clusterQueues.Update(&kueue.ClusterQueue{}, &kueue.ClusterQueue{ObjectMeta: queue("cpus", "language")})
	got := [][]string{labels.CQGet("gpus"), labels.CQGet("cpus"), labels.LQGet("jobs/queue")}
	if diff := cmp.Diff([][]string{{"vision"}, {"language"}, {"ocr"}}, got); diff != "" {
		t.Errorf("Unexpected values of the labels (-want,+got):\n%s", diff)
	}
}

func informerOf(t *testing.T, queues *informertest.FakeInformers, obj client.Object) *controllertest.FakeInformer {
	t.Helper()
	informer, err := queues.FakeInformerFor(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return informer
}
