// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/awaited"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// refusalOf makes an event as Trainer tells it.
func refusalOf(uid types.UID, ago time.Duration) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "refusal"},
		EventTime:  metav1.NewMicroTime(time.Now().Add(-ago)), Type: corev1.EventTypeWarning, Reason: "TrainJobResourcesCreationFailed",
		Regarding: corev1.ObjectReference{Kind: "TrainJob", UID: uid}, Note: "denied by policy",
	}
}

// liveEvents returns a client that lists events without field selectors, which the fake API
// server does not know, or answers with an error.
func liveEvents(c client.Client, err error) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if _, ok := list.(*eventsv1.EventList); ok && err != nil {
				return err
			}
			return c.List(ctx, list, client.InNamespace("ns"))
		},
	})
}

func TestEnsureStarted(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
	tests := map[string]struct {
		// lacking is for how long the job is known to lack its JobSet.
		lacking time.Duration
		refusal *eventsv1.Event
		reading error
		change  func(*trainjob.TrainJob, *kueue.Workload)
		start   error
		// before is set where that was noted of the admission before this one.
		before   bool
		wantKept bool
		wantTold string
		wantWait bool
		wantErr  bool
	}{
		"refused just now":                  {refusal: refusalOf("uid", 0), wantKept: true, wantWait: true},
		"refused for long":                  {lacking: 3 * time.Minute, refusal: refusalOf("uid", time.Minute), wantTold: "CannotStart gives its quota back, could not start in 3m0s; queues again in 1m0s or when the TrainJob is changed: Trainer has not made JobSet job: denied by policy"},
		"somebody else is refused":          {lacking: 3 * time.Minute, refusal: refusalOf("other", time.Minute), wantKept: true, wantWait: true, wantTold: "NotStarted admitted, but without a pod after 2m0s"},
		"refused before it was admitted":    {lacking: 3 * time.Minute, refusal: refusalOf("uid", 2*time.Hour), wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"late":                              {lacking: 3 * time.Minute, wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"late for very long":                {lacking: 11 * time.Minute, wantTold: "CannotStart gives its quota back"},
		"late before it was admitted again": {lacking: 11 * time.Minute, before: true, wantKept: true, wantWait: true},
		"events may not be read":            {lacking: 3 * time.Minute, refusal: refusalOf("uid", 0), reading: forbidden, wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"events cannot be read":             {lacking: 3 * time.Minute, refusal: refusalOf("uid", 0), reading: errors.New("away"), wantKept: true, wantErr: true},
		"in another cluster": {lacking: time.Hour, change: func(j *trainjob.TrainJob, _ *kueue.Workload) {
			multi := kueue.MultiKueueControllerName
			j.Spec.ManagedBy = &multi
		}, wantKept: true},
		"a prebuilt Workload": {lacking: 3 * time.Minute, refusal: refusalOf("uid", 0), change: func(j *trainjob.TrainJob, wl *kueue.Workload) {
			j.Labels["kueue.x-k8s.io/prebuilt-workload-name"] = wl.Name
		}, wantKept: true, wantWait: true, wantTold: "CannotStart cannot start, and holds quota by prebuilt Workload"},
		"Kueue takes it back already":       {lacking: time.Hour, change: func(_ *trainjob.TrainJob, wl *kueue.Workload) { wl.Spec.Active = new(bool) }, wantKept: true},
		"the API server refuses its start":  {lacking: 3 * time.Minute, change: func(j *trainjob.TrainJob, _ *kueue.Workload) { j.Spec.Suspend = ptr.To(true) }, start: apierrors.NewForbidden(jobclient.Resource, "job", errors.New("not today")), wantTold: "not today"},
		"it could not be started by now":    {lacking: time.Hour, change: func(j *trainjob.TrainJob, _ *kueue.Workload) { j.Spec.Suspend = ptr.To(true) }, start: errOutdated, wantKept: true},
		"its start fails without a refusal": {lacking: 3 * time.Minute, change: func(j *trainjob.TrainJob, _ *kueue.Workload) { j.Spec.Suspend = ptr.To(true) }, start: errors.New("timeout"), wantKept: true, wantWait: true, wantTold: "NotStarted admitted, but without a pod after 2m0s: the TrainJob has not been resumed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(false, false, false, time.Now())
			wl := inttest.WorkloadOf(stored.UID, true)
			wl.Namespace, wl.OwnerReferences[0].Name, wl.UID = stored.Namespace, stored.Name, "wl"
			for i := range wl.Status.Conditions {
				wl.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
			}
			if tc.change != nil {
				tc.change(stored, wl)
			}
			objects := []client.Object{stored, wl}
			if tc.refusal != nil {
				objects = append(objects, tc.refusal)
			}
			r, recorder := newReconciler(t, objects...)
			r.env.refusals = jobevents.NewRefusals(liveEvents(r.env.client, tc.reading))
			r.env.starts = newStarts(0)
			by := admissionOf(wl)
			if tc.before {
				former := wl.DeepCopy()
				for i := range former.Status.Conditions {
					former.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Now().Add(-2 * time.Hour))
				}
				by = admissionOf(former)
			}
			r.env.starts.jobs[client.ObjectKeyFromObject(stored)] = &startRecord{
				uid: stored.UID, admission: by, lacking: time.Now().Add(-tc.lacking), look: time.Now().Add(2*time.Minute - tc.lacking)}
			wait, err := r.ensureStarted(t.Context(), &job{TrainJob: *stored, env: r.env}, tc.start)
			if (err != nil) != tc.wantErr || (wait > 0) != tc.wantWait {
				t.Errorf("ensureStarted() = %s, %v", wait, err)
			}
			err = r.env.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl)
			if kept := err == nil; kept != tc.wantKept {
				t.Errorf("The job keeps its Workload: %t, want %t; %v", kept, tc.wantKept, err)
			}
			told := strings.Join(eventsSoFar(recorder, "Warning"), "\n")
			if !strings.Contains(told, tc.wantTold) || (told == "") != (tc.wantTold == "") {
				t.Errorf("The user is told %q, want %q", told, tc.wantTold)
			}
		})
	}
}

