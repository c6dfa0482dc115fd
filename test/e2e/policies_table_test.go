// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// request is something that somebody asks of the API server in a scene.
type request func(ctx context.Context, s *scene, c client.Client) error

// prohibited is a request that a policy refuses, with words that tell what to do.
type prohibited struct {
	policy, words string
	ask           request
}

// ofTrainer23 are requests about what no Trainer before 2.3 has.
var ofTrainer23 = sets.New("change a TrainJob that stops, all the time", "edit a snapshot", "delete a snapshot", "take a snapshot from its TrainJob",
	"the garbage collector delete a snapshot", "the garbage collector release a snapshot")

// generations are the labels of the spec of a request.
func generations(name string) Labels {
	if ofTrainer23.Has(name) {
		return since(world.Trainer23)
	}
	return nil
}

const (
	ofTrainJobs = "kueue-trainer-trainjobs"
	ofSnapshots = "kueue-trainer-snapshots"
	ofRuntimes  = "kueue-trainer-runtimes"
	ofClaims    = "kueue-trainer-claims"
	ofPodClaims = "kueue-trainer-pod-claims"
	ofAdoptions = "kueue-trainer-pod-adoptions"
	ofBindings  = "kueue-trainer-pod-bindings"
	ofQueues    = "kueue-trainer-localqueues"
	ofJobSets   = "kueue-trainer-jobsets"
	ofJobs      = "kueue-trainer-jobs"
	ofPods      = "kueue-trainer-pods"
	ofDeletions = "kueue-trainer-pod-deletions"
	ofWorkloads = "kueue-trainer-workloads"

	inForeground = client.PropagationPolicy(metav1.DeletePropagationForeground)
	inBackground = client.PropagationPolicy(metav1.DeletePropagationBackground)
	orphaning    = client.PropagationPolicy(metav1.DeletePropagationOrphan)

	addOrphan      = `{"metadata":{"finalizers":["orphan"]}}`
	addOwn         = `{"metadata":{"finalizers":["example.com/mine"]}}`
	dropFinalizers = `{"metadata":{"finalizers":null}}`
	dropOwner      = `{"metadata":{"ownerReferences":null}}`
	annotate       = `{"metadata":{"annotations":{"example.com/note":"x"}}}`
	goes           = "its spec and its queue stay as they are"
	dropPodGate    = `[{"op":"remove","path":"/spec/schedulingGates"}]`
	// podSpec is where a replicated job describes its pods.
	podSpec = "template/spec/template/spec"
)

// What fills an object.
var (
	longAnnotation  = `{"metadata":{"annotations":{"example.com/note":"` + strings.Repeat("x", 5000) + `"}}}`
	manyAnnotations = `{"metadata":{"annotations":{` + hundred(`"example.com/%d":"x"`) + `}}}`
	manyLabels      = `{"metadata":{"labels":{` + hundred(`"example.com/%d":"x"`) + `}}}`
	manyFinalizers  = `{"metadata":{"finalizers":["batch.kubernetes.io/job-tracking",` + hundred(`"example.com/%d"`) + `]}}`
)

func hundred(format string) string { return kit.Numbered(100, format) }

// orphanDependents is how clients orphaned before there were policies.
type orphanDependents struct{}

// ApplyToDelete implements client.DeleteOption.
func (orphanDependents) ApplyToDelete(o *client.DeleteOptions) {
	o.Raw = &metav1.DeleteOptions{OrphanDependents: new(true)} //nolint:staticcheck // what is deprecated is what is tried
}

