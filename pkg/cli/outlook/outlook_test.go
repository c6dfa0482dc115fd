// SPDX-License-Identifier: Apache-2.0

package outlook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// town is a cluster with one queue of eight GPUs, where nobody is preempted.
func town() *outlook.Outlook {
	cq := kit.ClusterQueue("gpus", kit.Quota{Flavor: "h100", GPUs: "8"})
	cq.Spec.Preemption, cq.Spec.QueueingStrategy = nil, kueue.BestEffortFIFO
	return &outlook.Outlook{Now: now, NoArrivals: true, Inventory: &inventory.Inventory{
		Flavors:       []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}},
		ClusterQueues: []kueue.ClusterQueue{*cq},
		LocalQueues:   []kueue.LocalQueue{*kit.LocalQueue("team", "main", "gpus")},
	}}
}

// job adds the Workload of a TrainJob that came some time ago and waits.
func job(o *outlook.Outlook, name string, gpus int32, came time.Duration) *kueue.Workload {
	wl := kit.Workload("team", "trainjob-"+name, "main", now.Add(-came), kit.PodSet("node", gpus, "nvidia.com/gpu", "1"))
	wl.OwnerReferences = []metav1.OwnerReference{{Name: name, UID: types.UID("job-" + name)}}
	o.Workloads = append(o.Workloads, *wl)
	return &o.Workloads[len(o.Workloads)-1]
}

// running has a Workload run since it came.
func running(wl *kueue.Workload) *kueue.Workload {
	return kit.With(wl, kit.Runs("gpus", "h100", wl.CreationTimestamp.Time))
}

// llm adds one that has run for an hour.
func llm(o *outlook.Outlook, changes ...func(*kueue.Workload)) *kueue.Workload {
	return kit.With(running(job(o, "llm", 8, time.Hour)), changes...)
}

// limited has Kueue stop one after so many hours, of which earlier runs have used some.
func limited(hours, used int32) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Spec.MaximumExecutionTimeSeconds = ptr.To(3600 * hours)
		if used > 0 {
			wl.Status.AccumulatedPastExecutionTimeSeconds = ptr.To(3600 * used)
		}
	}
}

// past adds Workloads that came long ago, and ended after some hours each.
func past(o *outlook.Outlook, name string, n int, hours func(int) int, changes ...func(*kueue.Workload)) {
	for i := range n {
		kit.With(ended(job(o, fmt.Sprintf("%s-%d", name, i), 8, 100*time.Hour), time.Duration(hours(i))*time.Hour), changes...)
	}
}

// claiming has a Workload claim its GPUs, and Kueue say how many these are, in place of asking for them.
func claiming(wl *kueue.Workload) *kueue.Workload {
	pod := &wl.Spec.PodSets[0].Template.Spec
	pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("h100")}}
	delete(pod.Containers[0].Resources.Requests, "nvidia.com/gpu")
	if wl.Status.Admission == nil {
		wl.Status.ResourceRequests = []kueue.PodSetRequest{{Name: "node", Resources: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}
	}
	return wl
}

// always is as many hours for all, and spread some for each.
func always(hours int) func(int) int { return func(int) int { return hours } }

func spread(n int) int { return 2 + n*7%10 }

// outOfSync has the last condition of a Workload say that its job is another one by now.
func outOfSync(wl *kueue.Workload) {
	wl.Status.Conditions[len(wl.Status.Conditions)-1].Reason = kueue.WorkloadFinishedReasonOutOfSync
}

// ended has a Workload end that ran.
func ended(wl *kueue.Workload, after time.Duration) *kueue.Workload {
	finished := kit.True(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonSucceeded)
	finished.LastTransitionTime = metav1.NewTime(wl.CreationTimestamp.Add(after))
	return kit.With(running(wl), kit.Says(finished))
}

// overTime has Kueue stop a Workload that has run for as many hours as its limit.
func overTime(wl *kueue.Workload, hours int32) {
	kit.With(wl, limited(hours, 0), kit.Deactivated)
	end := metav1.NewTime(wl.CreationTimestamp.Add(time.Duration(hours) * time.Hour))
	wl.Status.Conditions = []metav1.Condition{
		{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "DeactivatedDueToMaximumExecutionTimeExceeded", LastTransitionTime: end},
		{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionFalse, LastTransitionTime: end},
	}
}

