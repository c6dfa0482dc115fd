// SPDX-License-Identifier: Apache-2.0

// Package jobevents records the manager's events on TrainJobs: each of them once while what
// it says still holds (recorder.go), under the reasons and actions that users know
// (reasons.go, docs/logging.md), and logs it under the same reason; which of them say that a
// TrainJob is stuck is remembered. It also finds the events in which other controllers say that
// they were refused something (refusals.go).
package jobevents

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// repeatAfter is when an event that still holds is recorded again.
	repeatAfter = 10 * time.Minute
	// remembered bounds of how many objects the last event is remembered.
	remembered = 1 << 16
)

// Recorder drops an event that says what the last one about the same object said.
// jobframework records the end of a Workload, and a start that is refused, at every look.
type Recorder struct {
	events.EventRecorder
	*stuckReasons
	last *lru.Cache
	log  logr.Logger
}

// event is the last one of an object.
type event struct {
	text string
	at   time.Time
}

// New returns a Recorder that passes to recorder what is news. It logs nothing: see LoggingTo.
func New(recorder events.EventRecorder) *Recorder {
	return &Recorder{EventRecorder: recorder, stuckReasons: &stuckReasons{byUID: map[types.UID]stuck{}}, last: lru.New(remembered)}
}

// LoggingTo returns a Recorder that remembers the same, and writes a line of each event to log,
// which says already what the event is about.
func (r *Recorder) LoggingTo(log logr.Logger) *Recorder {
	out := *r
	out.log = log
	return &out
}

// Eventf implements events.EventRecorder.
func (r *Recorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	if reason == ReasonStarted && action != ActionStart {
		// jobframework's word of a start. The reconciler records it with the flavors.
		return
	}
	message := fmt.Sprintf(note, args...)
	if obj, err := meta.Accessor(regarding); err == nil {
		if eventType == corev1.EventTypeWarning {
			r.Note(obj.GetUID(), reason)
		}
		if r.repeats(obj.GetUID(), reason+": "+message) {
			return
		}
	}
	r.record(regarding, related, eventType, reason, action, message)
}

// record records what is news, and logs it.
func (r *Recorder) record(regarding, related runtime.Object, eventType, reason, action, note string) {
	r.EventRecorder.Eventf(regarding, related, eventType, reason, action, "%s", note)
	r.log.Info(messageOf(reason), "reason", reason, "detail", note)
}

// Warn records a Warning that quotes err.
func (r *Recorder) Warn(regarding runtime.Object, reason, action string, err error) {
	r.Eventf(regarding, nil, corev1.EventTypeWarning, reason, action, "%s", shortened(err.Error()))
}

// shortened leaves out the middle of a message that is longer than an event may have: where the API server refuses an object, it
// quotes that, and says why at the end.
func shortened(message string) string {
	const longest, gap = 1024, " … "
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:longest/2]+gap+message[len(message)-longest/2+len(gap):], "")
}

// stateKey keeps states apart from other events of the same object.
type stateKey types.UID

// WarnOfState records a Warning about a state that lasts, once until it is another one. One
// without a reason is the end of it. Whether the TrainJob is in trouble by it, its caller notes.
func (r *Recorder) WarnOfState(regarding client.Object, says Notice) {
	key := stateKey(regarding.GetUID())
	if says.Reason == "" {
		r.last.Remove(key)
		return
	}
	if !r.repeats(key, says.Reason+": "+says.Message) {
		r.record(regarding, nil, corev1.EventTypeWarning, says.Reason, ActionQueue, says.Message)
	}
}

// Forget drops what is remembered of an object.
func (r *Recorder) Forget(uid types.UID) {
	r.last.Remove(uid)
	r.last.Remove(stateKey(uid))
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byUID, uid)
}

// Resolve makes an event of this reason news again for an object: what it was about is over.
func (r *Recorder) Resolve(uid types.UID, reason string) {
	if last, ok := r.last.Get(uid); ok && strings.HasPrefix(last.(event).text, reason+": ") {
		r.last.Remove(uid)
	}
}

func (r *Recorder) repeats(uid any, text string) bool {
	if last, ok := r.last.Get(uid); ok && last.(event).text == text && time.Since(last.(event).at) < repeatAfter {
		return true
	}
	r.last.Add(uid, event{text, time.Now()})
	return false
}

// passing are the reasons of Warnings about what comes right without anybody's doing, what does not
// keep a whole job, or what an admin means: two integrations at once during a migration, a namespace that
// Kueue leaves alone.
var passing = map[string]bool{ReasonCheckRetries: true, ReasonUngateRefused: true, ReasonNotAlone: true, ReasonNotManaged: true}

// stuckReasons are what TrainJobs wait for that does not come by itself: for each the reason of the
// first Warning in the last look at it, whether that was news to anybody or not.
type stuckReasons struct {
	mu    sync.Mutex
	byUID map[types.UID]stuck
}

// stuck is the reason that was noted in the look that is under way, and that of the last one.
type stuck struct{ noted, last string }

// Note has a TrainJob count as being in trouble for a reason, as a Warning does.
func (t *stuckReasons) Note(uid types.UID, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.byUID[uid]; !passing[reason] && s.noted == "" {
		t.byUID[uid] = stuck{noted: reason, last: s.last}
	}
}

// EndLook ends a look at a TrainJob: its reasons are those that were noted meanwhile.
func (t *stuckReasons) EndLook(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if noted := t.byUID[uid].noted; noted != "" {
		t.byUID[uid] = stuck{last: noted}
	} else {
		delete(t.byUID, uid)
	}
}

// StuckReason returns the reason of what a TrainJob waits for that does not come by itself; empty: there
// is none.
func (t *stuckReasons) StuckReason(uid types.UID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byUID[uid].last
}

// broadcast returns a recorder of events, which c writes, each with its own note.
// client-go counts an event for a repetition of a former one that has the same reason and is about
// the same version of an object, and drops its note; what a TrainJob waits for may change while
// nobody changes the TrainJob. It records after the end of ctx, too: the last events tell most.
func broadcast(ctx context.Context, c eventsclient.EventsV1Interface, scheme *runtime.Scheme) (events.EventRecorder, error) {
	broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: c}})
	if err := broadcaster.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("recording events of %s: %w", ReportingController, err)
	}
	return byNote{broadcaster.NewRecorder(scheme, ReportingController), scheme}, nil
}

// byNote has client-go compare the notes of events, too, as a part of what they are about: the
// field path, which sink takes off again.
type byNote struct {
	events.EventRecorder
	scheme *runtime.Scheme
}

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

func (s sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	event = event.DeepCopy()
	event.Regarding.FieldPath = ""
	return s.EventSink.Create(ctx, event)
}

// Setup returns the Recorder of a manager.
func Setup(ctx context.Context, mgr ctrl.Manager) (*Recorder, error) {
	written, err := eventsclient.NewForConfigAndClient(apart(mgr.GetConfig()), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("setting up the client of events: %w", err)
	}
	told, err := broadcast(ctrl.LoggerInto(ctx, mgr.GetLogger()), written, mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	return New(told), nil
}

// eventsPerSecond are written at most, beside all other requests.
const eventsPerSecond = 100

// apart limits events apart, where requests are limited: what all jobs are told at once keeps no write waiting.
func apart(config *rest.Config) *rest.Config {
	events := rest.CopyConfig(config)
	if events.RateLimiter != nil {
		events.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, 2*eventsPerSecond)
	}
	return events
}
