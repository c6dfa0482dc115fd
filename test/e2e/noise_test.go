// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

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