// attempts are what a hostile tenant may try, and what a careless one may do, by the policy that refuses it.
var attempts = byPolicy(map[string]map[string]prohibited{
	ofTrainJobs: {
		"orphan a running TrainJob":               denied("delete it with propagationPolicy Background or Foreground", deletes(&trainer.TrainJob{}, "runs", orphaning)),
		"orphan a waiting TrainJob":               denied("its pods would run on without quota", deletes(&trainer.TrainJob{}, "waits", orphaning)),
		"orphan a TrainJob with orphanDependents": denied("its pods would run on without quota", deletes(&trainer.TrainJob{}, "runs", orphanDependents{})),
		"orphan all TrainJobs":                    denied("its pods would run on without quota", deletesAll(&trainer.TrainJob{}, metav1.DeletePropagationOrphan)),
		"give a TrainJob finalizer orphan":        denied("leave the finalizer out", patches(&trainer.TrainJob{}, "runs", addOrphan)),
		"create a TrainJob with finalizer orphan": denied("leave the finalizer out",
			createsTrainJob(func(job *trainer.TrainJob) { job.Finalizers = []string{metav1.FinalizerOrphanDependents} })),
		"change a TrainJob that stops, all the time":   denied("when its last pod is gone", patches(&trainer.TrainJob{}, "stops", `{"spec":{"activeDeadlineSeconds":9999999}}`)),
		"resume a TrainJob that is being deleted":      denied(goes, patches(&trainer.TrainJob{}, "goes", `{"spec":{"suspend":false}}`)),
		"take a TrainJob that is being deleted out":    denied(goes, patches(&trainer.TrainJob{}, "goes", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`)),
		"move a TrainJob that is being deleted":        denied(goes, patches(&trainer.TrainJob{}, "goes", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`)),
		"take what a TrainJob that runs asks for away": denied("only spec.suspend may change", patches(&trainer.TrainJob{}, "runs", `{"spec":{"trainer":null}}`)),
		"have a TrainJob that runs ask for more": denied("only spec.suspend may change", patches(&trainer.TrainJob{}, "mine",
			`{"spec":{"trainer":{"numNodes":2,"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}}}}}`)),
		"fill a TrainJob with labels":     denied("take some away", patches(&trainer.TrainJob{}, "runs", manyLabels)),
		"fill a TrainJob with finalizers": denied("take some away", patches(&trainer.TrainJob{}, "waits", manyFinalizers)),
		"create a TrainJob that is full": denied("take some away", createsTrainJob(func(job *trainer.TrainJob) {
			for i := range 100 {
				job.Labels[fmt.Sprintf("example.com/%d", i)] = "x"
			}
		})),
	},
	ofRuntimes: alike("neither start nor suspend it", map[string]request{
		"delete the runtime of a TrainJob that runs":                  deletes(&trainer.TrainingRuntime{}, "mine"),
		"delete the runtime of a TrainJob that waits":                 deletes(&trainer.TrainingRuntime{}, "kept"),
		"let the runtime of a TrainJob go that is being deleted":      patches(&trainer.TrainingRuntime{}, "going", dropFinalizers),
		"have the garbage collector delete the runtime of a TrainJob": by(garbageCollector, deletes(&trainer.TrainingRuntime{}, "mine", inBackground)),
		"rename what a TrainJob that runs is made of":                 ofRuntime("replace", "name", `"other"`),
		"rename a container of a TrainJob that runs":                  ofRuntime("replace", podSpec+"/containers/0/name", `"other"`),
		"have a runtime ask for more":                                 ofRuntime("add", podSpec+"/containers/0/resources", `{"limits":{"nvidia.com/gpu":"64"}}`),
		"have a runtime run more":                                     ofRuntime("add", "replicas", "3"),
		"have a runtime pull with a secret without a name":            ofRuntime("add", podSpec+"/imagePullSecrets", "[{}]"),
		"have a runtime begin otherwise":                              ofRuntime("add", podSpec+"/initContainers", `[{"name":"flux-installer","image":"x"}]`),
		"have a TrainJob that runs trained otherwise":                 patches(&trainer.TrainingRuntime{}, "mine", `{"spec":{"mlPolicy":{"torch":null}}}`),
	}),
	ofClaims: alike("charged for what it claims", map[string]request{
		"have pods claim more when a template goes":      patches(&resourcev1.ResourceClaimTemplate{}, "going-claims", dropFinalizers),
		"have pods claim more than is charged":           deletes(&resourcev1.ResourceClaimTemplate{}, "claims"),
		"have the garbage collector let pods claim more": by(garbageCollector, deletes(&resourcev1.ResourceClaimTemplate{}, "claims", inBackground)),
	}),
	ofPodClaims: alike("for which Kubernetes makes them", map[string]request{
		"claim more in a pod's place": func(ctx context.Context, s *scene, c client.Client) error {
			claim := &resourcev1.ResourceClaim{ObjectMeta: s.meta("planted"), Spec: s.claims("").Spec.Spec}
			claim.Annotations = map[string]string{"resource.kubernetes.io/pod-claim-name": "gpu"}
			return c.Create(ctx, claim)
		},
		"claim more by the UID of a pod beside a made-up kind": func(ctx context.Context, s *scene, c client.Client) error {
			pod := s.Pods(ctx, "runs")[0]
			owner := metav1.NewControllerRef(&pod, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "X"})
			return c.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: s.meta("planted", *owner), Spec: s.claims("").Spec.Spec})
		},
		"have a pod take a claim that is there": func(ctx context.Context, s *scene, c client.Client) error {
			pod := s.Pods(ctx, "runs")[0]
			return owns(&resourcev1.ResourceClaim{}, "own", *metav1.NewControllerRef(&pod, corev1.SchemeGroupVersion.WithKind("Pod")))(ctx, s, c)
		},
	}),
	ofSnapshots: alike("only Trainer writes it", map[string]request{
		"edit a snapshot":                   patches(&corev1.ConfigMap{}, "waits-runtime-snapshot", `{"data":{"runtime":"{}"}}`),
		"delete a snapshot":                 deletes(&corev1.ConfigMap{}, "waits-runtime-snapshot"),
		"take a snapshot from its TrainJob": patches(&corev1.ConfigMap{}, "waits-runtime-snapshot", dropOwner),
		"plant a snapshot": func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: s.meta("planted-runtime-snapshot", s.ownedBy(ctx, "waits"))})
		},
		"plant a snapshot whose owner has another kind and the same UID": func(ctx context.Context, s *scene, c client.Client) error {
			owner := s.ownedBy(ctx, "waits")
			owner.APIVersion, owner.Kind = "v1", "ConfigMap"
			return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: s.meta("planted-runtime-snapshot", owner)})
		},
		"make a ConfigMap a snapshot": adopts(&corev1.ConfigMap{}, "bare-runtime-snapshot", "waits"),
	}),
	ofJobSets: {
		"create a JobSet for a TrainJob": denied("leave the ownerReference out", func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, s.jobSet("planted", s.ownedBy(ctx, "waits")))
		}),
		"give a JobSet to a TrainJob":                             denied("delete the JobSet", adopts(&jobsetapi.JobSet{}, "bare", "waits")),
		"take a JobSet from its TrainJob":                         denied("change TrainJob", patches(&jobsetapi.JobSet{}, "runs", dropOwner)),
		"resume the JobSet of a waiting TrainJob":                 denied("change TrainJob", patches(&jobsetapi.JobSet{}, "waits", `{"spec":{"suspend":false}}`)),
		"suspend the JobSet of a running TrainJob":                denied("change TrainJob", patches(&jobsetapi.JobSet{}, "runs", `{"spec":{"suspend":true}}`)),
		"have the JobSet of a running TrainJob delete itself":     denied("change TrainJob", patches(&jobsetapi.JobSet{}, "runs", `{"spec":{"ttlSecondsAfterFinished":1}}`)),
		"take the gate off a JobSet":                              denied("change TrainJob", ofJobSet("waits", "remove", podSpec+"/schedulingGates", "null")),
		"place the pods of a JobSet elsewhere":                    denied("change TrainJob", ofJobSet("waits", "add", podSpec+"/nodeSelector", `{"a":"b"}`)),
		"orphan a JobSet":                                         denied("delete it with propagationPolicy Foreground", deletes(&jobsetapi.JobSet{}, "runs", orphaning)),
		"give a JobSet finalizer orphan":                          denied("leave the finalizer out", patches(&jobsetapi.JobSet{}, "runs", addOrphan)),
		"give a JobSet a finalizer of one's own":                  denied(`with finalizer "example.com/mine" its pods would run on`, patches(&jobsetapi.JobSet{}, "runs", addOwn)),
		"have a JobSet replaced beside its pods":                  denied("--cascade=foreground", deletes(&jobsetapi.JobSet{}, "runs", inBackground)),
		"have a JobSet replaced that was to go in the foreground": denied("--cascade=foreground", deletes(&jobsetapi.JobSet{}, "waits", inBackground)),
		"have a JobSet replaced whose pods are just made":         denied("are just getting their pods", deletes(&jobsetapi.JobSet{}, "starts", inForeground)),
		"have what is done run again":                             denied("delete the TrainJob instead", deletes(&jobsetapi.JobSet{}, "runs", inForeground)),
		"have a JobSet replaced before its pods are gone":         denied("wait for its pods", patches(&jobsetapi.JobSet{}, "waits", dropFinalizers)),
		"fill a JobSet":                                           denied("take some away", patches(&jobsetapi.JobSet{}, "runs", manyAnnotations)),
		"write much into a JobSet":                                denied("take some away", patches(&jobsetapi.JobSet{}, "runs", longAnnotation)),
		"create a JobSet with the gate":                           denied("leave the gate out", createsJobSet(behindGate)),
		"create a JobSet whose pods are taken for gated":          denied("label kueue-trainer.dev/gated", createsJobSet(labelled(patch.GatedLabel, "true"))),
		"create a JobSet whose pods look like a TrainJob's":       denied("leave the label out", createsJobSet(labelled("kueue.x-k8s.io/podset", "node"))),
		"put the gate into a JobSet":                              denied("leave the gate out", ofJobSet("bare", "add", podSpec+"/schedulingGates", `[{"name":"kueue-trainer.dev/admission"}]`)),
	},
	ofJobs: {
		"resume a child Job that waits":           denied("change the TrainJob", patches(&batchv1.Job{}, "waits-node-0", `{"spec":{"suspend":false}}`)),
		"suspend a child Job that runs":           denied("change the TrainJob", patches(&batchv1.Job{}, "runs-node-0", `{"spec":{"suspend":true}}`)),
		"take the gate off a child Job":           denied("change the TrainJob", changes(&batchv1.Job{}, "waits-node-0", `[{"op":"remove","path":"/spec/template/spec/schedulingGates"}]`)),
		"place the pods of a child Job elsewhere": denied("change the TrainJob", patches(&batchv1.Job{}, "waits-node-0", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`)),
		"give a child Job more pods":              denied("change the TrainJob", patches(&batchv1.Job{}, "runs-node-0", `{"spec":{"parallelism":3,"completions":3}}`)),
		"have a child Job delete itself":          denied("change the TrainJob", patches(&batchv1.Job{}, "runs-side-0", `{"spec":{"ttlSecondsAfterFinished":1}}`)),
		"take a child Job from its JobSet":        denied("change the TrainJob", patches(&batchv1.Job{}, "runs-node-0", dropOwner)),
		"give a child Job to another JobSet by its labels": denied("change the TrainJob",
			patches(&batchv1.Job{}, "runs-node-0", `{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-name":null}}}`)),
		"have JobSet take a child Job for another run's": denied("change the TrainJob",
			patches(&batchv1.Job{}, "runs-node-0", `{"metadata":{"labels":{"jobset.sigs.k8s.io/job-restart-attempt":"0"}}}`)),
		"orphan a child Job":                                         denied("delete it with propagationPolicy Foreground", deletes(&batchv1.Job{}, "runs-node-0", orphaning)),
		"orphan a child Job by saying nothing":                       denied("delete it with propagationPolicy Foreground", deletes(&batchv1.Job{}, "runs-node-0")),
		"orphan all child Jobs":                                      denied("delete it with propagationPolicy Foreground", deletesAll(&batchv1.Job{}, metav1.DeletePropagationOrphan)),
		"give a child Job finalizer orphan":                          denied("leave the finalizer out", patches(&batchv1.Job{}, "runs-node-0", addOrphan)),
		"give a child Job a finalizer of one's own":                  denied(`with finalizer "example.com/mine" its pods would run on`, patches(&batchv1.Job{}, "runs-node-0", addOwn)),
		"have a child Job replaced beside its pods":                  denied("--cascade=foreground", deletes(&batchv1.Job{}, "runs-node-0", inBackground)),
		"have a child Job replaced that was to go in the foreground": denied("--cascade=foreground", deletes(&batchv1.Job{}, "waits-node-0", inBackground)),
		"have a child Job replaced whose pods are just made":         denied("is just getting its pods", deletes(&batchv1.Job{}, "starts-node-0", inForeground)),
		"have a finished child Job run again":                        denied("delete the TrainJob instead", deletes(&batchv1.Job{}, "runs-side-0", inForeground)),
		"have a child Job replaced before its pods are gone":         denied("wait for its pods", patches(&batchv1.Job{}, "waits-node-0", dropFinalizers)),
		"fill a child Job":                                           denied("take some away", patches(&batchv1.Job{}, "runs-node-0", manyAnnotations)),
		"create a Job that a JobSet takes for its own": denied("only JobSet and kueue-trainer make", func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, s.likeJob("planted", get(ctx, s.site, &batchv1.Job{}, "runs-node-0").OwnerReferences...))
		}),
		"give a Job to a JobSet": denied("only JobSet and kueue-trainer make", func(ctx context.Context, s *scene, c client.Client) error {
			return owns(&batchv1.Job{}, "bare-node-0", get(ctx, s.site, &batchv1.Job{}, "runs-node-0").OwnerReferences...)(ctx, s, c)
		}),
		"create a Job whose pods look like a TrainJob's": denied("only JobSet and kueue-trainer make",
			createsJob(func(template *corev1.PodTemplateSpec) { template.Labels = likeOnes })),
		"create a Job whose pods nobody frees":        denied("only JobSet and kueue-trainer make", createsJob(behindGate)),
		"create a Job whose pods are taken for gated": denied("only JobSet and kueue-trainer make", createsJob(labelled(patch.GatedLabel, "true"))),
		"create a child Job": denied("only JobSet and kueue-trainer make", func(ctx context.Context, s *scene, c client.Client) error {
			like := get(ctx, s.site, &batchv1.Job{}, "waits-node-0")
			child := &batchv1.Job{ObjectMeta: s.meta("waits-node-1", like.OwnerReferences...)}
			child.Labels = like.Labels
			child.Spec.Template.Labels = map[string]string{patch.GatedLabel: "true"}
			child.Spec.Template.Spec = anyPod().Spec
			return c.Create(ctx, child)
		}),
	},
	ofPods: {
		"take the gate off a pod": denied("waits for quota", changes(&corev1.Pod{}, "gated", dropPodGate)),
		"take the gate off a pod with its mark": denied("waits for quota",
			changes(&corev1.Pod{}, "gated", `[{"op":"remove","path":"/spec/schedulingGates"},{"op":"remove","path":"/metadata/labels"}]`)),
		"take the mark off a gated pod": denied("stay as they are", patches(&corev1.Pod{}, "gated", `{"metadata":{"labels":null}}`)),
		"have a gated pod freed with another TrainJob": denied("stay as they are",
			patches(&corev1.Pod{}, "gated", `{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-name":"runs"}}}`)),
		"create a pod that looks like a TrainJob's":     denied("leave out label", func(ctx context.Context, s *scene, c client.Client) error { return c.Create(ctx, s.likePod("other")) }),
		"make a pod look like a TrainJob's":             denied("leave out label", patches(&corev1.Pod{}, "gated", `{"metadata":{"labels":{"kueue.x-k8s.io/podset":"node"}}}`)),
		"take the Job controller's finalizer off a pod": denied("only Kubernetes takes finalizer", patchesPod("runs", dropFinalizers)),
		"have Kubernetes delete a pod as one too many": denied("annotations of Kubernetes", patchesPod("mine",
			`{"metadata":{"annotations":{"batch.kubernetes.io/job-completion-index":null}}}`)),
		"have Kubernetes release a pod by a label that its Job may select by": denied("its labels", patchesPod("mine",
			`{"metadata":{"labels":{"example.com/own":"x"}}}`)),
		"hide a pod that runs": denied("runs on the quota of its TrainJob", patches(&corev1.Pod{}, "sized", `{"metadata":{"labels":{"kueue.x-k8s.io/podset":null}}}`)),
		"hide a pod that runs from its JobSet": denied("runs on the quota of its TrainJob",
			patches(&corev1.Pod{}, "sized", `{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-name":null}}}`)),
		"orphan a pod that runs":        denied("runs on the quota of its TrainJob", patchesPod("runs", dropOwner)),
		"fill a pod with an annotation": denied("take some away", patchesPod("mine", longAnnotation)),
		"fill a pod with annotations":   denied("take some away", patchesPod("mine", manyAnnotations)),
		"fill a gated pod":              denied("take some away", patches(&corev1.Pod{}, "gated", manyAnnotations)),
		"fill a pod with tolerations": denied("64 tolerations", patchesPodAs(types.JSONPatchType, "mine", "["+hundred(
			`{"op":"add","path":"/spec/tolerations/-","value":{"key":"example.com/%d","operator":"Exists"}}`)+"]")),
		"fill a pod with finalizers": denied("take some away", patchesPod("mine", manyFinalizers)),
		"fill a pod with the name of its image": denied("take some away", patchesPodAs(types.StrategicMergePatchType, "mine",
			`{"spec":{"containers":[{"name":"node","image":"`+strings.Repeat("x", 2000)+`"}]}}`)),
		"fill a pod with the arguments of an ephemeral container":   denied("take some away", debugsPod("sized", `"image":"x","args":["`+strings.Repeat("x", 5000)+`"]`)),
		"fill a pod with the environment of an ephemeral container": denied("take some away", debugsPod("sized", `"image":"x","env":[`+hundred(`{"name":"V%d","value":"x"}`)+`]`)),
		"resize a pod": denied("it cannot be resized", func(ctx context.Context, s *scene, c client.Client) error {
			const more = `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"64"}}}]}}`
			return c.SubResource("resize").Patch(ctx, &corev1.Pod{ObjectMeta: s.meta("sized")}, client.RawPatch(types.StrategicMergePatchType, []byte(more)))
		}),
		"create a gated pod": denied("leave the gate out", func(ctx context.Context, s *scene, c client.Client) error { return c.Create(ctx, s.gatedPod("other")) }),
	},
	ofAdoptions: {
		"have a Job adopt another pod": denied("batch.kubernetes.io/controller-uid", func(ctx context.Context, s *scene, c client.Client) error {
			pod := &corev1.Pod{ObjectMeta: s.meta("planted"), Spec: anyPod().Spec}
			pod.Labels = map[string]string{batchv1.ControllerUidLabel: string(get(ctx, s.site, &batchv1.Job{}, "mine-node-0").UID)}
			return c.Create(ctx, pod)
		}),
		"have a Job adopt a pod that is there": denied("batch.kubernetes.io/controller-uid", func(ctx context.Context, s *scene, c client.Client) error {
			uid := string(get(ctx, s.site, &batchv1.Job{}, "mine-node-0").UID)
			return patches(&corev1.Pod{}, "plain", `{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"`+uid+`"}}}`)(ctx, s, c)
		}),
	},
	ofQueues: {
		"delete the LocalQueue of TrainJobs": denied("delete it when that has ended", deletes(&kueue.LocalQueue{}, "queue")),
	},
	ofBindings: alike("is bound by a scheduler", map[string]request{
		"have a Job let its pod go as it is bound": func(ctx context.Context, s *scene, c client.Client) error {
			return c.SubResource("binding").Create(ctx, &corev1.Pod{ObjectMeta: s.meta("plain")}, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.ControllerUidLabel: "x"}}, Target: corev1.ObjectReference{Kind: "Node", Name: s.Name("silent")},
			})
		},
		"bind a pod by resource bindings": func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, &corev1.Binding{ObjectMeta: s.meta("plain"), Target: corev1.ObjectReference{Kind: "Node", Name: s.Name("silent")}})
		},
	}),
	ofDeletions: {
		"have a pod run beside the next one":                           denied("--grace-period=5", deletesPod("mine", "node")),
		"have a pod end no sooner than the next one comes":             denied("--grace-period=5", deletesPod("mine", "node", client.GracePeriodSeconds(10))),
		"have a pod run beside the next one for a day":                 denied("--grace-period=5", deletesPod("mine", "node", client.GracePeriodSeconds(86400))),
		"have a pod run on that nobody sees any more":                  denied("--grace-period=5", deletesPod("mine", "node", client.GracePeriodSeconds(0))),
		"have all pods run beside the next ones":                       denied("--grace-period=5", deletesAll(&corev1.Pod{}, metav1.DeletePropagationBackground)),
		"have a pod run for ten seconds beside one that comes at once": denied("--grace-period=1,", deletes(&corev1.Pod{}, "silent", client.GracePeriodSeconds(10))),
		"evict a pod whose name Kubernetes cut": denied("deleteOptions.gracePeriodSeconds", func(ctx context.Context, s *scene, c client.Client) error {
			return c.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: s.meta(cutName)}, &policyv1.Eviction{})
		}),
		"evict a pod that runs beside the next one then": denied("deleteOptions.gracePeriodSeconds", evictsPod("mine", nil)),
	},
	ofWorkloads: {
		"take the finalizer off a Workload":                            denied("delete the Workload", ofWorkload("runs", dropFinalizers)),
		"add a finalizer to a Workload":                                denied("delete the Workload", ofWorkload("runs", `{"metadata":{"finalizers":["kueue.x-k8s.io/resource-in-use","example.com/mine"]}}`)),
		"fill a Workload with an annotation":                           denied("take some away", ofWorkload("runs", longAnnotation)),
		"fill a Workload with fields of a manager's":                   denied("262144 bytes of fields", ofWorkload("runs", `{"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"kueue.x-k8s.io/v1beta2","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:`+strings.Repeat("a", 300_000)+`":{}}}}}]}}`)),
		"fill a Workload with annotations":                             denied("take some away", ofWorkload("runs", manyAnnotations)),
		"annotate the Workload of a TrainJob that stops, all the time": denied("gives its quota back when the last pod", ofWorkload("stops", annotate)),
		"toggle the mark of a TrainJob that stops": denied("gives its quota back when the last pod",
			ofWorkload("stops", `{"metadata":{"annotations":{"kueue-trainer.dev/deactivate":"again"}}}`)),
		"take the mark off a TrainJob that stops": denied("gives its quota back when the last pod",
			ofWorkload("stops", `{"metadata":{"annotations":{"kueue-trainer.dev/deactivate":null}}}`)),
		"toggle what preempts a TrainJob that stops": denied("gives its quota back when the last pod",
			ofWorkload("stops", `{"spec":{"preemptionGates":[{"name":"example.com/mine"}]}}`)),
		"take over fields of the Workload of a TrainJob that stops": denied("gives its quota back when the last pod", func(ctx context.Context, s *scene, c client.Client) error {
			const active = `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","spec":{"active":true}}`
			return c.Patch(ctx, &kueue.Workload{ObjectMeta: s.meta(s.Workload(ctx, "stops").Name)},
				client.RawPatch(types.ApplyPatchType, []byte(active)), client.FieldOwner("mine"))
		}),
		"give away the quota of pods that are left":   denied("goes with the last of them", deletes(&kueue.Workload{}, "remainder")),
		"deactivate a Workload of pods that are left": denied("goes with the last of them", patches(&kueue.Workload{}, "remainder", `{"spec":{"active":false}}`)),
		"limit the time of a Workload of pods that are left": denied("goes with the last of them",
			patches(&kueue.Workload{}, "remainder", `{"spec":{"maximumExecutionTimeSeconds":1}}`)),
		"take the pods that are left from a Workload": denied("goes with the last of them", patches(&kueue.Workload{}, "remainder", `{"metadata":{"labels":null}}`)),
		"have a Workload of pods that are left stay with others": denied("goes with the last of them",
			patches(&kueue.Workload{}, "remainder", `{"metadata":{"annotations":{"kueue-trainer.dev/jobset-uids":"other"}}}`)),
		"take a Workload for one of pods that are left": denied("change its podSets, priority, owner",
			ofWorkload("runs", `{"metadata":{"labels":{"kueue-trainer.dev/remainder-of":"runs"}}}`)),
		"keep a TrainJob that runs from every preemption": denied("by label kueue.x-k8s.io/priority-class", ofWorkload("runs", `{"spec":{"priority":2147483647}}`)),
		"have a TrainJob take the place of one that runs": denied("change the TrainJob",
			ofWorkload("waits", `{"metadata":{"annotations":{"kueue.x-k8s.io/workload-slice-replacement-for":"x/y"}}}`)),
		"have a Workload of nobody's take the place of one that runs": denied("are Kueue's", createsWorkload(annotated("kueue.x-k8s.io/workload-slice-replacement-for", "x/y"))),
		"boost a Workload of nobody's":                                denied("are Kueue's", createsWorkload(annotated("kueue.x-k8s.io/priority-boost", "1000"))),
		"fill a Workload of nobody's with metadata":                   denied("takes 32 labels", createsWorkload(annotated("example.com/much", strings.Repeat("x", 5000)))),
		"prepare a Workload of the highest priority":                  denied("are Kueue's", createsWorkload(ofHighestPriority)),
		"prepare a Workload of the highest priority with an owner": denied("are Kueue's", func(ctx context.Context, s *scene, c client.Client) error {
			owner := s.ownedBy(ctx, "waits")
			owner.APIVersion, owner.Kind, owner.Controller = "v1", "ConfigMap", nil
			return createsWorkload(ofHighestPriority, owner)(ctx, s, c)
		}),
		"prepare a Workload with a controller": denied("only Kueue gives it a controller", func(ctx context.Context, s *scene, c client.Client) error {
			owner := s.ownedBy(ctx, "waits")
			owner.APIVersion, owner.Kind = "example.com/v1", "X"
			return createsWorkload(nil, owner)(ctx, s, c)
		}),
		"prepare a Workload that looks like MultiKueue's": denied("are Kueue's",
			createsWorkload(func(wl *kueue.Workload) { wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "far"} })),
		"take a Workload without an owner from MultiKueue": denied("are Kueue's",
			patches(&kueue.Workload{}, "copied", `{"metadata":{"labels":null}}`)),
		"take a Workload of the highest priority from the owner that it has": denied("nobody takes it from its controller", patches(&kueue.Workload{}, "owned", dropOwner)),
		"boost a TrainJob":                  denied("by label kueue.x-k8s.io/priority-class", ofWorkload("runs", `{"metadata":{"annotations":{"kueue.x-k8s.io/priority-boost":"1000"}}}`)),
		"take a Workload from its TrainJob": denied("change the TrainJob", ofWorkload("runs", dropOwner)),
		"have a TrainJob charged for less": denied("change the TrainJob", func(ctx context.Context, s *scene, c client.Client) error {
			return changes(&kueue.Workload{}, s.Workload(ctx, "waits").Name, `[{"op":"remove","path":"/spec/podSets/0/template/spec/containers/0/resources"}]`)(ctx, s, c)
		}),
		"create the Workload of a TrainJob": denied("only Kueue and kueue-trainer make it", func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, s.plantedWorkload(s.ownedBy(ctx, "waits")))
		}),
	},
})

