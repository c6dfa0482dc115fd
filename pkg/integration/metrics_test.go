// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
)

func TestFollowQueues(t *testing.T) {
	queues := &informertest.FakeInformers{Scheme: inttest.Scheme(t)}
	teams := map[string]string{}
	err := followQueues(t.Context(), queues, func(queue client.Object) { teams[queue.GetName()] = queue.GetLabels()["team"] })
	if err != nil {
		t.Fatal(err)
	}
	queue := func(name, team string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}
	}
	informerOf(t, queues, &kueue.LocalQueue{}).Add(&kueue.LocalQueue{ObjectMeta: queue("local", "ocr")})
	clusterQueues := informerOf(t, queues, &kueue.ClusterQueue{})
	clusterQueues.Add(&kueue.ClusterQueue{ObjectMeta: queue("gpus", "vision")})
	clusterQueues.Add(&kueue.ClusterQueue{ObjectMeta: queue("cpus", "vision")})
	clusterQueues.Update(&kueue.ClusterQueue{ObjectMeta: queue("cpus", "vision")}, &kueue.ClusterQueue{ObjectMeta: queue("cpus", "language")})
	if diff := cmp.Diff(map[string]string{"local": "ocr", "gpus": "vision", "cpus": "language"}, teams); diff != "" {
		t.Errorf("Unexpected labels of queues (-want,+got):\n%s", diff)
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
