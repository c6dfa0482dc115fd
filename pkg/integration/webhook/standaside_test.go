// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
)

func TestWebhooksStandAside(t *testing.T) {
	d, v := newHandlers(t)
	d.InTree = testenv.InTree(t, true)
	// What the in-tree integration does at a start: no gate, its own entry, resumed.
	old, object := inQueue(torch(suspended, gateJSON)), inQueue(torch(resumed, emptyJSON))
	if r := d.Handle(t.Context(), request("kueue", object, old)); !r.Allowed || len(r.Patches) > 0 {
		t.Errorf("The defaulter must not touch anything: %+v", r)
	}
	if r := v.Handle(t.Context(), request("kueue", object, old)); !r.Allowed {
		t.Errorf("The validator must not refuse anything: %+v", r.Result)
	}
}