// denied is a request that is refused with words.
func denied(words string, ask request) prohibited { return prohibited{words: words, ask: ask} }

// alike are requests that are refused with the same words.
func alike(words string, asks map[string]request) map[string]prohibited {
	all := map[string]prohibited{}
	for name, ask := range asks {
		all[name] = denied(words, ask)
	}
	return all
}

// byPolicy notes which policy refuses what.
func byPolicy(groups map[string]map[string]prohibited) map[string]prohibited {
	all := map[string]prohibited{}
	for policy, attempts := range groups {
		for name, a := range attempts {
			a.policy = policy
			all[name] = a
		}
	}
	return all
}

// tenantsFlows are what people do all day.
var tenantsFlows = map[string]request{
	"delete a running TrainJob":                 deletes(&trainer.TrainJob{}, "runs"),
	"delete a waiting TrainJob":                 deletes(&trainer.TrainJob{}, "waits", inBackground),
	"delete a TrainJob in the foreground":       deletes(&trainer.TrainJob{}, "runs", inForeground),
	"delete all TrainJobs":                      deletesAll(&trainer.TrainJob{}, metav1.DeletePropagationBackground),
	"orphan a TrainJob without a queue":         deletes(&trainer.TrainJob{}, "free", orphaning),
	"let a TrainJob go that is being deleted":   patches(&trainer.TrainJob{}, "goes", dropFinalizers),
	"annotate a TrainJob that is being deleted": patches(&trainer.TrainJob{}, "goes", annotate),
	"annotate a TrainJob":                       patches(&trainer.TrainJob{}, "runs", annotate),
	"stop a TrainJob":                           patches(&trainer.TrainJob{}, "runs", `{"spec":{"suspend":true}}`),
	"delete a runtime that nothing uses":        deletes(&trainer.TrainingRuntime{}, "spare"),
	"claim a device": func(ctx context.Context, s *scene, c client.Client) error {
		return c.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: s.meta("another"), Spec: s.claims("").Spec.Spec})
	},
	"delete a claim template that nothing uses":                    deletes(&resourcev1.ResourceClaimTemplate{}, "unclaimed"),
	"give a runtime another image":                                 ofRuntime("replace", podSpec+"/containers/0/image", `"example.com/next"`),
	"annotate a JobSet":                                            patches(&jobsetapi.JobSet{}, "runs", annotate),
	"delete a JobSet in the foreground":                            deletes(&jobsetapi.JobSet{}, "waits", inForeground),
	"delete the JobSet of a TrainJob without a queue as they like": deletes(&jobsetapi.JobSet{}, "free", orphaning),
	"create a JobSet":                                              func(ctx context.Context, s *scene, c client.Client) error { return c.Create(ctx, s.jobSet("other")) },
	"resume a JobSet that is no TrainJob's":                        patches(&jobsetapi.JobSet{}, "bare", `{"spec":{"suspend":false}}`),
	"orphan a JobSet that is no TrainJob's":                        deletes(&jobsetapi.JobSet{}, "bare", orphaning),
	"annotate a child Job":                                         patches(&batchv1.Job{}, "runs-node-0", annotate),
	"delete a child Job in the foreground":                         deletes(&batchv1.Job{}, "runs-node-0", inForeground),
	"resume a child Job that is no TrainJob's":                     patches(&batchv1.Job{}, "bare-node-0", `{"spec":{"suspend":false}}`),
	"orphan the child Job of a TrainJob without a queue":           deletes(&batchv1.Job{}, "free-node-0", orphaning),
	"delete a gated pod":                                           deletes(&corev1.Pod{}, "gated"),
	"delete a pod that has five seconds":                           deletesPod("mine", "node", client.GracePeriodSeconds(5)),
	"delete a pod that has ended":                                  deletesPod("runs", "side"),
	"evict a pod that has a second":                                evictsPod("mine", new(int64(1))),
	"annotate a pod that runs":                                     patches(&corev1.Pod{}, "sized", annotate),
	"annotate a gated pod":                                         patches(&corev1.Pod{}, "gated", annotate),
	"restart in place by JobSet's agent in the pod":                patches(&corev1.Pod{}, "sized", `{"metadata":{"annotations":{"jobset.sigs.k8s.io/in-place-restart-attempt":"1"}}}`),
	"create a ConfigMap": func(ctx context.Context, s *scene, c client.Client) error {
		return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: s.meta("other-runtime-snapshot")})
	},
	"debug a pod that runs":                 debugsPod("sized", `"image":"busybox","command":["sh"],"stdin":true,"tty":true,"env":[{"name":"A","value":"b"}],"securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}`),
	"deactivate a TrainJob that stops":      ofWorkload("stops", `{"spec":{"active":false}}`),
	"deactivate a TrainJob by its Workload": ofWorkload("runs", `{"spec":{"active":false}}`),
	"delete a Workload": func(ctx context.Context, s *scene, c client.Client) error {
		return c.Delete(ctx, s.Workload(ctx, "waits"))
	},
	"create a prebuilt Workload": createsWorkload(nil),
}

