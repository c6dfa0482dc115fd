// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
)

const (
	// saidAgainAfter is when an event that still holds is told again.
	saidAgainAfter = 10 * time.Minute
	// saidRemembered bounds of how many objects the last event is remembered.
	saidRemembered = 4096
)

// onceRecorder drops an event that says what the last one about the same object said.
// jobframework tells the end of a Workload, and a start that is refused, at every look.
type onceRecorder struct {
	events.EventRecorder
	last *lru.Cache
}

type said struct {
	text string
	at   time.Time
}

func newOnceRecorder(recorder events.EventRecorder) *onceRecorder {
	return &onceRecorder{EventRecorder: recorder, last: lru.New(saidRemembered)}
}

// Eventf implements events.EventRecorder.
func (r *onceRecorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	text := reason + ": " + fmt.Sprintf(note, args...)
	if obj, err := meta.Accessor(regarding); err == nil && r.repeated(obj.GetUID(), text) {
		return
	}
	r.EventRecorder.Eventf(regarding, related, eventType, reason, action, note, args...)
}

// frameworkRecorder is the recorder of jobframework. It leaves the start to the reconciler,
// which tells it with the flavors.
type frameworkRecorder struct {
	events.EventRecorder
}

// Eventf implements events.EventRecorder.
func (r frameworkRecorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	if reason != jobframework.ReasonStarted {
		r.EventRecorder.Eventf(regarding, related, eventType, reason, action, note, args...)
	}
}

// forget drops what was told of an object.
func (r *onceRecorder) forget(uid types.UID) {
	r.last.Remove(uid)
	r.last.Remove(noticeKey(uid))
}

// settle makes an event of this reason news again for an object: what it told is over.
func (r *onceRecorder) settle(uid types.UID, reason string) {
	if last, ok := r.last.Get(uid); ok && strings.HasPrefix(last.(said).text, reason+": ") {
		r.last.Remove(uid)
	}
}

func (r *onceRecorder) repeated(uid any, text string) bool {
	if last, ok := r.last.Get(uid); ok && last.(said).text == text && time.Since(last.(said).at) < saidAgainAfter {
		return true
	}
	r.last.Add(uid, said{text, time.Now()})
	return false
}
