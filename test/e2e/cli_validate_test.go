// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("kubectl trainjob validate", func() {
	DescribeTable("says what the API server says", core, func(ctx context.Context, metadata, spec string, valid bool) {
		w := newWorld(ctx)
		manifest := fmt.Sprintf(`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"namespace":%q,%s},"spec":{%s}}`, w.Namespace, metadata, spec)
		_, _, server := runBinary(ctx, manifest, "kubectl", "create", "--dry-run=server", "--validate=strict", "-f", "-")
		Expect(valid).To(Equal(server == 0), "the API server")
		stdout, _, code := runBinary(ctx, manifest, "kubectl-trainjob", "validate", "-f", "-", "--from-cluster")
		Expect(code).To(Equal(verdicts[valid]), "the plugin: %s", stdout)
	},
		Entry("a TrainJob with a queue", queued, torch, true),
		Entry("a queue that is no name", `"name":"job","labels":{"kueue.x-k8s.io/queue-name":"Not_A_Name"}`, torch, false),
		Entry("a label that is none", `"name":"job","labels":{"foo bar":"a"}`, torch, false),
		Entry("an amount that is none", queued, torch+`,"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":"x"}}}`, false),
		Entry("a name that is none", `"name":"1job"`, torch, false),
		Entry("a runtime that is missing", queued, `"runtimeRef":{"name":"no-such-runtime"}`, false),
		Entry("a field that is none", queued, torch+`,"replicas":3`, false),
		Entry("a variable that Trainer sets", since(world.Trainer22), queued, torch+`,"trainer":{"env":[{"name":"PET_NNODES","value":"3"}]}`, false),
		Entry("an initializer that the runtime does not have", queued, torch+`,"initializer":{"dataset":{"storageUri":"hf://a/b"}}`, false),
	)

	DescribeTable("foresees whether there will be pods", func(ctx context.Context, runtime, metadata, spec string, made bool) {
		w := newWorld(ctx)
		manifest := w.listOf(runtime, fmt.Sprintf(`{"kind":"TrainJob","metadata":{%s},"spec":{%s}}`, cmp.Or(metadata, `"name":"job"`), spec))
		release := must(cluster.Trainer(ctx))
		for _, flags := range [][]string{nil, {"--from-cluster"}} {
			args := append([]string{"validate", "-f", "-", "-n", w.Namespace, "--trainer", release}, flags...)
			stdout, _, code := runBinary(ctx, manifest, "kubectl-trainjob", args...)
			Expect(code).To(Equal(verdicts[made]), "validate %s: %s", flags, stdout)
		}
		if runtime != "" {
			// Trainer's webhook asks its cache whether a TrainJob's runtime is there.
			if _, _, code := runBinary(ctx, w.listOf(runtime), "kubectl", "create", "--validate=strict", "-f", "-"); code == 0 {
				w.eventuallyOwnKnown(ctx)
			}
			manifest = w.listOf("", fmt.Sprintf(`{"kind":"TrainJob","metadata":{%s},"spec":{%s}}`, cmp.Or(metadata, `"name":"job"`), spec))
		}
		_, _, created := runBinary(ctx, manifest, "kubectl", "create", "--validate=strict", "-f", "-")
		switch {
		case made:
			Expect(created).To(BeZero())
			Eventually(ctx, w.Names).WithArguments(ctx, &corev1.PodList{}).Should(HaveLen(1))
		case created == 0:
			Eventually(ctx, w.refusedForGood).WithArguments(ctx).Should(BeTrue())
			Expect(w.Names(ctx, &corev1.PodList{})).To(BeEmpty())
		}
	},
		Entry("the least", "", "", torch, true),
		Entry("whole GPUs, with equal requests", "", "", torch+gpusOf(`"limits":{"nvidia.com/gpu":2},"requests":{"nvidia.com/gpu":2}`), true),
		Entry("a resource without a domain", jobSetTells, "", "", torch+gpusOf(`"limits":{"gpu":1}`), false),
		Entry("a part of a GPU", jobSetTells, "", "", torch+gpusOf(`"limits":{"nvidia.com/gpu":"0.5"}`), false),
		Entry("fewer GPUs requested than the limit", jobSetTells, "", "", torch+gpusOf(`"limits":{"nvidia.com/gpu":2},"requests":{"nvidia.com/gpu":1}`), false),
		Entry("GPUs without a limit", jobSetTells, "", "", torch+gpusOf(`"requests":{"nvidia.com/gpu":1}`), false),
		Entry("no nodes", "", "", torch+`,"trainer":{"numNodes":0}`, false),
		Entry("fewer nodes than none", jobSetTells, "", "", torch+`,"trainer":{"numNodes":-1}`, false),
		Entry("a variable that no pod can have", jobSetTells, "", "", torch+`,"trainer":{"env":[{"name":"A=B"}]}`, false),
		Entry("a variable twice", "", "", torch+`,"trainer":{"env":[{"name":"A"},{"name":"A"}]}`, false),
		Entry("a variable of a field that pods do not have", jobSetTells, "", "", torch+`,"trainer":{"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.foo"}}}]}`, false),
		Entry("a variable of a value and of something else", "", "", torch+`,"trainer":{"env":[{"name":"A","value":"a","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}`, true),
		Entry("no image", jobSetTells, "", "", torch+`,"trainer":{"image":""}`, false),
		Entry("an image with a space, which only pods refuse", "", "", torch+`,"trainer":{"image":" torch"}`, false),
		Entry("a time limit that is none, in a queue", "", `"name":"job","labels":{"kueue.x-k8s.io/queue-name":"queue","kueue.x-k8s.io/max-exec-time-seconds":"abc"}`, torch, false),
		Entry("a name that leaves no room", "", `"name":"a`+strings.Repeat("b", 55)+`"`, torch, false),
		Entry("a name that just leaves room", "", `"name":"a`+strings.Repeat("b", 47)+`"`, torch, true),
		Entry("a mount without a volume", since(world.Trainer22), "", "", torch+patchOf(`"containers":[{"name":"node","volumeMounts":[{"name":"a","mountPath":"/a"}]}]`), false),
		Entry("a mount with its volume", since(world.Trainer22), "", "", torch+patchOf(`"volumes":[{"name":"a","emptyDir":{}}],"containers":[{"name":"node","volumeMounts":[{"name":"a","mountPath":"/a"}]}]`), true),
		Entry("two mounts at a path", since(world.Trainer22), "", "", torch+patchOf(`"volumes":[{"name":"a","emptyDir":{}},{"name":"b","emptyDir":{}}],"containers":[{"name":"node","volumeMounts":[{"name":"a","mountPath":"/a"},{"name":"b","mountPath":"/a"}]}]`), false),
		Entry("a container that the runtime does not have", since(world.Trainer22), "", "", torch+patchOf(`"containers":[{"name":"other","env":[{"name":"A"}]}]`), false),
		Entry("a node selector that no node can have", since(world.Trainer22), "", "", torch+patchOf(`"nodeSelector":{"a":"b c"}`), false),
		Entry("a toleration that contradicts itself", since(world.Trainer22), "", "", torch+patchOf(`"tolerations":[{"key":"a","operator":"Exists","value":"b"}]`), false),
		Entry("a service account that can have no such name", since(world.Trainer22), "", "", torch+patchOf(`"serviceAccountName":"Not_A_Name"`), false),
		Entry("no terms of an affinity", since(world.Trainer22), "", "", torch+patchOf(`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}`), false),
		Entry("a runtime of one's own", runtimeOf("", `"image":"i"`), "", ownRuntime, true),
		Entry("one without an image", jobSetTells, runtimeOf("", `"command":["a"]`), "", ownRuntime, false),
		Entry("one without an image, which the TrainJob brings", runtimeOf("", `"command":["a"]`), "", ownRuntime+`,"trainer":{"image":"i"}`, true),
		Entry("one with a field that there is not", runtimeOf("", `"image":"i","imagePull":"Never"`), "", ownRuntime, false),
		Entry("one with a variable twice", runtimeOf("", `"image":"i","env":[{"name":"A"},{"name":"A"}]`), "", ownRuntime, false),
		Entry("one whose JobSet succeeds with a job that there is not", runtimeOf(`"successPolicy":{"operator":"All","targetReplicatedJobs":["other"]},`, `"image":"i"`), "", ownRuntime, false),
		Entry("one with a subdomain that is none", runtimeOf(`"network":{"subdomain":"Not_One"},`, `"image":"i"`), "", ownRuntime, false),
		Entry("one with a claim that nobody mounts", since(world.Trainer22), runtimeOf(`"volumeClaimPolicies":[{"templates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}],`, `"image":"i"`), "", ownRuntime, false),
	)

	It("does what its page says", core, func(ctx context.Context) {
		user := pageUser(ctx, "jobs")
		for _, block := range docsCommands("docs/plugin.md#validate") {
			shell(ctx, asUser(user, block))
		}
	})
})

