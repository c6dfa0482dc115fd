// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestWebhooksStandAside(t *testing.T) {
	d, v := newHandlers(t)
	d.InTree = testenv.InTree(t, true)
	// What the in-tree integration does at a start: no gate, its own entry, resumed.
	old, object := inQueue(torch(suspended, gateJSON)), inQueue(torch(resumed, emptyJSON))
	r := d.Handle(t.Context(), request("kueue", object, old))
	expect.That(t, r.Allowed && len(r.Patches) == 0, "The defaulter must not touch anything: %+v", r)
	r = v.Handle(t.Context(), request("kueue", object, old))
	expect.That(t, r.Allowed, "The validator must not refuse anything: %+v", r.Result)
}
