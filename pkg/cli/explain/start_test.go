// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestForecastOfWhatKueueRefuses(t *testing.T) {
	cases := map[string]struct {
		refused  time.Duration
		foreseen bool
	}{
		"it has just looked":            {refused: 5 * time.Second, foreseen: true},
		"it goes by more than is known": {refused: 30 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, c := newScene(refusedBefore(tc.refused, "Pending")).facts(t), kit.Fake(kit.Scheme(trainjob.AddToScheme)).Build()
			e := foreseen(t.Context(), newForesight(t.Context(), c, "", outlook.Told{}, 1), f)
			expect.Same(t, "Unexpected forecast of one", tc.foreseen, e.Start != nil && e.Start.Unknown == "")
			starts := expect.Must(Starts(t.Context(), c, &Snapshot{Facts: []*Facts{f}}, "", outlook.Told{}))(t)
			expect.Same(t, "Unexpected forecasts of all", tc.foreseen, starts[f].Unknown == "")
		})
	}
}
