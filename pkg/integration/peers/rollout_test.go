// SPDX-License-Identifier: Apache-2.0

package peers_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRead(t *testing.T) {
	job := inttest.Job("uid")
	var (
		overrides = map[string]string{"kueue-trainer.dev/manager": "kueue.x-k8s.io/manager"}
		gated     = jobSetShowing("gated", job, map[string]string{"kueue-trainer.dev/gated": "true"}, nil)
		placed    = jobSetShowing("placed", job, map[string]string{"kueue.x-k8s.io/podset": "node"}, nil)
		older     = jobSetShowing("older", job, map[string]string{"kueue.x-k8s.io/podset": "node"}, overrides)
		plain     = jobSetShowing("plain", job, map[string]string{"a": "b"}, nil)
		foreign   = jobSetShowing("foreign", nil, map[string]string{"kueue.x-k8s.io/podset": "node"}, nil)
		before    = jobSetShowing("before", job, map[string]string{"kueue.x-k8s.io/podset": "node"}, nil)
		own       = jobSetShowing(job.Name, job, map[string]string{"kueue-trainer.dev/gated": "true"}, nil)
		snapshot  = &corev1.ConfigMap{ObjectMeta: inttest.Owned(job, "llm-runtime-snapshot")}
	)
	strange := jobSetShowing("strange", nil, map[string]string{"kueue-trainer.dev/gated": "true"}, nil)
	strange.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Minute))
	namesake := jobSetShowing(job.Name, nil, map[string]string{"kueue-trainer.dev/gated": "true"}, nil)
	former := jobSetShowing(job.Name, job, map[string]string{"kueue.x-k8s.io/podset": "node"}, overrides)
	snapshot.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Minute))
	formerSnapshot := snapshot.DeepCopy()
	formerSnapshot.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
	gated.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Minute))
	type row struct {
		// served are the generations of the CRD, one after the other.
		served []trainjob.TrainerVersion
		// managedBy is Trainer where it is not said.
		managedBy  string
		objects    []client.Object
		wantUnread bool
		// wantLists is how often JobSets are looked at for two starts.
		wantLists int
	}
	expect.Rows(t, map[string]row{
		"a cluster without jobs":                                 {served: []trainjob.TrainerVersion{trainjob.Trainer23}, wantLists: 1},
		"a manager that starts beside running jobs":              {served: []trainjob.TrainerVersion{trainjob.Trainer23}, objects: []client.Object{placed, plain}, wantLists: 1},
		"one that starts in the middle of an upgrade":            {served: []trainjob.TrainerVersion{trainjob.Trainer23}, objects: []client.Object{older, plain}, wantUnread: true, wantLists: 1},
		"one that starts with Trainer 2.1":                       {served: []trainjob.TrainerVersion{trainjob.Trainer21}, objects: []client.Object{older, plain}, wantLists: 1},
		"an upgrade of a cluster without jobs":                   {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, wantUnread: true, wantLists: 1},
		"an upgrade, and the older controller works on":          {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{older, plain}, wantUnread: true, wantLists: 1},
		"an upgrade, and a JobSet of another integration":        {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, objects: []client.Object{foreign}, wantUnread: true, wantLists: 1},
		"an upgrade, and the newer controller gates a JobSet":    {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{older, gated}, wantLists: 1},
		"an upgrade, and a newer one of such an integration":     {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, objects: []client.Object{strange}, wantUnread: true, wantLists: 1},
		"an upgrade, and somebody's JobSet of the job's name":    {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{namesake}, wantUnread: true, wantLists: 1},
		"an upgrade, and the job's JobSet is an older one's":     {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{former}, wantUnread: true, wantLists: 1},
		"an upgrade, and a job that an earlier one started":      {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{before}, wantUnread: true, wantLists: 1},
		"an upgrade, and the newer controller gates this job":    {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22}, objects: []client.Object{older, own}, wantLists: 1},
		"an upgrade, and the newer controller has a snapshot":    {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, objects: []client.Object{older, snapshot}, wantLists: 1},
		"an upgrade, and a snapshot of the time before it":       {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, objects: []client.Object{older, formerSnapshot}, wantUnread: true, wantLists: 1},
		"an upgrade by way of a CRD of no generation":            {served: []trainjob.TrainerVersion{trainjob.Trainer21, 0, trainjob.Trainer23}, wantUnread: true, wantLists: 1},
		"an upgrade that keeps the field":                        {served: []trainjob.TrainerVersion{trainjob.Trainer22, trainjob.Trainer23}, objects: []client.Object{own, placed}, wantUnread: true, wantLists: 1},
		"one that keeps it, and the newer has a snapshot":        {served: []trainjob.TrainerVersion{trainjob.Trainer22, trainjob.Trainer23}, objects: []client.Object{own, snapshot}, wantLists: 1},
		"one that keeps it, by a newer one that was there":       {served: []trainjob.TrainerVersion{trainjob.Trainer22, trainjob.Trainer23}, objects: []client.Object{own, formerSnapshot}, wantLists: 1},
		"one that keeps it, by way of no generation":             {served: []trainjob.TrainerVersion{trainjob.Trainer22, 0, trainjob.Trainer23, trainjob.Trainer23}, wantUnread: true, wantLists: 1},
		"one that keeps it, again, and the newer has none since": {served: []trainjob.TrainerVersion{trainjob.Trainer22, trainjob.Trainer23, trainjob.Trainer22, trainjob.Trainer23}, objects: []client.Object{own, formerSnapshot}, wantUnread: true, wantLists: 1},
		"one that keeps it, taken back":                          {served: []trainjob.TrainerVersion{trainjob.Trainer22, trainjob.Trainer23, trainjob.Trainer22}, wantLists: 1},
		"one that keeps it, and a job of another cluster":        {served: []trainjob.TrainerVersion{trainjob.Trainer22, trainjob.Trainer23}, managedBy: kueue.MultiKueueControllerName},
		"an upgrade in two steps, and one gate of the first":     {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22, trainjob.Trainer23}, objects: []client.Object{gated}, wantUnread: true, wantLists: 1},
		"an upgrade, and a job of another cluster":               {served: []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer23}, managedBy: kueue.MultiKueueControllerName},
		"a CRD that was of no generation for a moment":           {served: []trainjob.TrainerVersion{trainjob.Trainer23, 0, trainjob.Trainer23}, wantLists: 1},
	}, func(t *testing.T, tc row) {
		lists := 0
		c := kit.Lists(inttest.Fake(tc.objects...).Build(), func(client.ObjectList) error { lists++; return nil })
		served := peers.NewTrainer(peers.NewTrainJobs(nil))
		for _, generation := range tc.served {
			var reason error
			if generation == 0 {
				reason = errors.New("no CRD")
			}
			served.Set(t.Context(), generation, reason)
		}
		version := expect.Must(served.Served())(t)
		job := job.DeepCopy()
		job.Spec.ManagedBy = new(cmp.Or(tc.managedBy, trainjob.ControllerName))
		for range 2 {
			err := served.Rollout.Check(t.Context(), c, trainjob.NewRuntimes(c, c).As(version), patch.Of(version), job)
			expect.That(t, errors.Is(err, peers.ErrRollingOut) == tc.wantUnread && (err == nil || tc.wantUnread),
				"read returned %v, want peers.ErrRollingOut: %t", err, tc.wantUnread)
		}
		expect.Same(t, "Unexpected number of looks at the JobSets", tc.wantLists, lists)
	})
}

