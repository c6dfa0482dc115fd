// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// sdkTrainJob is what kubeflow.trainer's TrainerClient sends for the Python of
// docs/use.md#from-python: a CustomTrainerContainer with options Name, Labels, Annotations,
// TrainerCommand, TrainerArgs and RuntimePatch.
const sdkTrainJob = "docs/samples/sdk-trainjob.json"

var _ = Describe("A TrainJob of the Python SDK", since(world.Trainer22), func() {
	It("is admitted, evicted, resumed and finished, and keeps every byte that the SDK wrote", func(ctx context.Context) {
		manifest := must(os.ReadFile(filepath.Join(specs.Root(), sdkTrainJob)))
		w := newPools(ctx, "16", "16")
		w.Make(ctx, kit.LocalQueue(w.Namespace, "gpus", w.Name("gpus")), kit.Priority(w.Name("urgent"), 1000))
		w.MakeYAML(ctx, string(manifest))

		By("waiting for its pods on the first flavor")
		sent, stored := partsOf(manifest), w.sdkParts(ctx, "finetune-bert")
		Expect(stored.withoutTime()).To(MatchJSON(sent.Entry))
		// Trainer's webhook writes amounts that are plain numbers again.
		Expect(trainjob.SemanticallyEqual([]byte(stored.Trainer), []byte(sent.Trainer))).To(BeTrue(), stored.Trainer)
		sdkPlaced(w.EventuallyRuns(ctx, "finetune-bert", 2, onH100), onH100)
		Expect(w.sdkParts(ctx, "finetune-bert")).To(Equal(stored))

		By("evicting it from there")
		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).Nodes(2).GPUs("8"), 2, onH100)
		sdkPlaced(w.EventuallyRuns(ctx, "finetune-bert", 2, onA100), onA100)
		Expect(w.sdkParts(ctx, "finetune-bert")).To(Equal(stored))

		By("stopping it, which brings the gate back")
		w.Activate(ctx, "finetune-bert", false)
		w.EventuallyAtTheGate(ctx, "finetune-bert")
		Expect(w.sdkParts(ctx, "finetune-bert")).To(Equal(stored))
		w.Activate(ctx, "finetune-bert", true)
		sdkPlaced(w.EventuallyRuns(ctx, "finetune-bert", 2, onA100), onA100)

		By("finishing it")
		w.Succeed(ctx, "finetune-bert")
		Expect(w.sdkParts(ctx, "finetune-bert")).To(Equal(stored))
	}, SpecTimeout(specTimeout))
})

// sdkPlaced compares pods with what the SDK's options and the admission to a flavor say.
func sdkPlaced(pods []corev1.Pod, flavor map[string]string) {
	team := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpEqual, Value: "research", Effect: corev1.TaintEffectNoSchedule}
	selector := map[string]string{corev1.LabelOSStable: "linux", kit.ProductLabel: flavor[kit.ProductLabel]}
	for _, pod := range pods {
		Expect(pod.Spec.NodeSelector).To(Equal(selector))
		Expect(world.Tolerations(&pod)).To(ConsistOf(team, gpuToleration))
		Expect(pod.Spec.SchedulingGates).To(BeEmpty())
		Expect(pod.Labels).To(HaveKeyWithValue("example.com/stage", "training"))
		Expect(pod.Spec.ImagePullSecrets).To(ConsistOf(HaveField("Name", "registry")))
		node := pod.Spec.Containers[0]
		Expect(node.Command).To(Equal([]string{"torchrun"}))
		Expect(node.Args).To(Equal([]string{"finetune.py", "--lr=0.00002"}))
		Expect(node.VolumeMounts).To(ContainElement(HaveField("MountPath", "/scratch")))
	}
}

// sdkParts are the bytes of what the SDK writes into a TrainJob.
type sdkParts struct {
	Labels, Annotations map[string]string
	Trainer, Entry      string
}

// sdkParts reads them as the API server sends them.
func (w *site) sdkParts(ctx context.Context, job string) sdkParts {
	clientset := must(kubernetes.NewForConfig(cluster.Config))
	data, err := clientset.RESTClient().Get().AbsPath("apis", trainer.GroupVersion.Group, trainer.GroupVersion.Version).
		Namespace(w.Namespace).Resource("trainjobs").Name(job).DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	return partsOf(data)
}

func partsOf(job []byte) sdkParts {
	var raw struct {
		Metadata struct{ Labels, Annotations map[string]string }
		Spec     struct {
			Trainer        json.RawMessage
			RuntimePatches []json.RawMessage
		}
	}
	Expect(json.Unmarshal(job, &raw)).To(Succeed())
	parts := sdkParts{Labels: raw.Metadata.Labels, Annotations: raw.Metadata.Annotations, Trainer: string(raw.Spec.Trainer)}
	for _, entry := range raw.Spec.RuntimePatches {
		var owner struct{ Manager string }
		Expect(json.Unmarshal(entry, &owner)).To(Succeed())
		Expect(owner.Manager).To(BeElementOf(convert.DefaultOwner, patch.Manager))
		if owner.Manager == convert.DefaultOwner {
			parts.Entry += string(entry)
		}
	}
	return parts
}

// withoutTime is the entry without the stamp that Trainer's webhook puts on it.
func (p sdkParts) withoutTime() string {
	var entry map[string]any
	Expect(json.Unmarshal([]byte(p.Entry), &entry)).To(Succeed())
	delete(entry, "time")
	text := must(jsonOf(entry))
	return text
}
