// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// refusalReasons are of the events in which a controller quotes why something could not be
// made or changed: Trainer's on the TrainJob, JobSet's on the JobSet, and the Job
// controller's on the Job. None of them says so in a status.
var refusalReasons = []string{
	"TrainJobResourcesCreationFailed",
	"JobCreationFailed", "HeadlessServiceCreationFailed", "PVCCreationFailed",
	"FailedCreate",
}

// LastRefusal returns the last refusal told since a time about objects of a kind, or "". It reads
// the storage of the API server, which has to look at all events of the namespace: it is for
// jobs that are late, not for every look.
func LastRefusal(ctx context.Context, live client.Reader, namespace, kind string, asked []types.UID, since time.Time) (string, error) {
	if len(asked) == 0 {
		return "", nil
	}
	selector := client.MatchingFields{"type": corev1.EventTypeWarning, "regarding.kind": kind}
	if len(asked) == 1 {
		selector["regarding.uid"] = string(asked[0])
	}
	var list eventsv1.EventList
	if err := live.List(ctx, &list, client.InNamespace(namespace), selector); err != nil {
		if apierrors.IsForbidden(err) {
			// A role of an older release: what is not told is silence.
			return "", nil
		}
		return "", fmt.Errorf("listing the events of namespace %s about %s: %w", namespace, kind, err)
	}
	return lastRefusal(list.Items, asked, since), nil
}

func lastRefusal(events []eventsv1.Event, asked []types.UID, since time.Time) string {
	note, last := "", since
	for i := range events {
		ev := &events[i]
		if slices.Contains(asked, ev.Regarding.UID) && slices.Contains(refusalReasons, ev.Reason) && toldAt(ev).After(last) {
			note, last = ev.Note, toldAt(ev)
		}
	}
	return note
}

// toldAt returns when an event was last told. Recorders of the old kind count in one place,
// those of the new kind in another.
func toldAt(ev *eventsv1.Event) time.Time {
	at := ev.CreationTimestamp.Time
	times := []time.Time{ev.EventTime.Time, ev.DeprecatedLastTimestamp.Time}
	if ev.Series != nil {
		times = append(times, ev.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(at) {
			at = t
		}
	}
	return at
}