// What the JobSets showed is good for a moment: the newer controller may make one at any time.
func TestJobSetsAreLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inttest.Fake().Build()
		served := peers.NewTrainer(peers.NewTrainJobs(nil))
		served.Set(t.Context(), trainjob.Trainer21, nil)
		served.Set(t.Context(), trainjob.Trainer22, nil)
		job := inttest.Job("uid")
		job.Spec.ManagedBy = new(trainjob.ControllerName)
		for _, want := range []error{peers.ErrRollingOut, nil} {
			err := served.Rollout.Check(t.Context(), c, trainjob.NewRuntimes(c, c).As(trainjob.Trainer22), patch.Of(trainjob.Trainer22), job)
			expect.That(t, errors.Is(err, want), "Check() = %v, want %v", err, want)
			gated := jobSetShowing("gated", job, map[string]string{"kueue-trainer.dev/gated": "true"}, nil)
			gated.CreationTimestamp = metav1.Now()
			expect.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), gated)))
			expect.Pass(2 * time.Second)
		}
	})
}

// Which Trainer is served concerns every TrainJob.
func TestAnotherTrainerHasAllTrainJobsLookedAt(t *testing.T) {
	all := peers.NewTrainJobs(inttest.Fake(inttest.Job("uid")).Build())
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	expect.NoError(t, all.Source().Start(t.Context(), queue))
	served := peers.NewTrainer(all)
	for _, step := range []struct {
		version trainjob.TrainerVersion
		reason  error
		want    int
	}{{0, errors.New("there is no CRD"), 1}, {0, errors.New("there is no CRD yet"), 0}, {trainjob.Trainer22, nil, 1}, {trainjob.Trainer22, nil, 0}, {trainjob.Trainer23, nil, 1}} {
		served.Set(t.Context(), step.version, step.reason)
		version, err := served.Served()
		expect.That(t, version == step.version && errors.Is(err, step.reason) && errors.Is(served.Check(nil), step.reason), "Served() = %s, %v", version, err)
		expect.Same(t, fmt.Sprintf("TrainJobs to look at for %s, %v", step.version, step.reason), step.want, queue.Len())
		for queue.Len() > 0 {
			item, _ := queue.Get()
			queue.Done(item)
		}
	}
}

// jobSetShowing returns the JobSet of a TrainJob, or of nobody, whose pods have labels and annotations.
func jobSetShowing(name string, job *trainjob.TrainJob, labels, annotations map[string]string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	if job != nil {
		js.ObjectMeta = inttest.Owned(job, name)
	}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node"}}
	pods := &js.Spec.ReplicatedJobs[0].Template.Spec.Template
	pods.Labels, pods.Annotations = labels, annotations
	return js
}