const (
	garbageCollector    = "system:serviceaccount:kube-system:generic-garbage-collector"
	namespaceController = "system:serviceaccount:kube-system:namespace-controller"
	podCollector        = "system:serviceaccount:kube-system:pod-garbage-collector"
	priorityBooster     = "system:serviceaccount:kueue-system:kueue-priority-booster"
	jobController       = "system:serviceaccount:kube-system:job-controller"
	ttlController       = "system:serviceaccount:kube-system:ttl-after-finished-controller"
)

// systemFlows are what Kubernetes does on its own, each with the rights that it ships with.
var systemFlows = map[string]request{
	"the garbage collector delete a JobSet":                            by(garbageCollector, deletes(&jobsetapi.JobSet{}, "runs", inBackground)),
	"the garbage collector delete a child Job":                         by(garbageCollector, deletes(&batchv1.Job{}, "runs-side-0", inBackground)),
	"the garbage collector delete a snapshot":                          by(garbageCollector, deletes(&corev1.ConfigMap{}, "runs-runtime-snapshot", inBackground)),
	"the garbage collector release a JobSet":                           by(garbageCollector, patches(&jobsetapi.JobSet{}, "runs", dropOwner)),
	"the garbage collector release a snapshot":                         by(garbageCollector, patches(&corev1.ConfigMap{}, "runs-runtime-snapshot", dropOwner)),
	"the garbage collector release a Workload":                         by(garbageCollector, ofWorkload("runs", dropOwner)),
	"the garbage collector delete a Workload of pods that are gone":    by(garbageCollector, deletes(&kueue.Workload{}, "remainder", inBackground)),
	"the namespace controller delete a Workload of pods that are left": by(namespaceController, deletes(&kueue.Workload{}, "remainder", inBackground)),
	"the namespace controller delete all TrainJobs":                    by(namespaceController, deletesAll(&trainer.TrainJob{}, metav1.DeletePropagationBackground)),
	"the namespace controller delete all JobSets":                      by(namespaceController, deletesAll(&jobsetapi.JobSet{}, metav1.DeletePropagationBackground)),
	"the namespace controller delete all Jobs":                         by(namespaceController, deletesAll(&batchv1.Job{}, metav1.DeletePropagationBackground)),
	"the namespace controller delete all ConfigMaps":                   by(namespaceController, deletesAll(&corev1.ConfigMap{}, metav1.DeletePropagationBackground)),
	"the namespace controller delete all pods":                         by(namespaceController, deletesAll(&corev1.Pod{}, metav1.DeletePropagationBackground)),
	"Kueue's priority booster boost a TrainJob":                        by(priorityBooster, ofWorkload("runs", `{"metadata":{"annotations":{"kueue.x-k8s.io/priority-boost":"1000"}}}`)),
	"who may patch all Workloads change the priority of a TrainJob's":  by(priorityBooster, ofWorkload("runs", `{"spec":{"priority":1000}}`)),
	"the Job controller delete a pod":                                  by(jobController, deletesPod("mine", "node")),
	"the pod collector delete a lost pod":                              by(podCollector, deletesPod("mine", "node", client.GracePeriodSeconds(0))),
	"the TTL controller delete a finished child Job":                   by(ttlController, deletes(&batchv1.Job{}, "runs-side-0", inForeground)),
}

