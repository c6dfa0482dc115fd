// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTimeLimit(t *testing.T) {
	limit := func(s *scene) { s.Workload.Spec.MaximumExecutionTimeSeconds = ptr.To[int32](3600) }
	ranBefore := func(s *scene) { s.Workload.Status.AccumulatedPastExecutionTimeSeconds = ptr.To[int32](600) }
	for name, tc := range map[string]struct {
		scene changes
		want  *TimeLimit
		says  string
	}{
		"none":                   {scene: changes{admitted}},
		"no Workload":            {scene: changes{limit, withoutWorkload}},
		"while it waits":         {scene: changes{limit}, want: &TimeLimit{Seconds: 3600}, says: "Time limit: 60m, 0s used, 60m left"},
		"of the first admission": {scene: changes{limit, admitted}, want: &TimeLimit{Seconds: 3600, UsedSeconds: 120}, says: "Time limit: 60m, 2m used, 58m left"},
		"of all admissions":      {scene: changes{limit, ranBefore, admitted}, want: &TimeLimit{Seconds: 3600, UsedSeconds: 720}, says: "Time limit: 60m, 12m used, 48m left"},
		"exceeded while it stops": {
			scene: changes{limit, admitted, func(s *scene) { s.Workload.Spec.MaximumExecutionTimeSeconds = ptr.To[int32](60) }},
			want:  &TimeLimit{Seconds: 60, UsedSeconds: 120}, says: "Time limit: 60s, 2m used, 0s left"},
		"over": {scene: changes{limit, admitted, with(kueue.WorkloadFinished, "", "", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			e := Explain(newScene(tc.scene...).facts(t))
			expect.Same(t, "Unexpected time limit", tc.want, e.TimeLimit)
			text := printed(t, &e)
			expect.That(t, (tc.says != "" || !strings.Contains(text, "Time limit:")) && strings.Contains(text, tc.says),
				"Want %q in:\n%s", tc.says, text)
		})
	}
}
