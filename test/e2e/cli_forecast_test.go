// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	// forecasts is how many cases are made; each has a cohort of its own, and all go at once.
	forecasts = 24
	// agreeing is the share of them that has to come as forecast. Kueue decides by the same
	// code on the same objects, so there is no reason for less than all.
	agreeing = 1.0
)

// fate is what becomes of a job: as it was forecast, and as it came.
type fate struct {
	// starts is set where it gets quota at once, flavors in which; victims go for it.
	starts  bool
	flavors string
	victims string
	// looked is unset where Kueue does not come to look at it.
	looked bool
}

func (f fate) String() string {
	switch {
	case f.starts:
		return "starts on " + f.flavors
	case f.victims != "":
		return "preempts " + f.victims
	case f.looked:
		return "waits"
	}
	return "is not looked at"
}

// forecastCase is a cohort with ClusterQueues and Workloads, into which one TrainJob comes.
type forecastCase struct {
	name    string
	rand    *rand.Rand
	w       *site
	queues  []*kueue.ClusterQueue
	stopped bool
	loads   []*kueue.Workload
	job     *kit.TrainJobBuilder
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (c *forecastCase) clusterQueue(n int, cohort string) *kueue.ClusterQueue {
	r := c.rand
	quotas := []kit.Quota{{Flavor: c.w.Name("h100"), GPUs: pick(r, "2", "4", "8", "8")}}
	if r.IntN(2) == 0 {
		quotas = append(quotas, kit.Quota{Flavor: c.w.Name("a100"), GPUs: pick(r, "0", "4", "8")})
	}
	cq := kit.ClusterQueue(c.w.Name(fmt.Sprintf("%s-%d", c.name, n)), quotas...)
	cq.Spec.QueueingStrategy = pick(r, kueue.StrictFIFO, kueue.BestEffortFIFO)
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
		WithinClusterQueue:  pick(r, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority),
		ReclaimWithinCohort: pick(r, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny),
	}
	if cq.Spec.Preemption.ReclaimWithinCohort != kueue.PreemptionPolicyNever && r.IntN(2) == 0 {
		cq.Spec.Preemption.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: pick(r, nil, ptr.To[int32](0))}
	}
	cq.Spec.FlavorFungibility = &kueue.FlavorFungibility{
		WhenCanBorrow: pick(r, kueue.MayStopSearch, kueue.TryNextFlavor), WhenCanPreempt: pick(r, kueue.MayStopSearch, kueue.TryNextFlavor),
	}
	if cohort != "" {
		cq.Spec.CohortName = kueue.CohortReference(cohort)
		for i := range cq.Spec.ResourceGroups[0].Flavors {
			cq.Spec.ResourceGroups[0].Flavors[i].Resources[0].BorrowingLimit = pick(r, nil, nil, quantity("0"), quantity("4"))
		}
	}
	return cq
}

// make makes the case's queues, and those who were there before.
func (c *forecastCase) make(ctx context.Context) {
	cohort := ""
	if c.rand.IntN(4) > 0 {
		cohort = c.w.Name(c.name)
	}
	for n := range 1 + c.rand.IntN(3) {
		cq := c.clusterQueue(n, cohort)
		c.queues = append(c.queues, cq)
		c.w.Make(ctx, cq, kit.LocalQueue(c.w.Namespace, fmt.Sprintf("%s-%d", c.name, n), cq.Name))
	}
	for n := range 2 + c.rand.IntN(4) {
		load := c.load(n)
		c.loads = append(c.loads, load)
		Expect(c.w.Create(ctx, load)).To(Succeed())
	}
	c.job = kit.TrainJob(c.w.Namespace, c.name).Queue(c.anyQueue()).Priority(c.w.Name(pick(c.rand, "low", "middle", "high", "high"))).
		Nodes(1 + int32(c.rand.IntN(3))).GPUs(pick(c.rand, "1", "2", "2", "4"))
}