// told is a job that runs for an hour, whose trainer has said some time ago how long it would yet run.
func told(o *outlook.Outlook, left, ago time.Duration) {
	tj := trainjob.TrainJob{}
	tj.UID = running(job(o, "llm", 8, time.Hour)).OwnerReferences[0].UID
	tj.Status.TrainerStatus = &trainer.TrainerStatus{EstimatedRemainingSeconds: ptr.To(int32(left.Seconds())), LastUpdatedTime: metav1.NewTime(now.Add(-ago))}
	o.TrainJobs = append(o.TrainJobs, tj)
}

// startOf is when the first Workload starts, by so many futures.
func startOf(t *testing.T, o *outlook.Outlook, futures int) string {
	t.Helper()
	q, _ := o.Question()
	q.Time, q.Futures = 0, futures
	starts := expect.Must(outlook.Of(t.Context(), q, &o.Workloads[0]))(t)
	return starts[client.ObjectKeyFromObject(&o.Workloads[0])].String()
}

func TestStart(t *testing.T) {
	const (
		atOnce  = "starts within a minute (P90 of 200 futures)"
		after   = " (P10 to P90 of 200 futures), often after team/llm ends"
		unknown = "unknown, because nothing is known of how long team/llm run: --assume 4h takes it for them"
		never   = "does not start before somebody changes something"
	)
	expect.Rows(t, map[string]expect.Row[func(*outlook.Outlook), string]{
		"there is room":                         {In: func(*outlook.Outlook) {}, Want: atOnce},
		"nothing is known of the job before it": {In: func(o *outlook.Outlook) { llm(o) }, Want: unknown},
		"Prometheus knows how long jobs of its queue ran": {In: func(o *outlook.Outlook) {
			llm(o)
			o.Measured = []forecast.Histogram{{Queue: "team/main", Buckets: []forecast.Bucket{{Seconds: 7200}, {Seconds: 10800, Jobs: 200}}}}
		}, Want: "starts in about 88 min, between 66 min and 2 h" + after},
		"the user assumes something": {In: func(o *outlook.Outlook) {
			o.Assume = 4 * time.Hour
			llm(o)
		}, Want: "starts in about 3 h" + after},
		"the trainer tells what is left":                  {In: func(o *outlook.Outlook) { told(o, 2*time.Hour, time.Hour) }, Want: "starts in about 60 min" + after},
		"the trainer told it of an earlier run":           {In: func(o *outlook.Outlook) { told(o, 6*time.Hour, 2*time.Hour) }, Want: unknown},
		"a limit is all that is known":                    {In: func(o *outlook.Outlook) { llm(o, limited(6, 0)) }, Want: "starts in about 5 h" + after},
		"a limit, of which earlier runs have left little": {In: func(o *outlook.Outlook) { llm(o, limited(6, 3)) }, Want: "starts in about 2 h" + after},
		"others of its limit have ended, whatever earlier runs have left of it": {In: func(o *outlook.Outlook) {
			past(o, "past", 30, always(2), limited(9, 0))
			past(o, "other", 30, always(20))
			llm(o, limited(9, 1))
		}, Want: "starts in about 60 min" + after},
		"most that are like it were stopped at their limit": {In: func(o *outlook.Outlook) {
			past(o, "past", 20, always(2))
			for n := range 80 {
				overTime(job(o, fmt.Sprintf("stopped-%d", n), 8, 100*time.Hour), 8)
			}
			llm(o, limited(6, 0))
		}, Want: "starts in about 5 h, between 60 min and 5 h" + after},
		"others have ended": {In: func(o *outlook.Outlook) {
			past(o, "past", 30, spread)
			llm(o)
		}, Want: "starts in about 5 h, between 60 min and 9 h" + after},
		"Workloads are finished whose jobs have not ended": {In: func(o *outlook.Outlook) {
			past(o, "past", 30, spread)
			past(o, "stale", 30, always(1), outOfSync)
			llm(o)
		}, Want: "starts in about 5 h, between 60 min and 9 h" + after},
		"jobs of its user have ended much sooner than others": {In: func(o *outlook.Outlook) {
			o.Manager = &config.Configuration{Metrics: config.Metrics{UserLabel: "example.com/user"}}
			of := func(user string) func(*kueue.Workload) {
				return func(wl *kueue.Workload) {
					tj := trainjob.TrainJob{}
					tj.UID, tj.Labels = wl.OwnerReferences[0].UID, map[string]string{"example.com/user": user}
					o.TrainJobs = append(o.TrainJobs, tj)
				}
			}
			past(o, "short", 30, always(2), of("joe"))
			past(o, "long", 30, always(40), of("ann"))
			llm(o, of("joe"))
		}, Want: "starts in about 60 min" + after},
		"others have ended in less than a second": {In: func(o *outlook.Outlook) {
			for n := range 30 {
				ended(job(o, fmt.Sprintf("past-%d", n), 8, 100*time.Hour), -time.Duration(n%2)*time.Second)
			}
			llm(o)
		}, Want: "starts in about 71 min, between 6 min and 2 days" + after + "; in 5 % of the futures not within 14 days"},
		"nothing is known of one behind it, and of those who may go before it": {In: func(o *outlook.Outlook) {
			o.NoArrivals = false
			llm(o, limited(2, 0))
			job(o, "behind", 8, 0)
			for n, came := range []time.Duration{11 * time.Hour, 6 * time.Hour, 3 * time.Hour} {
				stale := kit.With(ended(job(o, fmt.Sprintf("urgent-%d", n), 8, came), time.Hour), outOfSync)
				stale.Spec.Priority = ptr.To[int32](10)
			}
		}, Want: "starts in about 60 min" + after},
		"many came lately of which nothing is known": {In: func(o *outlook.Outlook) {
			o.NoArrivals = false
			kit.With(running(job(o, "llm", 4, time.Hour)), limited(24, 0))
			for n := range 10 {
				ended(job(o, fmt.Sprintf("short-%d", n), 1, time.Duration(6*n+1)*time.Hour), 5*time.Minute)
			}
		}, Want: "starts in about 23 h, between 23 h and 2 days" + after},
		"a service has what it needs, and jobs have ended": {In: func(o *outlook.Outlook) {
			past(o, "past", 30, spread)
			llm(o).OwnerReferences[0].Kind = "LeaderWorkerSet"
		}, Want: "in 100 % of the futures not within 14 days (200 futures)"},
		"services that came lately do not come again": {In: func(o *outlook.Outlook) {
			o.NoArrivals = false
			llm(o, limited(2, 0))
			for n := range 5 {
				serves := ended(job(o, fmt.Sprintf("serve-%d", n), 8, time.Duration(n+2)*time.Hour), time.Hour)
				serves.OwnerReferences[0].Kind, serves.Spec.Priority = "RayCluster", ptr.To[int32](10)
			}
		}, Want: "starts in about 60 min" + after},
		"services that ended tell nothing of jobs": {In: func(o *outlook.Outlook) {
			past(o, "past", 30, always(40), func(wl *kueue.Workload) { wl.OwnerReferences[0].Kind = "RayCluster" })
			llm(o)
		}, Want: unknown},
		"nothing is known of one that never starts": {In: func(o *outlook.Outlook) {
			llm(o, limited(1000, 0))
			job(o, "huge", 99, 0)
		}, Want: "in 100 % of the futures not within 14 days (200 futures)"},
		"it is to be tried again later": {In: func(o *outlook.Outlook) {
			wl := kit.With(&o.Workloads[0], kit.Isnt(kueue.WorkloadRequeued, ""))
			wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To[int32](1), RequeueAt: ptr.To(metav1.NewTime(now.Add(30 * time.Minute)))}
		}, Want: "starts in about 30 min (P10 to P90 of 200 futures)"},
		"it claims as many devices as Kueue has said": {In: func(o *outlook.Outlook) {
			claiming(&o.Workloads[0])
			llm(o, limited(2, 0))
		}, Want: "starts in about 60 min" + after},
		"one that claims devices has them, and is to be tried again": {In: func(o *outlook.Outlook) {
			wl := kit.With(claiming(llm(o, limited(2, 0))), kit.Says(kit.True(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPodsReadyTimeout)))
			wl.Status.RequeueState = &kueue.RequeueState{Count: ptr.To[int32](1), RequeueAt: ptr.To(metav1.NewTime(now.Add(30 * time.Minute)))}
			kit.With(job(o, "first", 8, 2*time.Minute), limited(1, 0))
		}, Want: "starts in about 2 h" + after},
		"its LocalQueue is stopped": {In: func(o *outlook.Outlook) { o.LocalQueues[0].Spec.StopPolicy = ptr.To(kueue.Hold) }, Want: never},
		"Kueue leaves out a resource that no queue has": {In: func(o *outlook.Outlook) {
			o.Kueue = &configapi.Configuration{Resources: &configapi.Resources{ExcludeResourcePrefixes: []string{"example.com/"}}}
			o.Workloads[0].Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests["example.com/disk"] = resource.MustParse("1")
		}, Want: atOnce},
		"its queue is too small": {In: func(o *outlook.Outlook) { o.Workloads[0].Spec.PodSets[0].Count = 9 }, Want: never},
	}, func(t *testing.T, tc expect.Row[func(*outlook.Outlook), string]) {
		o := town()
		job(o, "mine", 8, time.Minute)
		tc.In(o)
		expect.Same(t, "Unexpected answer", tc.Want, startOf(t, o, outlook.Futures))
	})
}

