// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestBroadcast(t *testing.T) {
	tests := map[string]struct {
		notes []string
		want  []string
	}{
		"another note about an object that did not change is an event of its own": {
			notes: []string{"is missing", "differs by 2%s"},
			want:  []string{"is missing x1 ", "differs by 2%s x1 "},
		},
		"the same note again is counted": {
			notes: []string{"is missing", "is missing"},
			want:  []string{"is missing x2 "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			recorder := expect.Must(Broadcast(t.Context(), client.EventsV1(), inttest.Scheme, "controller"))(t)
			written := func() []string {
				list := expect.Must(client.EventsV1().Events("team").List(t.Context(), metav1.ListOptions{}))(t)
				slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
				var told []string
				for _, e := range list.Items {
					count := int32(1)
					if e.Series != nil {
						count = e.Series.Count
					}
					told = append(told, fmt.Sprintf("%s x%d %s", e.Note, count, e.Regarding.FieldPath))
				}
				return told
			}
			job := inttest.Job("1")
			job.ResourceVersion = "7"
			for _, note := range tc.notes {
				recorder.Eventf(job, nil, corev1.EventTypeWarning, "Waits", "Describe", "%s", note)
				// The broadcaster does not keep the order of what is recorded at once.
				_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Second, true, func(context.Context) (bool, error) {
					return len(written()) > 0, nil
				})
			}
			_ = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
				return cmp.Equal(tc.want, written()), nil
			})
			expect.Same(t, "Unexpected events", tc.want, written())
		})
	}
}