func (c *forecastCase) anyQueue() string {
	return fmt.Sprintf("%s-%d", c.name, c.rand.IntN(len(c.queues)))
}

// load is a Workload without a job: it has nothing to stop, and nothing to start.
func (c *forecastCase) load(n int) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: c.w.Namespace, Name: fmt.Sprintf("%s-load-%d", c.name, n)}}
	wl.Spec.QueueName = kueue.LocalQueueName(c.anyQueue())
	wl.Spec.Priority = ptr.To(pick(c.rand, int32(-10), 0, 10))
	wl.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1 + int32(c.rand.IntN(3)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Tolerations:   []corev1.Toleration{{Key: string(kit.GPU), Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "main", Image: "busybox", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{kit.GPU: *quantity(pick(c.rand, "1", "2", "4"))}, Limits: nil,
		}}},
	}}}}
	return wl
}

// stop stops the queue of the job, in some cases: with those in it, or before them.
func (c *forecastCase) stop(ctx context.Context) {
	if c.rand.IntN(10) > 0 {
		return
	}
	c.stopped = true
	queue := world.Found(ctx, Default, c.w, &kueue.LocalQueue{}, client.ObjectKey{Namespace: c.w.Namespace, Name: c.job.Labels[kit.QueueLabel]})
	var obj client.Object = queue
	patch := `{"spec":{"stopPolicy":"Hold"}}`
	if c.rand.IntN(2) == 0 {
		obj = &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: string(queue.Spec.ClusterQueue)}}
	}
	Expect(c.w.Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// forecast reads what was said of the job.
func (c *forecastCase) forecast(e *explain.Explanation) fate {
	f := fate{starts: e.State.Reason == "Fits", looked: true}
	_, f.flavors, _ = strings.Cut(e.State.Message, "on flavor ")
	var victims []string
	for _, p := range e.Preempts {
		victims = append(victims, strings.TrimPrefix(p.Job, c.w.Namespace+"/"))
	}
	slices.Sort(victims)
	f.victims = strings.Join(victims, " ")
	switch e.State.Reason {
	case "Fits":
	case "BehindOthers", "LocalQueueStopped", "ClusterQueueStopped":
		f = fate{}
	default:
		f.flavors = ""
	}
	return f
}

// outcome reads what came of it.
func (c *forecastCase) outcome(ctx context.Context) fate {
	wl := c.w.Workload(ctx, c.name)
	Expect(wl).NotTo(BeNil())
	var f fate
	var victims []string
	for _, load := range c.loads {
		var now kueue.Workload
		if c.w.Get(ctx, client.ObjectKeyFromObject(load), &now) == nil && apimeta.IsStatusConditionTrue(now.Status.Conditions, kueue.WorkloadPreempted) {
			victims = append(victims, now.Name)
		}
	}
	slices.Sort(victims)
	f.victims = strings.Join(victims, " ")
	reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
	f.looked = reserved != nil && !c.stopped
	if reserved != nil && reserved.Status == metav1.ConditionTrue {
		f.starts, f.flavors = true, string(wl.Status.Admission.PodSetAssignments[0].Flavors[kit.GPU])
	}
	return f
}

// String is the case as one may build it again.
func (c *forecastCase) String() string {
	var lines []string
	for _, cq := range c.queues {
		data, _ := json.Marshal(cq.Spec)
		lines = append(lines, fmt.Sprintf("  ClusterQueue %s %s", cq.Name, data))
	}
	for _, wl := range c.loads {
		var now kueue.Workload
		_ = c.w.Get(context.Background(), client.ObjectKeyFromObject(wl), &now)
		reserved := apimeta.FindStatusCondition(now.Status.Conditions, kueue.WorkloadQuotaReserved)
		requests := wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[kit.GPU]
		lines = append(lines, fmt.Sprintf("  %s in %s priority %d: %d x %s GPUs, %+v", wl.Name, wl.Spec.QueueName, *wl.Spec.Priority, wl.Spec.PodSets[0].Count, requests.String(), reserved))
	}
	return strings.Join(lines, "\n")
}

// settle waits until Kueue has decided about all Workloads of the spec: none changes any
// more. With release the evicted go, as their jobs would have them do.
func (w *site) settle(ctx context.Context, release bool) {
	const quiet = 3 * time.Second
	var before string
	var since time.Time
	Eventually(ctx, func(g Gomega) {
		list := world.All(ctx, g, w, &kueue.WorkloadList{}, client.InNamespace(w.Namespace))
		var versions []string
		for i := range list.Items {
			wl := &list.Items[i]
			if release && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted) && wl.DeletionTimestamp == nil {
				g.Expect(client.IgnoreNotFound(w.Delete(ctx, wl))).To(Succeed())
			}
			versions = append(versions, wl.Name+"/"+wl.ResourceVersion)
		}
		if now := strings.Join(versions, " "); now != before {
			before, since = now, time.Now()
		}
		g.Expect(time.Since(since)).To(BeNumerically(">", quiet), "Workloads still change")
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}

var _ = Describe("a forecast of kubectl trainjob explain", func() {
	It("comes true", func(ctx context.Context) {
		w := newWorld(ctx)
		w.Make(ctx, w.Flavor("h100", onH100), w.Flavor("a100", onA100),
			kit.Priority(w.Name("low"), -10), kit.Priority(w.Name("middle"), 0), kit.Priority(w.Name("high"), 10))
		DeferCleanup(func(ctx context.Context) {
			Expect(w.DeleteAllOf(ctx, &kueue.Workload{}, client.InNamespace(w.Namespace))).To(Succeed())
		})
		var cases []*forecastCase
		for n := range forecasts {
			c := &forecastCase{name: fmt.Sprintf("case-%d", n), rand: rand.New(rand.NewPCG(15, uint64(n))), w: w}
			c.make(ctx)
			cases = append(cases, c)
		}
		w.settle(ctx, true)
		var manifests []string
		for _, c := range cases {
			c.stop(ctx)
			data := must(yaml.Marshal(c.job.Obj()))
			manifests = append(manifests, trainJobHead+string(data))
		}
		w.settle(ctx, true)

		stdout, stderr, code := pluginReading(ctx, strings.Join(manifests, "\n---\n"), "explain", "-f", "-", "-o", "json")
		Expect(code).To(BeZero(), stderr)
		var told []explain.Explanation
		Expect(json.Unmarshal([]byte(stdout), &told)).To(Succeed())
		Expect(told).To(HaveLen(forecasts))
		for _, c := range cases {
			w.Make(ctx, c.job.Obj())
		}
		Eventually(ctx, func(g Gomega) {
			for _, c := range cases {
				g.Expect(w.Workload(ctx, c.name)).NotTo(BeNil(), c.name)
			}
		}).Should(Succeed())
		w.settle(ctx, false)

		agreed, seen := 0, map[string]int{}
		for n, c := range cases {
			want, got := c.forecast(&told[n]), c.outcome(ctx)
			if want == got {
				agreed++
				kind, _, _ := strings.Cut(got.String(), " ")
				seen[kind]++
				continue
			}
			GinkgoWriter.Printf("%s in %s: forecast that it %s, but it %s.\n  said: %s\n%s\n", c.name, c.job.Labels[kit.QueueLabel], want, got, told[n].State.Message, c)
		}
		AddReportEntry("forecasts that came true", fmt.Sprintf("%d of %d: %v", agreed, forecasts, seen), ReportEntryVisibilityAlways)
		Expect(float64(agreed)/forecasts).To(BeNumerically(">=", agreeing), "the share of forecasts that came true")
		for _, kind := range []string{"starts", "preempts", "waits", "is"} {
			Expect(seen).To(HaveKey(kind), "no case of this kind: choose another seed")
		}
	}, SpecTimeout(10*time.Minute))
})
