// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestToldAt(t *testing.T) {
	at := time.Unix(1000, 0)
	tests := map[string]eventsv1.Event{
		"once, by a recorder of the new kind":  {EventTime: metav1.NewMicroTime(at)},
		"often, by one of the new kind":        {EventTime: metav1.NewMicroTime(at.Add(-time.Hour)), Series: &eventsv1.EventSeries{LastObservedTime: metav1.NewMicroTime(at)}},
		"often, by a recorder of the old kind": {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at.Add(-time.Hour))}, DeprecatedLastTimestamp: metav1.NewTime(at)},
		"by hand":                              {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}},
	}
	for name, ev := range tests {
		t.Run(name, func(t *testing.T) {
			if got := toldAt(&ev); !got.Equal(at) {
				t.Errorf("toldAt() = %s, want %s", got, at)
			}
		})
	}
}