func TestWhoClaimsDevicesWaitsForThem(t *testing.T) {
	o := town()
	mine := client.ObjectKeyFromObject(claiming(job(o, "mine", 8, time.Minute)))
	llm(o)
	c, _ := o.Contest()
	decisions := expect.Must(c.Decide(t.Context(), sets.New(mine)))(t)
	expect.Need(t, decisions[mine] != nil, "nothing is decided")
	expect.Same(t, "Unexpected outcome", scheduler.Refuses, decisions[mine].Outcome)
}

func TestWarnings(t *testing.T) {
	for want, set := range map[string]func(*outlook.Outlook, *kueue.Workload){
		"": func(_ *outlook.Outlook, wl *kueue.Workload) { claiming(wl) },
		"1 waiting job claim devices, and Kueue has not said yet how many: none are taken for them": func(_ *outlook.Outlook, wl *kueue.Workload) {
			claiming(wl).Status.ResourceRequests = nil
		},
		"Kueue admits nobody while pods of others are not ready (waitForPodsReady.blockAdmission): they are taken to be ready at once": func(o *outlook.Outlook, _ *kueue.Workload) {
			o.Kueue = &configapi.Configuration{WaitForPodsReady: &configapi.WaitForPodsReady{BlockAdmission: ptr.To(true)}}
		},
	} {
		o := town()
		set(o, job(o, "mine", 8, time.Minute))
		_, warnings := o.Question()
		expect.Same(t, "Unexpected warnings", want, strings.Join(warnings, "\n"))
	}
}

