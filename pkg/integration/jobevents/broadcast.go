// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"context"
	"fmt"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
)

// Broadcast returns a recorder of events by controller, which c writes, each with its own note.
// client-go counts an event for a repetition of a former one that has the same reason and is about
// the same version of an object, and drops its note; what a TrainJob waits for may change while
// nobody changes the TrainJob. It records after the end of ctx, too: the last events tell most.
func Broadcast(ctx context.Context, c eventsclient.EventsV1Interface, scheme *runtime.Scheme, controller string) (events.EventRecorder, error) {
	broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: c}})
	if err := broadcaster.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("recording events of %s: %w", controller, err)
	}
	return byNote{broadcaster.NewRecorder(scheme, controller), scheme}, nil
}

// byNote has client-go compare the notes of events, too, as a part of what they are about: the
// field path, which sink takes off again.
type byNote struct {
	events.EventRecorder
	scheme *runtime.Scheme
}

// Eventf implements events.EventRecorder.
func (r byNote) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	// client-go tells of what it cannot refer to.
	if ref, err := reference.GetReference(r.scheme, regarding); err == nil {
		about := *ref
		about.FieldPath = fmt.Sprintf(note, args...)
		regarding = &about
	}
	r.EventRecorder.Eventf(regarding, related, eventType, reason, action, note, args...)
}

type sink struct{ events.EventSink }

// Create implements events.EventSink.
func (s sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	event = event.DeepCopy()
	event.Regarding.FieldPath = ""
	return s.EventSink.Create(ctx, event)
}
