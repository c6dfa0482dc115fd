// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// scene has a TrainJob "runs", of whose replicated jobs "side" is done, a TrainJob "mine" that runs by a
// runtime of its namespace, a TrainJob "waits" for quota, a TrainJob "goes" that is deleted and stays for
// a finalizer, a TrainJob "stops" whose pod takes its time, a TrainJob "free" without a queue, and a tenant.
type scene struct {
	*site
	// tenant has every right in the namespace that Kubernetes' and Kueue's roles for users give, and makes dry runs.
	tenant client.Client
}

func newScene(ctx context.Context) *scene {
	w := newWorld(ctx)
	s := &scene{site: w, tenant: as("tenant-" + w.Suffix)}
	w.AllowTenant(ctx, "tenant-"+w.Suffix)
	w.Pools(ctx, "8", "0")
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	side := runtime.Spec.Template.Spec.ReplicatedJobs[0].DeepCopy()
	side.Name, side.Template.Labels = "side", nil
	runtime.Spec.Template.Spec.ReplicatedJobs = append(runtime.Spec.Template.Spec.ReplicatedJobs, *side)
	for _, own := range []string{"mine", "kept", "spare"} {
		w.Make(ctx, namespaced(runtime, w.Namespace, own))
	}
	w.Make(ctx, runtime, byOwn(w.Job("mine"), "mine"), w.Job("runs").Runtime(runtime.Name).GPUs("8").Obj(), kit.TrainJob(w.Namespace, "free").Obj())
	w.EventuallyRuns(ctx, "runs", 2, nil)
	w.EventuallyRuns(ctx, "mine", 2, nil)
	w.Finish(ctx, "runs", "succeeded", "side")
	w.MakeGated(ctx, w.Job("waits").GPUs("8"), 1)
	w.Make(ctx, byOwn(w.Job("later").GPUs("8"), "kept"))
	w.EventuallyChildJobs(ctx, "free", 1)
	Eventually(ctx, func() int32 { return get(ctx, w, &batchv1.Job{}, "runs-side-0").Status.Succeeded }).Should(BeEquivalentTo(1))
	w.EventuallyWorkload(ctx, "waits")
	s.makeStopping(ctx)
	s.makeGoing(ctx)
	s.makeStarting(ctx)
	s.makeBystanders(ctx)
	return s
}

// namespaced is a namespace's own runtime, like one of all.
func namespaced(like *trainer.ClusterTrainingRuntime, namespace, name string) *trainer.TrainingRuntime {
	return &trainer.TrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: like.Labels}, Spec: *like.Spec.DeepCopy(),
	}
}

// byOwn has a job run by a runtime of its namespace.
func byOwn(job *kit.TrainJobBuilder, runtime string) *trainer.TrainJob {
	job.Spec.RuntimeRef = trainer.RuntimeRef{APIGroup: new(trainer.GroupVersion.Group), Kind: new("TrainingRuntime"), Name: runtime}
	return job.Obj()
}

// makeStopping makes what is evicted, and has a pod for as long as all specs of the scene may take.
func (s *scene) makeStopping(ctx context.Context) {
	patient := s.CopyRuntime(ctx, "torch-distributed", kit.OfGracePeriod(3600))
	patient.Name = s.Name("patient")
	s.MakeRunning(ctx, s.Job("stops").Runtime(patient.Name).EndsAfter("1h"), 1, nil, patient)
	s.PatchJSON(ctx, s.EventuallyWorkload(ctx, "stops"), `{"spec":{"active":false}}`)
	s.EventuallyIs(ctx, &trainer.TrainJob{}, "stops", HaveField("Spec.Suspend", HaveValue(BeTrue())))
}

