// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestWarnsOfStopsInVain(t *testing.T) {
	running, stopped := torch(resumed, placedJSON), torch(suspended, placedJSON)
	cases := map[string]struct {
		user, labels, oldLabels string
		object, old             string
		warns                   bool
	}{
		"a job that runs":                 {labels: queued, oldLabels: queued, object: stopped, old: running, warns: true},
		"another label beside":            {labels: queued + `,"a":"b"`, oldLabels: queued, object: stopped, old: running, warns: true},
		"another queue with it":           {labels: `"kueue.x-k8s.io/queue-name":"other"`, oldLabels: queued, object: stopped, old: running},
		"a priority with it":              {labels: queued + `,"kueue.x-k8s.io/priority-class":"high"`, oldLabels: queued, object: stopped, old: running},
		"one that was suspended before":   {labels: queued, oldLabels: queued, object: stopped, old: stopped},
		"one that was resumed too early":  {labels: queued, oldLabels: queued, object: torch(suspended, gateJSON), old: torch(resumed, gateJSON)},
		"one without a queue":             {object: torch(suspended), old: torch("")},
		"a resume":                        {labels: queued, oldLabels: queued, object: running, old: stopped},
		"the manager, which has to do it": {user: self, labels: queued, oldLabels: queued, object: stopped, old: running},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, v := newHandlers(t)
			response := v.Handle(t.Context(), request(tc.user, inttest.Manifest(tc.labels, tc.object), inttest.Manifest(tc.oldLabels, tc.old)))
			expect.Need(t, response.Allowed, "Refused: %v", response.Result)
			expect.That(t, strings.Contains(strings.Join(response.Warnings, ""), "kubectl trainjob stop -n ns ") == tc.warns,
				"Unexpected warnings %q", response.Warnings)
		})
	}
}