func patches(obj client.Object, name, patch string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.send(ctx, c, obj.DeepCopyObject().(client.Object), name, types.MergePatchType, patch)
	}
}

func changes(obj client.Object, name, operations string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.send(ctx, c, obj.DeepCopyObject().(client.Object), name, types.JSONPatchType, operations)
	}
}

func ofWorkload(job, patch string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return patches(&kueue.Workload{}, s.Workload(ctx, job).Name, patch)(ctx, s, c)
	}
}

// patchesPod is the request of a merge patch of the pod of a TrainJob's replicated job "node".
func patchesPod(job, patch string) request { return patchesPodAs(types.MergePatchType, job, patch) }

func patchesPodAs(kind types.PatchType, job, patch string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.send(ctx, c, &corev1.Pod{}, s.podOf(ctx, job, "node").Name, kind, patch)
	}
}

func adopts(obj client.Object, name, job string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return owns(obj, name, s.ownedBy(ctx, job))(ctx, s, c)
	}
}

func owns(obj client.Object, name string, owners ...metav1.OwnerReference) request {
	return patches(obj, name, `{"metadata":{"ownerReferences":`+must(jsonOf(owners))+`}}`)
}

// by is a request of an account of Kubernetes, in place of the tenant.
func by(account string, ask request) request {
	return func(ctx context.Context, s *scene, _ client.Client) error {
		return ask(ctx, s, as(account, "system:serviceaccounts", "system:serviceaccounts:kube-system"))
	}
}