// Whoever may write Workloads may write one without containers.
func TestClaimsOfNoContainer(t *testing.T) {
	o := town()
	claiming(job(o, "odd", 8, time.Minute)).Spec.PodSets[0].Template.Spec.Containers = nil
	q, _ := o.Question()
	expect.Same(t, "Unexpected number of jobs", 1, len(q.Entrants))
}

func TestShort(t *testing.T) {
	late := outlook.Start{Late: 1, HorizonSeconds: int64(outlook.Horizon.Seconds()), Futures: 6}
	expect.Same(t, "Unexpected answer of one that starts in no future", "> 14 days", late.Short())
}

// TestWhoNeverStartsTakesNoFutures has futures played for those alone that start in one.
func TestWhoNeverStartsTakesNoFutures(t *testing.T) {
	o := town()
	never := job(o, "never", 9, time.Minute).DeepCopy()
	mine := job(o, "mine", 8, time.Minute).DeepCopy()
	q, _ := o.Question()
	q.Time, q.Futures = 0, 3
	starts := expect.Must(outlook.Of(t.Context(), q, never, mine))(t)
	expect.Same(t, "Unexpected answer of one too big", &outlook.Start{Never: true, HorizonSeconds: int64(outlook.Horizon.Seconds())}, starts[client.ObjectKeyFromObject(never)])
	expect.Same(t, "Unexpected answer of one that fits", "starts within a minute (P90 of 3 futures)", starts[client.ObjectKeyFromObject(mine)].String())
}

func TestFewFuturesTellTheirRange(t *testing.T) {
	for futures, want := range map[int]string{8: "the first to the last of 8 futures", 9: "P10 to P90 of 9 futures", 1: "the first to the last of 1 future"} {
		o := town()
		job(o, "mine", 8, time.Minute)
		llm(o, limited(6, 0))
		expect.Same(t, "Unexpected answer", "starts in about 5 h ("+want+"), often after team/llm ends", startOf(t, o, futures))
	}
}