// makeStarting makes what runs and has no pod yet, for nobody looks after it.
func (s *scene) makeStarting(ctx context.Context) {
	const nobody = "example.com/nobody"
	js := s.jobSet("starts")
	js.OwnerReferences = get(ctx, s.site, &jobsetapi.JobSet{}, "runs").OwnerReferences
	js.Spec.ManagedBy, js.Spec.Suspend = new(nobody), new(false)
	for i := range js.Spec.ReplicatedJobs {
		js.Spec.ReplicatedJobs[i].Template.Spec.Template.Labels = map[string]string{patch.GatedLabel: "true"}
	}
	s.Make(ctx, js)
	child := s.likeJob("starts-node-0", *metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet")))
	child.Spec.ManagedBy, child.Spec.Template.Labels = new(nobody), map[string]string{patch.GatedLabel: "true"}
	Eventually(ctx, func() error { return s.Create(ctx, child.DeepCopy()) }).Should(Succeed(), "Kueue's webhook looks for its JobSet in a cache")
}

// makeGoing makes what is deleted, or is about to be, and waits for what it has made.
func (s *scene) makeGoing(ctx context.Context) {
	job := s.Job("goes").GPUs("8")
	job.Finalizers = []string{"example.com/mine"}
	s.MakeGated(ctx, job, 1)
	Expect(s.Delete(ctx, job.Obj())).To(Succeed())
	DeferCleanup(func(ctx context.Context) { s.PatchJSON(ctx, job.Obj(), `{"metadata":{"finalizers":null}}`) })
	const inForeground = `{"metadata":{"finalizers":["foregroundDeletion"]}}`
	Expect(s.send(ctx, cluster.Client, &jobsetapi.JobSet{}, "waits", types.MergePatchType, inForeground)).To(Succeed())
	Expect(s.send(ctx, cluster.Client, &batchv1.Job{}, "waits-node-0", types.MergePatchType, inForeground)).To(Succeed())
}

// makeBystanders makes what only looks like something of a TrainJob.
func (s *scene) makeBystanders(ctx context.Context) {
	rest := s.plantedWorkload()
	rest.Name, rest.Spec.QueueName, rest.Labels = "remainder", "", map[string]string{placeholder.Label: "gone"}
	var owner corev1.ConfigMap
	Eventually(ctx, s.Get).WithArguments(client.ObjectKey{Namespace: s.Namespace, Name: "kube-root-ca.crt"}, &owner).Should(Succeed())
	owned := s.plantedWorkload(*metav1.NewControllerRef(&owner, corev1.SchemeGroupVersion.WithKind("ConfigMap")))
	owned.Name, owned.Spec.QueueName, owned.Spec.Priority = "owned", "", new(int32(2147483647))
	copied := kit.With(s.plantedWorkload(), kit.Copied)
	copied.Name, copied.Spec.QueueName = "copied", ""
	booster := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.Name("booster")}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{kueue.SchemeGroupVersion.Group}, Resources: []string{"workloads"}, Verbs: []string{"get", "list", "patch", "watch"}}}}
	s.Make(ctx, booster, kit.ClusterRoleBinding(booster.Name, booster.Name, kit.User(priorityBooster)))
	silent := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Name("silent")}}
	onSilent := s.likePod("silent")
	onSilent.Spec.NodeSelector, onSilent.Spec.NodeName = nil, silent.Name
	s.Make(ctx, silent)
	claiming := s.CopyRuntime(ctx, "torch-distributed")
	claiming.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "gpu", ResourceClaimTemplateName: new("claims")}, {Name: "more", ResourceClaimTemplateName: new("going-claims")}}
	own, going := namespaced(claiming, s.Namespace, "going"), s.claims("going-claims")
	own.Finalizers, going.Finalizers = []string{"example.com/mine"}, []string{"example.com/mine"}
	s.Make(ctx, s.claims("claims"), s.claims("unclaimed"), going, own, byOwn(s.Job("claims").GPUs("8"), "going"))
	s.EventuallyWorkload(ctx, "claims")
	for _, obj := range []client.Object{own, going} {
		Expect(s.Delete(ctx, obj)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { s.PatchJSON(ctx, obj, `{"metadata":{"finalizers":null}}`) })
	}
	s.Make(ctx, s.jobSet("bare"), &resourcev1.ResourceClaim{ObjectMeta: s.meta("own"), Spec: s.claims("").Spec.Spec},
		&corev1.ConfigMap{ObjectMeta: s.meta("bare-runtime-snapshot")})
	unbound := anyPod().Spec
	unbound.SchedulerName = "nobody"
	// The next spec waits for pods and Workloads to be gone before all else goes.
	for _, obj := range []client.Object{owned, copied, rest, onSilent, s.likePod(cutName), s.likePod("sized"), s.gatedPod("gated"),
		&corev1.Pod{ObjectMeta: s.meta("plain"), Spec: unbound}} {
		s.Make(ctx, obj)
		DeferCleanup(func(ctx context.Context) { Expect(s.Delete(ctx, obj, client.GracePeriodSeconds(0))).To(Succeed()) })
	}
}

