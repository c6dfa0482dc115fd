// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// attempt is a request of a user who changes the patches of a TrainJob without a queue.
type attempt struct {
	// before is what the TrainJob has; without it the TrainJob is new.
	before list
	// now is what it shall have.
	now list
	// runs: the TrainJob is not suspended and has active pods before the request.
	runs bool
	// willRun: it is not suspended after the request.
	willRun bool
}

// list returns spec.podTemplateOverrides or spec.runtimePatches, as YAML, for the
// generation of Trainer that the cluster runs.
type list func(served string) string

// entries are of one generation, which the entry's label has to say.
func entries(list string) list { return func(string) string { return list } }

// entry is a runtime patch of the replicated job node.
func entry(manager, podSpec string) string {
	return `[{manager: ` + manager + `, ` + ofNode(podSpec) + `}]`
}

// ofNode is what a runtime patch of the replicated job node says.
func ofNode(podSpec string) string {
	return `trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: ` + podSpec + `}}}}]}}}`
}

// inPods patches the pods of a replicated job, in any generation.
func inPods(job, podSpec string) list {
	return func(served string) string {
		if served == world.Trainer21 {
			return `[{targetJobs: [{name: ` + job + `}], spec: ` + podSpec + `}]`
		}
		return strings.Replace(entry("example.com/user", podSpec), "name: node,", "name: "+job+",", 1)
	}
}

// patching is a new TrainJob that patches the pods of a replicated job.
func patching(job, podSpec string) attempt { return attempt{now: inPods(job, podSpec)} }

// ruling is what both the rules and Trainer have to say.
type ruling struct {
	// refused by both, or taken by both.
	refused bool
	// field is how the field of an error ends, or that of a warning where it is taken, as
	// runtime patches have it. Empty: the rules have nothing to say.
	field string
	// words are in Trainer's refusal.
	words string
}

func taken() ruling                         { return ruling{} }
func takenWithWarning(field string) ruling  { return ruling{field: field} }
func refusedFor(field, words string) ruling { return ruling{refused: true, field: field, words: words} }

// many is a list of items that differ in a number.
func many(count int, item string) string {
	items := make([]string, count)
	for i := range items {
		items[i] = fmt.Sprintf(item, i)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// ask returns the verdict of the rules on an attempt, and the refusal of the API server,
// which has Trainer's CRD and asks Trainer's webhook, or nil where it takes it.
func (w *site) ask(ctx context.Context, a attempt) (rules.Verdict, error) {
	served, runtime := trainerOf(ctx), w.ruledRuntime(ctx)
	w.Make(ctx, runtime)
	now := w.ruled(runtime.Name, served, a.now, !a.willRun)
	if a.before == nil {
		verdict := rules.Create(generationOf(served), &runtime.Spec, ruledBy(now))
		return verdict, refusal(strict().Create(ctx, now, client.DryRunAll))
	}
	before := w.ruled(runtime.Name, served, a.before, !a.runs)
	w.Make(ctx, before)
	var active []string
	if a.runs {
		active = w.eventuallyActive(ctx, before.GetName(), len(runtime.Spec.Template.Spec.ReplicatedJobs))
	}
	verdict := rules.Update(generationOf(served), &runtime.Spec, ruledBy(before), ruledBy(now), active)
	return verdict, refusal(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now.SetResourceVersion(get(ctx, w, newTrainJob(), now.GetName()).GetResourceVersion())
		return strict().Update(ctx, now, client.DryRunAll)
	}))
}

// ruledRuntime has a replicated job of each name that Trainer knows; that of node has
// one more container, an init container and a pull secret.
func (w *site) ruledRuntime(ctx context.Context) *trainer.ClusterTrainingRuntime {
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	jobs := &runtime.Spec.Template.Spec.ReplicatedJobs
	for _, name := range []string{"dataset-initializer", "model-initializer"} {
		job := *(*jobs)[0].DeepCopy()
		job.Name, job.Template.Labels = name, nil
		job.Template.Spec.Template.Spec.Containers[0].Name = name
		*jobs = append(*jobs, job)
	}
	pod := &(*jobs)[0].Template.Spec.Template.Spec
	pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: "fetch", Image: "busybox"})
	pod.Containers = append(pod.Containers, corev1.Container{Name: "side", Image: "busybox"})
	pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	return runtime
}

// ruled is a TrainJob without a queue: nobody but Trainer has a say in it.
func (w *site) ruled(runtime, served string, patches list, suspended bool) *unstructured.Unstructured {
	var items []any
	Expect(yaml.Unmarshal([]byte(patches(served)), &items)).To(Succeed())
	job := newTrainJob()
	job.SetNamespace(w.Namespace)
	job.SetName("ruled")
	job.Object["spec"] = map[string]any{
		"runtimeRef": map[string]any{"name": runtime}, "suspend": suspended, fieldOf[served]: items,
	}
	return job
}

// ruledBy is what the rules look at in a TrainJob.
func ruledBy(job *unstructured.Unstructured) rules.TrainJob {
	data, err := job.MarshalJSON()
	Expect(err).NotTo(HaveOccurred())
	var read trainjob.TrainJob
	Expect(json.Unmarshal(data, &read)).To(Succeed())
	return rules.TrainJob{Suspended: read.Suspended(), Overrides: read.Spec.PodTemplateOverrides, Patches: read.Spec.RuntimePatches}
}

func generationOf(served string) trainjob.TrainerVersion {
	all := []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22, trainjob.Trainer23}
	i := slices.IndexFunc(all, func(g trainjob.TrainerVersion) bool { return g.String() == served })
	Expect(i).NotTo(Equal(-1), "Trainer %s", served)
	return all[i]
}

// strict refuses fields that a CRD does not have, as kubectl does.
func strict() client.Client {
	return client.WithFieldValidation(cluster.Client, metav1.FieldValidationStrict)
}

// refusal makes sure that an answer is a verdict, and not a sign of trouble. A panic in
// Trainer's webhook is one as well.
func refusal(answer error) error {
	panics := apierrors.IsInternalError(answer) && strings.Contains(answer.Error(), "panic")
	if answer != nil && !apierrors.IsInvalid(answer) && !apierrors.IsForbidden(answer) && !apierrors.IsBadRequest(answer) && !panics {
		Expect(answer).NotTo(HaveOccurred())
	}
	return answer
}

// eventuallyActive waits until n replicated jobs of a TrainJob have active pods, and
// names them.
func (w *site) eventuallyActive(ctx context.Context, job string, n int) []string {
	var active []string
	Eventually(ctx, func(g Gomega) {
		var js jobsetapi.JobSet
		g.Expect(w.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: job}, &js)).To(Succeed())
		active = nil
		for _, status := range js.Status.ReplicatedJobsStatus {
			if status.Active > 0 {
				active = append(active, status.Name)
			}
		}
		g.Expect(active).To(HaveLen(n))
	}).Should(Succeed())
	return active
}