// ofRuntime is the request of a change of what the runtime of TrainJob "mine" says of its first replicated job.
func ofRuntime(op, path, value string) request {
	return changes(&trainer.TrainingRuntime{}, "mine", fmt.Sprintf(`[{"op":%q,"path":"/spec/template/spec/replicatedJobs/0/%s","value":%s}]`, op, path, value))
}

// ofJobSet is the same of a JobSet.
func ofJobSet(name, op, path, value string) request {
	return changes(&jobsetapi.JobSet{}, name, fmt.Sprintf(`[{"op":%q,"path":"/spec/replicatedJobs/0/%s","value":%s}]`, op, path, value))
}

// behindGate has pods be made behind the manager's gate.
func behindGate(template *corev1.PodTemplateSpec) {
	template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
}

func labelled(key, value string) func(*corev1.PodTemplateSpec) {
	return func(template *corev1.PodTemplateSpec) { template.Labels = map[string]string{key: value} }
}

func annotated(key, value string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Annotations = map[string]string{key: value} }
}

func ofHighestPriority(wl *kueue.Workload) { wl.Spec.Priority = new(int32(2147483647)) }

func createsWorkload(change func(*kueue.Workload), owners ...metav1.OwnerReference) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.Create(ctx, kit.With(s.plantedWorkload(owners...), change))
	}
}

