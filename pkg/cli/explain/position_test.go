// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPositionOf(t *testing.T) {
	eachScene(t, "position", map[string]row[*Position]{
		"alone": {want: &Position{Place: 1, Pending: 1, Source: Computed}},
		"higher priority first, then who came first": {
			scene: changes{pending("later", 0, minutesAgo(1)), pending("urgent", 10, minutesAgo(1)), pending("earlier", 0, minutesAgo(9))},
			want:  &Position{Place: 3, Pending: 4, Ahead: []string{"team/earlier", "team/urgent"}, Source: Computed},
		},
		"who has quota does not wait": {scene: changes{taken("h100", 1)}, want: &Position{Place: 1, Pending: 1, Source: Computed}},
		"who was stopped by an admission check queues from then on": {
			scene: changes{pending("later", 0, minutesAgo(3)), evicted(kueue.WorkloadEvictedByAdmissionCheck, "")},
			want:  &Position{Place: 2, Pending: 2, Ahead: []string{"team/later"}, Source: Computed},
		},
		"who is inactive is not in the queue": {scene: changes{switchedOff}},
	}, func(f *Facts) *Position { return PositionOf(f.Cluster, f.Workload, "gpus") })
}

func TestOrdinal(t *testing.T) {
	got := []string{ordinal(1), ordinal(2), ordinal(3), ordinal(4), ordinal(11), ordinal(21), ordinal(112)}
	expect.Same(t, "Unexpected ordinals", []string{"1st", "2nd", "3rd", "4th", "11th", "21st", "112th"}, got)
}
