// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
)

// Whoever was told that the manager stands aside is told again the next time it does.
func TestStandAsideIsToldEachTime(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	r, recorder := newReconciler(t, stored)
	var reasons serving.Told
	for range 2 {
		for range 2 {
			if _, err := (&reconciler{env: r.env}).standAside(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)}, &reasons, jobevents.ReasonNotAlone, serving.InTreeRemedy); err != nil {
				t.Fatal(err)
			}
		}
		reasons.Drop(stored.UID)
	}
	if got := len(recorder.Events); got != 2 {
		t.Errorf("%d events for two times, want 2", got)
	}
}