func createsTrainJob(change func(*trainer.TrainJob)) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.Create(ctx, kit.With(s.Job("born").Obj(), change))
	}
}

func createsJob(change func(*corev1.PodTemplateSpec)) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		job := s.likeJob("planted")
		change(&job.Spec.Template)
		return c.Create(ctx, job)
	}
}

func createsJobSet(change func(*corev1.PodTemplateSpec)) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		js := s.jobSet("other")
		change(&js.Spec.ReplicatedJobs[0].Template.Spec.Template)
		return c.Create(ctx, js)
	}
}

func debugsPod(name, container string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.SubResource("ephemeralcontainers").Patch(ctx, &corev1.Pod{ObjectMeta: s.meta(name)},
			client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"ephemeralContainers":[{"name":"debug",`+container+`}]}}`)))
	}
}

func deletes(obj client.Object, name string, opts ...client.DeleteOption) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.Delete(ctx, s.named(obj.DeepCopyObject().(client.Object), name), opts...)
	}
}

func deletesPod(job, replicatedJob string, opts ...client.DeleteOption) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.Delete(ctx, s.podOf(ctx, job, replicatedJob), opts...)
	}
}

func evictsPod(job string, grace *int64) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.SubResource("eviction").Create(ctx, s.podOf(ctx, job, "node"), &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: grace}})
	}
}

func deletesAll(obj client.Object, policy metav1.DeletionPropagation) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.DeleteAllOf(ctx, obj.DeepCopyObject().(client.Object), client.InNamespace(s.Namespace), client.PropagationPolicy(policy))
	}
}