// Who came and is gone is not among those that the cluster still has: only of the time since the oldest end all are there.
func TestArrivals(t *testing.T) {
	const lost = ": of what ended before, nothing is left"
	type row struct {
		// first came this long ago, and one in each such time before: jobs in all, of which something has become.
		first, every time.Duration
		jobs         int
		become       func(n int, wl *kueue.Workload)
		// between are bounds of how many come in two weeks.
		between [2]int
		warning string
	}
	expect.Rows(t, map[string]row{
		"three days are known": {first: time.Hour, every: time.Hour, jobs: 5 * 24, become: func(_ int, wl *kueue.Workload) { ended(wl, 30*time.Minute) }, between: [2]int{300, 370}},
		"ended Workloads are kept for an hour": {every: 5 * time.Minute, jobs: 18, become: func(n int, wl *kueue.Workload) {
			if n > 5 {
				ended(wl, 30*time.Minute)
			}
		}, between: [2]int{3700, 4600}, warning: "others are taken to come as in the last 60 min" + lost},
		"the cluster is a day old": {first: time.Hour, every: time.Hour, jobs: 24, become: func(_ int, wl *kueue.Workload) { ended(wl, 5*time.Minute) },
			between: [2]int{300, 370}, warning: "others are taken to come as in the last 23 h" + lost},
		"none has ended":                    {first: time.Hour, every: time.Hour, jobs: 10, between: [2]int{300, 370}, warning: "others are taken to come as in the last 10 h" + lost},
		"they were stopped at their limits": {first: time.Hour, every: time.Hour, jobs: 100, become: func(_ int, wl *kueue.Workload) { overTime(wl, 1) }, between: [2]int{300, 370}},
		"a few ended Workloads are kept for longer than others": {every: 2 * time.Minute, jobs: 60, become: func(n int, wl *kueue.Workload) {
			if ended(wl, 10*time.Second); n == 59 {
				wl.CreationTimestamp = metav1.NewTime(now.Add(-100 * time.Hour))
				ended(wl, time.Hour)
			}
		}, between: [2]int{9000, 11000}, warning: "others are taken to come as in the last 2 h" + lost},
		"the first came just now": {first: time.Second, jobs: 1, between: [2]int{290, 380}, warning: "others are taken to come as in the last 60 min" + lost},
	}, func(t *testing.T, tc row) {
		o := town()
		o.NoArrivals, o.Assume = false, time.Hour
		for n := range tc.jobs {
			if wl := job(o, fmt.Sprintf("past-%d", n), 1, tc.first+time.Duration(n)*tc.every); tc.become != nil {
				tc.become(n, wl)
			}
		}
		q, warnings := o.Question()
		jobs := q.Jobs(0)
		for n := range jobs {
			expect.That(t, kueuelib.IsActive(jobs[n].Workload), "Workload %s comes deactivated", jobs[n].Workload.Name)
		}
		come := len(jobs) - len(q.Entrants)
		expect.That(t, come >= tc.between[0] && come <= tc.between[1], "%d come, and not between %d and %d", come, tc.between[0], tc.between[1])
		expect.Same(t, "Unexpected warnings", tc.warning, strings.Join(warnings, "\n"))
	})
}

// What the trainer of a job said before that ended tells nothing of others that come like it.
func TestArrivalsLikeOneThatEnded(t *testing.T) {
	o := town()
	o.NoArrivals = false
	told(o, 72*time.Hour, 55*time.Minute)
	ended(&o.Workloads[0], 10*time.Minute)
	q, _ := o.Question()
	expect.Same(t, "Unexpected sources", []forecast.Source{forecast.Unknown}, expect.Each(q.Arrivals, func(a forecast.Arrival) forecast.Source { return a.Running.Source }))
}

func TestUnseen(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*outlook.Outlook), string]{
		"queues alone": {In: func(*outlook.Outlook) {}, Want: "cohorts.kueue.x-k8s.io"},
		"nodes, where a flavor has a topology": {In: func(o *outlook.Outlook) { o.Flavors[0].Spec.TopologyName = ptr.To[kueue.TopologyReference]("racks") },
			Want: "cohorts.kueue.x-k8s.io topologies.kueue.x-k8s.io nodes"},
		"admission checks, where a ClusterQueue names one": {In: func(o *outlook.Outlook) {
			o.ClusterQueues[0].Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "capacity"}}}
		}, Want: "cohorts.kueue.x-k8s.io admissionchecks.kueue.x-k8s.io"},
	}, func(t *testing.T, tc expect.Row[func(*outlook.Outlook), string]) {
		o := town()
		o.Inventory.Unseen = []string{inventory.Nodes, inventory.Topologies, inventory.AdmissionChecks, inventory.Cohorts}
		tc.In(o)
		expect.Same(t, "Unexpected kinds", tc.Want, strings.Join(o.Unseen(), " "))
		expect.Same(t, "Unexpected kinds of queues", "cohorts.kueue.x-k8s.io", strings.Join(o.UnseenQueues(), " "))
	})
}