// verdicts are the exit codes of validate that its page promises.
var verdicts = map[bool]int{true: 0, false: exit.Findings}

const (
	queued     = `"name":"job","labels":{"kueue.x-k8s.io/queue-name":"queue"}`
	torch      = `"runtimeRef":{"name":"torch-distributed"}`
	ownRuntime = `"runtimeRef":{"kind":"TrainingRuntime","name":"own"}`
)

// runtimeOf is a TrainingRuntime with more in its JobSet, and what its container has.
func runtimeOf(jobSet, container string) string {
	return `{"kind":"TrainingRuntime","metadata":{"name":"own"},"spec":{"mlPolicy":{"numNodes":1,"torch":{}},"template":{"spec":{` + jobSet +
		`"replicatedJobs":[{"name":"node","template":{"metadata":{"labels":{"trainer.kubeflow.org/trainjob-ancestor-step":"trainer"}},"spec":{"template":{"spec":{"containers":[{"name":"node",` +
		container + `}]}}}}}]}}}}`
}

func gpusOf(resources string) string { return `,"trainer":{"resourcesPerNode":{` + resources + `}}` }

// patchOf is an entry that patches the pods of the nodes.
func patchOf(podSpec string) string {
	return `,"runtimePatches":[{"manager":"example.com/me","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"spec":{` +
		podSpec + `}}}}}]}}}}]`
}