// as makes dry runs as somebody else.
func as(user string, groups ...string) client.Client {
	return client.NewDryRunClient(must(cluster.Impersonating(user, append(groups, "system:authenticated")...)))
}

func (s *scene) meta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name, OwnerReferences: owners}
}

// ownedBy is the reference of an object whose controller is a TrainJob.
func (s *scene) ownedBy(ctx context.Context, job string) metav1.OwnerReference {
	return *metav1.NewControllerRef(get(ctx, s.site, &trainer.TrainJob{}, job), trainer.GroupVersion.WithKind("TrainJob"))
}

// claims is a template that pods may claim a device by.
func (s *scene) claims(name string) *resourcev1.ResourceClaimTemplate {
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: s.meta(name)}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{
		{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}}}
	return template
}

// jobSet is one that somebody makes without Trainer.
func (s *scene) jobSet(name string, owners ...metav1.OwnerReference) *jobsetapi.JobSet {
	js := jobSetNamed(s.Namespace, name)
	js.OwnerReferences, js.Spec.Suspend = owners, new(true)
	return js
}

func (s *scene) podOf(ctx context.Context, job, replicatedJob string) *corev1.Pod {
	pods := world.OfReplicatedJob(s.Pods(ctx, job), replicatedJob)
	Expect(pods).NotTo(BeEmpty(), "pods of %s's replicated job %s", job, replicatedJob)
	return &pods[0]
}

// gatedPod is a pod that says of itself that it waits for quota.
func (s *scene) gatedPod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: s.meta(name), Spec: anyPod().Spec}
	pod.Labels = map[string]string{patch.GatedLabel: "true", jobsetapi.JobSetNameKey: "gone"}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
	return pod
}

// likePod is a pod that has the labels of a queued TrainJob's, and no owner.
func (s *scene) likePod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: s.meta(name), Spec: anyPod().Spec}
	pod.Labels = likeOnes
	// On a node without a kubelet nothing could be resized.
	pod.Spec.NodeSelector = map[string]string{"example.com/nowhere": "true"}
	pod.Spec.Containers[0].Resources.Requests = kit.Amounts("cpu", "1")
	return pod
}

// cutName is as long as Kubernetes makes names.
var cutName = strings.Repeat("x", 63)

// likeOnes are the labels by which the pods of a queued TrainJob are found.
var likeOnes = map[string]string{jobsetapi.JobSetNameKey: "runs", "kueue.x-k8s.io/podset": "node"}

// likeJob is a Job that JobSet did not make.
func (s *scene) likeJob(name string, owners ...metav1.OwnerReference) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: s.meta(name, owners...)}
	job.Spec.Template.Spec = anyPod().Spec
	return job
}

func (s *scene) send(ctx context.Context, c client.Client, obj client.Object, name string, kind types.PatchType, patch string) error {
	return c.Patch(ctx, s.named(obj, name), client.RawPatch(kind, []byte(patch)))
}

func (s *scene) named(obj client.Object, name string) client.Object {
	obj.SetNamespace(s.Namespace)
	obj.SetName(name)
	return obj
}

// plantedWorkload is one that somebody makes without Kueue.
func (s *scene) plantedWorkload(owners ...metav1.OwnerReference) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: s.meta("planted", owners...),
		Spec: kueue.WorkloadSpec{
			QueueName: "queue",
			PodSets:   []kueue.PodSet{{Name: "node", Count: 1, Template: anyPod()}},
		},
	}
}
