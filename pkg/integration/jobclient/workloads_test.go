// SPDX-License-Identifier: Apache-2.0

package jobclient

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What somebody changed since we looked is looked at again first.
func TestWorkloadThatChangedMeanwhileStays(t *testing.T) {
	wl := inttest.WorkloadOf(inttest.Job("a"))
	c := inttest.Fake(wl).WithStatusSubresource(wl).Build()
	inttest.Reload(t, c, wl)
	marked := kit.With(wl.DeepCopy(), func(wl *kueue.Workload) { wl.Annotations = map[string]string{"a": "b"} })
	expect.NoError(t, c.Update(t.Context(), marked.DeepCopy()))
	for what, err := range map[string]error{
		"it goes":                       GiveUpWorkload(t.Context(), c, wl),
		"it is changed by an old view":  PatchWorkload(t.Context(), c, wl, marked, "%s"),
		"its status is, by an old view": PatchWorkloadStatus(t.Context(), c, wl, marked, "%s"),
	} {
		expect.That(t, apierrors.IsConflict(err), "%s: %v", what, err)
	}
}
