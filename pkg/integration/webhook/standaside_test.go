// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
)

func TestWebhooksStandAside(t *testing.T) {
	d, v := newHandlers(t)
	d.InTree = testenv.InTree(t, true)
	// What the in-tree integration does at a start: no gate, its own entry, resumed.
	old := inttest.Manifest(queued, `{"runtimeRef":{"name":"torch"},"suspend":true,"runtimePatches":[`+gateJSON+`]}`)
	object := inttest.Manifest(queued, `{"runtimeRef":{"name":"torch"},"suspend":false,"runtimePatches":[{"manager":"kueue.x-k8s.io/manager"}]}`)
	if r := d.Handle(context.Background(), request("kueue", object, old)); !r.Allowed || len(r.Patches) > 0 {
		t.Errorf("The defaulter must not touch anything: %+v", r)
	}
	if r := v.Handle(context.Background(), request("kueue", object, old)); !r.Allowed {
		t.Errorf("The validator must not refuse anything: %+v", r.Result)
	}
}
