// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The cache lacks most of what JobSet wrote on a Job; the write must not take it away.
func TestPlacingKeepsWhatTheCacheLacks(t *testing.T) {
	counted := map[string]string{"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/job-index": "0"}
	stored := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "js-node-0", Annotations: counted}}
	stored.Spec.Template.Annotations = withKey(counted, "kueue.x-k8s.io/workload", "former")
	stored.Spec.Template.Labels = withKey(counted, "kueue.x-k8s.io/podset", "node")
	c := inttest.Fake(stored).Build()
	cached := expect.Must(caches.TrimJob(stored.DeepCopy()))(t)
	want := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeSelector: map[string]string{"pool": "h100"}}}
	expect.NoError(t, placeChildJob(t.Context(), c, cached.(*batchv1.Job), want))
	inttest.Reload(t, c, stored)
	want.Labels, want.Annotations = counted, counted
	expect.Same(t, "Unexpected template", *want, stored.Spec.Template)
	expect.Same(t, "Unexpected annotations", counted, stored.Annotations)
}

func withKey(of map[string]string, key, value string) map[string]string {
	all := maps.Clone(of)
	all[key] = value
	return all
}