// A job that Trainer may not make a JobSet of could only hold quota.
func TestRefusedJobSetDoesNotQueue(t *testing.T) {
	tests := map[string]struct {
		refusal *eventsv1.Event
		want    bool
	}{
		"Trainer was refused it":  {refusal: refusalOf("uid", time.Hour), want: true},
		"Trainer has not come by": {refusal: refusalOf("other", 0)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(true, true, true, time.Now())
			r, recorder := newReconciler(t, stored, tc.refusal)
			r.env.refusals = jobevents.NewRefusals(liveEvents(r.env.client, nil))
			r.env.starts = newStarts(0)
			for i := range 2 {
				j := &job{TrainJob: *stored, env: r.env}
				got := j.awaitJobSet(t.Context())
				if got.err != nil || got.ends() != tc.want || (got.again > 0) != tc.want {
					t.Errorf("%d: awaitJobSet() = %+v, want it to wait: %t", i, got, tc.want)
				}
				r.env.refusals = jobevents.NewRefusals(liveEvents(r.env.client, errors.New("it is not asked again at once")))
				if !tc.want {
					break
				}
			}
			if told := eventsSoFar(recorder, "Warning CannotStart does not queue, because Trainer could not make JobSet job: denied by policy"); (len(told) == 1) != tc.want {
				t.Errorf("The user is told %q", told)
			}
		})
	}
}

// What was read before it had waited its time may lack what Trainer said since.
func TestLateJobWaitsForNewsOfItsTime(t *testing.T) {
	stored, _ := disagreeing(true, true, true, time.Now())
	r, _ := newReconciler(t, stored)
	r.env.refusals = jobevents.NewRefusals(liveEvents(r.env.client, nil))
	if _, again, err := r.env.refusals.Last(t.Context(), "ns", trainjob.GVK.Kind, []types.UID{"other"}, time.Time{}, time.Time{}); again > 0 || err != nil {
		t.Fatalf("Reading for another job: again %s, %v", again, err)
	}
	j := &job{TrainJob: *stored, env: r.env}
	r.env.memory.waits = map[types.NamespacedName]*waiting{
		client.ObjectKeyFromObject(stored): {uid: stored.UID, began: time.Now().Add(-awaited.JobSet)},
	}
	if got := j.awaitJobSet(t.Context()); got.err != nil || !got.unqueued || got.again <= 0 {
		t.Errorf("awaitJobSet() = %+v, want it to ask again", got)
	}
	r.env.memory.waits[client.ObjectKeyFromObject(stored)].began = time.Now().Add(-time.Minute)
	if got := j.awaitJobSet(t.Context()); got.err != nil || got.ends() {
		t.Errorf("awaitJobSet() = %+v for one that waited before that was read, want it to queue", got)
	}
}