// eventuallyOwnKnown waits until Trainer's webhook has heard of the TrainingRuntime "own".
func (w *site) eventuallyOwnKnown(ctx context.Context) {
	probe := kit.TrainJob(w.Namespace, "probe").Runtime("own").Obj()
	probe.Spec.RuntimeRef.Kind = new(trainer.TrainingRuntimeKind)
	Eventually(ctx, func() error { return w.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).
		Should(Or(Succeed(), Not(MatchError(ContainSubstring("must be created before the TrainJob")))))
}

// listOf puts objects of Trainer into a list, in the world's namespace.
func (w *site) listOf(objects ...string) string {
	var items []string
	for _, object := range objects {
		if object != "" {
			object = strings.Replace(object, "{", `{"apiVersion":"trainer.kubeflow.org/v1alpha1",`, 1)
			items = append(items, strings.Replace(object, `"metadata":{`, fmt.Sprintf(`"metadata":{"namespace":%q,`, w.Namespace), 1))
		}
	}
	return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",") + `]}`
}

// refusedForGood reports whether somebody was refused what the world's TrainJob needs, or it has ended without a pod.
func (w *site) refusedForGood(ctx context.Context) bool {
	events := world.All(ctx, Default, w, &corev1.EventList{}, client.InNamespace(w.Namespace))
	jobs := world.All(ctx, Default, w, &trainer.TrainJobList{}, client.InNamespace(w.Namespace))
	refusals := []string{"TrainJobResourcesCreationFailed", "JobCreationFailed", "FailedCreate"}
	return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return slices.Contains(refusals, e.Reason) }) ||
		len(jobs.Items) == 1 && meta.IsStatusConditionTrue(jobs.Items[0].Status.Conditions, trainer.TrainJobComplete)
}
