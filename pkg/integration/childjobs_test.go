// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
)

// The cache lacks most of what JobSet wrote on a Job; the write must not take it away.
func TestPlacingKeepsWhatTheCacheLacks(t *testing.T) {
	counted := map[string]string{"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/job-index": "0"}
	stored := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "js-node-0", Annotations: counted}}
	stored.Spec.Template.Annotations = withKey(counted, "kueue.x-k8s.io/workload", "former")
	stored.Spec.Template.Labels = withKey(counted, "kueue.x-k8s.io/podset", "node")
	c := inttest.Fake(stored).Build()
	cached, err := caches.TrimJob(stored.DeepCopy())
	inttest.Must(t, err)
	want := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "h100"}}}
	inttest.Must(t, placeChildJob(t.Context(), c, cached.(*batchv1.Job), want))
	inttest.Reload(t, c, stored)
	want.Labels, want.Annotations = counted, counted
	if diff := cmp.Diff(*want, stored.Spec.Template); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(counted, stored.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func withKey(of map[string]string, key, value string) map[string]string {
	all := maps.Clone(of)
	all[key] = value
	return all
}
