// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// readyTimeout is how long Kueue waits for pods in these specs: longer than a start takes on a busy machine.
const readyTimeout = 25 * time.Second

// These specs change Kueue's own configuration and nothing of ours, which only a local control plane lets them do.
var _ = Describe("Kueue's configuration", Label("control", "external"), Serial, Ordered, ContinueOnFailure, func() {
	var w *site

	BeforeEach(func(ctx context.Context) { w = newPools(ctx, "16", "0") })

	It("holds for the manager as soon as it changes", core, func(ctx context.Context) {
		suspended := func() (bool, error) {
			job := kit.TrainJob(w.Namespace, "probe").Obj()
			err := w.Create(ctx, job, client.DryRunAll)
			return job.Spec.Suspend != nil && *job.Spec.Suspend, err
		}
		Expect(suspended()).To(BeFalse(), "a TrainJob without a queue runs")
		restore := configureKueue(ctx, map[string]any{
			"manageJobsWithoutQueueName":   true,
			"managedJobsNamespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: w.Namespace}},
		})
		Eventually(ctx, suspended).Should(BeTrue(), "it waits for a queue")
		stray := kit.TrainJob(w.Namespace, "stray").Obj()
		w.Make(ctx, stray)
		wl := w.EventuallyWorkload(ctx, stray.Name)
		restore(ctx)
		Eventually(ctx, suspended).Should(BeFalse())
		w.EventuallyGone(ctx, wl)
		resume := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`))
		Eventually(ctx, func(ctx context.Context) error { return w.Patch(ctx, stray, resume) }).Should(Succeed(), "the gate is removed before")
		w.EventuallyRuns(ctx, stray.Name, 1, nil)
	}, SpecTimeout(specTimeout))

	Describe("waits for pods", Ordered, func() {
		BeforeAll(func(ctx context.Context) {
			restartKueueWith(ctx, map[string]any{"waitForPodsReady": map[string]any{
				"timeout": readyTimeout.String(), "recoveryTimeout": readyTimeout.String(),
				"requeuingStrategy": map[string]any{"backoffBaseSeconds": 1, "backoffMaxSeconds": 2, "backoffLimitCount": 1},
			}}, "kueue")
		})

		It("a job whose pods are ready runs on, and the metrics tell how long that took", core, long, func(ctx context.Context) {
			before := w.errorLines()
			pods := w.MakeRunning(ctx, w.Job("ready").GPUs("8"), 1, onH100)
			w.eventuallyReady(ctx, "ready", kueue.WorkloadStarted)
			// They count once the condition is written.
			Eventually(ctx, func() string { return fetch(ctx, "metrics", "/metrics") }).Should(And(
				MatchRegexp(`\nkueue_ready_wait_time_seconds_count{cluster_queue="%s",[^}]*} 1\n`, w.Name("gpus")),
				MatchRegexp(`\nkueue_admitted_until_ready_wait_time_seconds_count{cluster_queue="%s",[^}]*} 1\n`, w.Name("gpus")),
				MatchRegexp(`\nkueue_local_queue_ready_wait_time_seconds_count{name="queue",namespace="%s",[^}]*} 1\n`, w.Namespace),
			))
			w.consistentlyAdmitted(ctx, "ready")
			Expect(world.UIDs(w.Pods(ctx, "ready"))).To(Equal(world.UIDs(pods)))
			Expect(w.errorLines()).To(Equal(before))
		}, SpecTimeout(specTimeout))

		It("a job whose download takes longer runs on", core, long, func(ctx context.Context) {
			w.MakeNeeds(ctx, "torchtune-qwen2.5-1.5b")
			w.MakeRunning(ctx, w.Job("tune").Runtime("torchtune-qwen2.5-1.5b").GPUs("2").Initializers(), 2, nil)
			w.consistentlyAdmitted(ctx, "tune")
			w.Finish(ctx, "tune", "succeeded")
			Eventually(ctx, func() []corev1.Pod { return world.OfReplicatedJob(w.Pods(ctx, "tune"), "node") }).
				Should(ConsistOf(HaveField("Status.Phase", corev1.PodRunning)))
			w.eventuallyReady(ctx, "tune", kueue.WorkloadRecovered)
		}, SpecTimeout(specTimeout))

		It("a job whose pods do not get ready is evicted, queues again, and is deactivated at the limit", core, long, func(ctx context.Context) {
			w.closeNodes(ctx)
			w.Make(ctx, w.Job("stuck").GPUs("8").Obj())
			w.eventuallyEvicted(ctx, "stuck", kueue.WorkloadEvictedByPodsReadyTimeout)
			w.EventuallyWorkload(ctx, "stuck", HaveField("Status.RequeueState.Count", HaveValue(BeEquivalentTo(1))), world.True(kueue.WorkloadAdmitted))
			w.eventuallyEvicted(ctx, "stuck", kueue.WorkloadDeactivated+"DueToRequeuingLimitExceeded")
			Eventually(ctx, func() *bool { return w.Workload(ctx, "stuck").Spec.Active }).Should(HaveValue(BeFalse()), "when its pods are gone")
			w.EventuallyAtTheGate(ctx, "stuck")
			w.EventuallyPods(ctx, "stuck", 0)
		}, SpecTimeout(specTimeout))

		It("a job that loses a pod and does not get another is evicted", core, long, func(ctx context.Context) {
			pods := w.MakeRunning(ctx, w.Job("loses").GPUs("8"), 1, onH100)
			w.eventuallyReady(ctx, "loses", kueue.WorkloadStarted)
			w.closeNodes(ctx)
			Expect(w.Delete(ctx, &pods[0])).To(Succeed())
			w.EventuallyWorkload(ctx, "loses", world.Condition(kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForRecovery))
			w.eventuallyEvicted(ctx, "loses", kueue.WorkloadEvictedByPodsReadyTimeout)
			w.eventuallyAwaitsStart(ctx, "loses")
		}, SpecTimeout(specTimeout))
	})
})

var _ = It("Where Kueue admits nothing before all pods are ready the last pods of a TrainJob that stops hold up nobody", Label("control", "external"), Serial, core, long, func(ctx context.Context) {
	restartKueueWith(ctx, map[string]any{"waitForPodsReady": map[string]any{"timeout": "5m", "recoveryTimeout": "5m", "blockAdmission": true}}, "kueue")
	w := newPools(ctx, "16", "0")
	pods := w.MakeRunning(ctx, w.Job("stops").GPUs("8").EndsAfter("30s"), 1, onH100)
	w.eventuallyReady(ctx, "stops", kueue.WorkloadStarted)
	w.PatchJSON(ctx, w.Workload(ctx, "stops"), `{"spec":{"active":false}}`)
	w.eventuallyEvicted(ctx, "stops", kueue.WorkloadDeactivated)
	w.MakeRunning(ctx, w.Job("next").GPUs("8"), 1, onH100)
	Expect(world.UIDs(w.Pods(ctx, "stops"))).To(Equal(world.UIDs(pods)), "its pod is there still")
	w.eventuallyAwaitsStart(ctx, "stops")
	Eventually(ctx, func() *bool { return w.Workload(ctx, "stops").Spec.Active }).Should(HaveValue(BeFalse()))
}, SpecTimeout(specTimeout))

// eventuallyAwaitsStart waits until the next admission of a TrainJob is a start.
func (w *site) eventuallyAwaitsStart(ctx context.Context, job string) {
	w.EventuallyWorkload(ctx, job, world.Condition(kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart))
}

func (w *site) eventuallyReady(ctx context.Context, job, reason string) {
	w.eventuallyTrue(ctx, job, kueue.WorkloadPodsReady, reason)
}

// consistentlyAdmitted watches that Kueue leaves a TrainJob alone for longer than it waits.
func (w *site) consistentlyAdmitted(ctx context.Context, job string) {
	Consistently(ctx, w.Workload).WithArguments(ctx, job).WithTimeout(readyTimeout + 5*time.Second).WithPolling(time.Second).Should(And(
		world.True(kueue.WorkloadAdmitted), HaveField("Status.Conditions", Not(ContainElement(HaveField("Type", kueue.WorkloadEvicted))))))
}

func (w *site) eventuallyEvicted(ctx context.Context, job, reason string) {
	w.eventuallyTrue(ctx, job, kueue.WorkloadEvicted, reason)
}

func (w *site) eventuallyTrue(ctx context.Context, job, name, reason string) {
	w.EventuallyWorkload(ctx, job, world.Condition(name, metav1.ConditionTrue, reason))
}

// closeNodes keeps new pods off the H100 nodes until the spec is over.
func (w *site) closeNodes(ctx context.Context) {
	nodes := world.All(ctx, Default, w, &corev1.NodeList{}, client.MatchingLabels(onH100))
	Expect(nodes.Items).NotTo(BeEmpty())
	for _, node := range nodes.Items {
		w.taint(ctx, node.Name, corev1.Taint{Key: "example.com/closed", Effect: corev1.TaintEffectNoSchedule})
	}
}

// configureKueue sets fields of Kueue's configuration, which it reads at its start, until restore or the spec's end.
func configureKueue(ctx context.Context, set map[string]any) (restore func(context.Context)) {
	back := must(cluster.ConfigureKueue(ctx, set))
	restore = func(ctx context.Context) { Expect(back(ctx)).To(Succeed()) }
	DeferCleanup(restore)
	return restore
}

// restartKueueWith sets fields of Kueue's configuration that hold from the next start of these
// components, and starts them again, until the end of the group of specs.
func restartKueueWith(ctx context.Context, set map[string]any, components ...string) {
	restore, err := cluster.RestartKueueWith(ctx, GinkgoWriter, set, components...)
	DeferCleanup(restore)
	Expect(err).NotTo(HaveOccurred())
}

const (
	jobFramework      = "batch/job"
	jobSetFramework   = "jobset.x-k8s.io/jobset"
	externalTrainJobs = "TrainJob.v1alpha1.trainer.kubeflow.org"
)

// The table of docs/install.md: which set-up of Kueue is quiet while TrainJobs run, and which is
// safe, where Kueue gives a queue to all that name none. These specs change Kueue's
// configuration and read its log, which only a local control plane lets them do.
var _ = Describe("Kueue's errors about the owners of running JobSets and Jobs", Label("control", "external"), Serial, Ordered, ContinueOnFailure, func() {
	BeforeAll(func() {
		// Each spec puts the configuration back; the last one's is what Kueue runs with.
		DeferCleanup(func(ctx context.Context) { control(ctx, "restart", "kueue") })
	})

	DescribeTable("come from", func(ctx context.Context, without []string, loggers ...string) {
		w := newWorld(ctx)
		w.kueueWithout(ctx, without...)
		log := must(logs.Open(logOf("kueue")))
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		w.Succeed(ctx, "runs")
		Expect(w.workloadOwners(ctx)).To(ConsistOf("TrainJob"))
		Expect(ownerErrors(log)).To(ConsistOf(loggers))
	},
		Entry("both, as Kueue is shipped", long, SpecTimeout(specTimeout), nil, "job", "jobset"),
		Entry("Jobs alone, where JobSets are not among the frameworks", long, SpecTimeout(specTimeout), []string{jobSetFramework}, "job"),
		Entry("nothing, where neither is", long, SpecTimeout(specTimeout), []string{jobSetFramework, jobFramework}),
	)

	It("are not the price of a TrainJob in neither list: its JobSet is managed a second time", long, func(ctx context.Context) {
		w := newWorld(ctx)
		w.runsOutside("Kueue and Trainer suspend and resume the JobSet in turn")
		w.kueueWithout(ctx, externalTrainJobs)
		log := must(logs.Open(logOf("kueue")))
		w.Make(ctx, w.Job("twice").GPUs("8").Obj())
		Eventually(ctx, func() []string { return w.workloadOwners(ctx) }).Should(ConsistOf("JobSet", "TrainJob"))
		Expect(ownerErrors(log)).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})

// kueueWithout restarts Kueue with JobSets among its integrations but for what is left out, and so that it gives all
// that is made in the spec's namespace a queue; and makes the queues.
func (w *site) kueueWithout(ctx context.Context, left ...string) {
	config := world.Found(ctx, Default, w, &corev1.ConfigMap{}, client.ObjectKey{Namespace: "kueue-system", Name: "kueue-manager-config"})
	var parsed struct {
		Integrations map[string][]string `json:"integrations"`
	}
	Expect(yaml.Unmarshal([]byte(config.Data["controller_manager_config.yaml"]), &parsed)).To(Succeed())
	integrations := parsed.Integrations
	integrations["frameworks"] = append(integrations["frameworks"], jobSetFramework)
	for list, names := range integrations {
		integrations[list] = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(left, name) })
	}
	configureKueue(ctx, map[string]any{
		"integrations":                 integrations,
		"manageJobsWithoutQueueName":   true,
		"managedJobsNamespaceSelector": metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
	})
	control(ctx, "restart", "kueue")
	w.Pools(ctx, "16", "0")
	w.Make(ctx, kit.LocalQueue(w.Namespace, "default", w.Name("gpus")))
}

// workloadOwners returns the kinds that the Workloads of the spec belong to.
func (w *site) workloadOwners(ctx context.Context) []string {
	list := world.All(ctx, Default, w, &kueue.WorkloadList{}, client.InNamespace(w.Namespace))
	return expect.Each(list.Items, func(wl kueue.Workload) string { return metav1.GetControllerOf(&wl).Kind })
}

// ownerErrors names the controllers of Kueue that missed the index of TrainJobs.
func ownerErrors(log *logs.Log) []string {
	var loggers []string
	Expect(log.Lines(func(line []byte) error {
		if !bytes.Contains(line, []byte(".metadata.ownerReferences[trainer.kubeflow.org.TrainJob] does not exist")) {
			return nil
		}
		var entry struct{ Level, Logger string }
		err := json.Unmarshal(line, &entry)
		if entry.Level == "error" {
			loggers = append(loggers, entry.Logger)
		}
		return err
	})).To(Succeed())
	return distinct(loggers)
}
