// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// request is something that somebody asks of the API server in a scene.
type request func(ctx context.Context, s *scene, c client.Client) error

// prohibited is a request that a policy refuses, with words that tell what to do.
type prohibited struct {
	policy, words string
	ask           request
	// since is the generation of Trainer that has what it is about; empty: all.
	since string
	// account asks in place of the tenant, who has it do so.
	account string
}

func (a prohibited) possible(ctx context.Context) bool { return trainerOf(ctx) >= a.since }

// flow is a request of a controller of Kubernetes.
type flow struct {
	account string
	ask     request
	since   string
}

func (f flow) possible(ctx context.Context) bool { return trainerOf(ctx) >= f.since }

const (
	ofTrainJobs = "kueue-trainer-trainjobs"
	ofSnapshots = "kueue-trainer-snapshots"
	ofRuntimes  = "kueue-trainer-runtimes"
	ofClaims    = "kueue-trainer-claims"
	ofPodClaims = "kueue-trainer-pod-claims"
	ofAdoptions = "kueue-trainer-pod-adoptions"
	ofJobSets   = "kueue-trainer-jobsets"
	ofJobs      = "kueue-trainer-jobs"
	ofPods      = "kueue-trainer-pods"
	ofDeletions = "kueue-trainer-pod-deletions"
	ofWorkloads = "kueue-trainer-workloads"

	inForeground = client.PropagationPolicy(metav1.DeletePropagationForeground)
	inBackground = client.PropagationPolicy(metav1.DeletePropagationBackground)
	orphaning    = client.PropagationPolicy(metav1.DeletePropagationOrphan)

	addOrphan   = `{"metadata":{"finalizers":["orphan"]}}`
	addOwn      = `{"metadata":{"finalizers":["example.com/mine"]}}`
	dropOwner   = `{"metadata":{"ownerReferences":null}}`
	annotate    = `{"metadata":{"annotations":{"example.com/note":"x"}}}`
	goes        = "its spec and its queue stay as they are"
	dropPodGate = `[{"op":"remove","path":"/spec/schedulingGates"}]`
)

// What fills an object.
var (
	longAnnotation  = `{"metadata":{"annotations":{"example.com/note":"` + strings.Repeat("x", 5000) + `"}}}`
	manyAnnotations = `{"metadata":{"annotations":{` + hundred(`"example.com/%d":"x"`) + `}}}`
	manyLabels      = `{"metadata":{"labels":{` + hundred(`"example.com/%d":"x"`) + `}}}`
	manyFinalizers  = `{"metadata":{"finalizers":["batch.kubernetes.io/job-tracking",` + hundred(`"example.com/%d"`) + `]}}`
)

func hundred(format string) string {
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprintf(format, i))
	}
	return strings.Join(all, ",")
}

// orphanDependents is how clients orphaned before there were policies.
type orphanDependents struct{}

// ApplyToDelete implements client.DeleteOption.
func (orphanDependents) ApplyToDelete(o *client.DeleteOptions) {
	o.Raw = &metav1.DeleteOptions{OrphanDependents: new(true)} //nolint:staticcheck // what is deprecated is what is tried
}

// attempts are what a hostile tenant may try, and what a careless one may do, by the policy that refuses it.
var attempts = byPolicy(map[string]map[string]prohibited{
	ofTrainJobs: {
		"orphan a running TrainJob": {words: "delete it with propagationPolicy Background or Foreground", ask: deletes(&trainer.TrainJob{}, "runs", orphaning)},
		"orphan a waiting TrainJob": {words: "its pods would run on without quota", ask: deletes(&trainer.TrainJob{}, "waits", orphaning)},
		"orphan a TrainJob with orphanDependents": {words: "its pods would run on without quota",
			ask: deletes(&trainer.TrainJob{}, "runs", orphanDependents{})},
		"orphan all TrainJobs":             {words: "its pods would run on without quota", ask: deletesAll(&trainer.TrainJob{}, metav1.DeletePropagationOrphan)},
		"give a TrainJob finalizer orphan": {words: "leave the finalizer out", ask: patches(&trainer.TrainJob{}, "runs", addOrphan)},
		"create a TrainJob with finalizer orphan": {words: "leave the finalizer out", ask: func(ctx context.Context, s *scene, c client.Client) error {
			job := s.Job("born").Obj()
			job.Finalizers = []string{metav1.FinalizerOrphanDependents}
			return c.Create(ctx, job)
		}},
		"change a TrainJob that stops, all the time": {words: "when its last pod is gone", since: world.Trainer23,
			ask: patches(&trainer.TrainJob{}, "stops", `{"spec":{"activeDeadlineSeconds":9999999}}`)},
		"resume a TrainJob that is being deleted":      {words: goes, ask: patches(&trainer.TrainJob{}, "goes", `{"spec":{"suspend":false}}`)},
		"take a TrainJob that is being deleted out":    {words: goes, ask: patches(&trainer.TrainJob{}, "goes", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`)},
		"move a TrainJob that is being deleted":        {words: goes, ask: patches(&trainer.TrainJob{}, "goes", `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`)},
		"take what a TrainJob that runs asks for away": {words: "only spec.suspend may change", ask: patches(&trainer.TrainJob{}, "runs", `{"spec":{"trainer":null}}`)},
		"have a TrainJob that runs ask for more": {words: "only spec.suspend may change", ask: patches(&trainer.TrainJob{}, "mine",
			`{"spec":{"trainer":{"numNodes":2,"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}}}}}`)},
		"fill a TrainJob with labels":     {words: "take some away", ask: patches(&trainer.TrainJob{}, "runs", manyLabels)},
		"fill a TrainJob with finalizers": {words: "take some away", ask: patches(&trainer.TrainJob{}, "waits", manyFinalizers)},
		"create a TrainJob that is full": {words: "take some away", ask: func(ctx context.Context, s *scene, c client.Client) error {
			job := s.Job("born").Obj()
			for i := range 100 {
				job.Labels[fmt.Sprintf("example.com/%d", i)] = "x"
			}
			return c.Create(ctx, job)
		}},
	},
	ofRuntimes: {
		"delete the runtime of a TrainJob that runs":  {words: "neither start nor suspend it", ask: deletes(&trainer.TrainingRuntime{}, "mine")},
		"delete the runtime of a TrainJob that waits": {words: "neither start nor suspend it", ask: deletes(&trainer.TrainingRuntime{}, "kept")},
		"let the runtime of a TrainJob go that is being deleted": {words: "neither start nor suspend it",
			ask: patches(&trainer.TrainingRuntime{}, "going", `{"metadata":{"finalizers":null}}`)},
		"have the garbage collector delete the runtime of a TrainJob": {words: "neither start nor suspend it", account: garbageCollector,
			ask: deletes(&trainer.TrainingRuntime{}, "mine", inBackground)},
		"rename what a TrainJob that runs is made of": {words: "neither start nor suspend it",
			ask: changes(&trainer.TrainingRuntime{}, "mine", `[{"op":"replace","path":"/spec/template/spec/replicatedJobs/0/name","value":"other"}]`)},
		"rename a container of a TrainJob that runs": {words: "neither start nor suspend it",
			ask: changes(&trainer.TrainingRuntime{}, "mine", `[{"op":"replace","path":"/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/name","value":"other"}]`)},
		"have a runtime ask for more": {words: "neither start nor suspend it",
			ask: changes(&trainer.TrainingRuntime{}, "mine", `[{"op":"add","path":"/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/resources","value":{"limits":{"nvidia.com/gpu":"64"}}}]`)},
		"have a runtime run more": {words: "neither start nor suspend it",
			ask: changes(&trainer.TrainingRuntime{}, "mine", `[{"op":"add","path":"/spec/template/spec/replicatedJobs/0/replicas","value":3}]`)},
		"have a runtime pull with a secret without a name": {words: "neither start nor suspend it",
			ask: changes(&trainer.TrainingRuntime{}, "mine", `[{"op":"add","path":"/spec/template/spec/replicatedJobs/0/template/spec/template/spec/imagePullSecrets","value":[{}]}]`)},
		"have a runtime begin otherwise": {words: "neither start nor suspend it",
			ask: changes(&trainer.TrainingRuntime{}, "mine", `[{"op":"add","path":"/spec/template/spec/replicatedJobs/0/template/spec/template/spec/initContainers","value":[{"name":"flux-installer","image":"x"}]}]`)},
		"have a TrainJob that runs trained otherwise": {words: "neither start nor suspend it",
			ask: patches(&trainer.TrainingRuntime{}, "mine", `{"spec":{"mlPolicy":{"torch":null}}}`)},
	},
	ofClaims: {
		"have pods claim more when a template goes": {words: "charged for what it claims",
			ask: patches(&resourcev1.ResourceClaimTemplate{}, "going-claims", `{"metadata":{"finalizers":null}}`)},
		"have pods claim more than is charged": {words: "charged for what it claims", ask: deletes(&resourcev1.ResourceClaimTemplate{}, "claims")},
		"have the garbage collector let pods claim more": {words: "charged for what it claims", account: garbageCollector,
			ask: deletes(&resourcev1.ResourceClaimTemplate{}, "claims", inBackground)},
	},
	ofPodClaims: {
		"claim more in a pod's place": {words: "for which Kubernetes makes them", ask: func(ctx context.Context, s *scene, c client.Client) error {
			claim := &resourcev1.ResourceClaim{ObjectMeta: s.meta("planted"), Spec: s.claims("").Spec.Spec}
			claim.Annotations = map[string]string{"resource.kubernetes.io/pod-claim-name": "gpu"}
			return c.Create(ctx, claim)
		}},
		"have a pod take a claim that is there": {words: "for which Kubernetes makes them", ask: func(ctx context.Context, s *scene, c client.Client) error {
			pod := s.Pods(ctx, "runs")[0]
			owners, err := jsonOf([]metav1.OwnerReference{*metav1.NewControllerRef(&pod, corev1.SchemeGroupVersion.WithKind("Pod"))})
			if err != nil {
				return err
			}
			return s.send(ctx, c, &resourcev1.ResourceClaim{}, "own", types.MergePatchType, `{"metadata":{"ownerReferences":`+owners+`}}`)
		}},
	},
	ofSnapshots: {
		"edit a snapshot": {words: "only Trainer writes it", since: world.Trainer23,
			ask: patches(&corev1.ConfigMap{}, "waits-runtime-snapshot", `{"data":{"runtime":"{}"}}`)},
		"delete a snapshot": {words: "only Trainer writes it", since: world.Trainer23, ask: deletes(&corev1.ConfigMap{}, "waits-runtime-snapshot")},
		"take a snapshot from its TrainJob": {words: "only Trainer writes it", since: world.Trainer23,
			ask: patches(&corev1.ConfigMap{}, "waits-runtime-snapshot", dropOwner)},
		"plant a snapshot": {words: "only Trainer writes it", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: s.meta("planted-runtime-snapshot", s.ownedBy(ctx, "waits"))})
		}},
		"plant a snapshot whose owner has another kind and the same UID": {words: "only Trainer writes it", ask: func(ctx context.Context, s *scene, c client.Client) error {
			owner := s.ownedBy(ctx, "waits")
			owner.APIVersion, owner.Kind = "v1", "ConfigMap"
			return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: s.meta("planted-runtime-snapshot", owner)})
		}},
		"make a ConfigMap a snapshot": {words: "only Trainer writes it", ask: adopts(&corev1.ConfigMap{}, "bare-runtime-snapshot", "waits")},
	},
	ofJobSets: {
		"create a JobSet for a TrainJob": {words: "leave the ownerReference out", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, s.jobSet("planted", s.ownedBy(ctx, "waits")))
		}},
		"give a JobSet to a TrainJob":              {words: "delete the JobSet", ask: adopts(&jobsetapi.JobSet{}, "bare", "waits")},
		"take a JobSet from its TrainJob":          {words: "change TrainJob", ask: patches(&jobsetapi.JobSet{}, "runs", dropOwner)},
		"resume the JobSet of a waiting TrainJob":  {words: "change TrainJob", ask: patches(&jobsetapi.JobSet{}, "waits", `{"spec":{"suspend":false}}`)},
		"suspend the JobSet of a running TrainJob": {words: "change TrainJob", ask: patches(&jobsetapi.JobSet{}, "runs", `{"spec":{"suspend":true}}`)},
		"have the JobSet of a running TrainJob delete itself": {words: "change TrainJob",
			ask: patches(&jobsetapi.JobSet{}, "runs", `{"spec":{"ttlSecondsAfterFinished":1}}`)},
		"take the gate off a JobSet": {words: "change TrainJob",
			ask: changes(&jobsetapi.JobSet{}, "waits", `[{"op":"remove","path":"/spec/replicatedJobs/0/template/spec/template/spec/schedulingGates"}]`)},
		"place the pods of a JobSet elsewhere": {words: "change TrainJob",
			ask: changes(&jobsetapi.JobSet{}, "waits", `[{"op":"add","path":"/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector","value":{"a":"b"}}]`)},
		"orphan a JobSet":                {words: "delete it with propagationPolicy Foreground", ask: deletes(&jobsetapi.JobSet{}, "runs", orphaning)},
		"give a JobSet finalizer orphan": {words: "leave the finalizer out", ask: patches(&jobsetapi.JobSet{}, "runs", addOrphan)},
		"give a JobSet a finalizer of one's own": {words: `with finalizer "example.com/mine" its pods would run on`,
			ask: patches(&jobsetapi.JobSet{}, "runs", addOwn)},
		"have a JobSet replaced beside its pods":                  {words: "--cascade=foreground", ask: deletes(&jobsetapi.JobSet{}, "runs", inBackground)},
		"have a JobSet replaced that was to go in the foreground": {words: "--cascade=foreground", ask: deletes(&jobsetapi.JobSet{}, "waits", inBackground)},
		"have a JobSet replaced whose pods are just made":         {words: "are just getting their pods", ask: deletes(&jobsetapi.JobSet{}, "starts", inForeground)},
		"have what is done run again":                             {words: "delete the TrainJob instead", ask: deletes(&jobsetapi.JobSet{}, "runs", inForeground)},
		"have a JobSet replaced before its pods are gone":         {words: "wait for its pods", ask: patches(&jobsetapi.JobSet{}, "waits", `{"metadata":{"finalizers":null}}`)},
		"fill a JobSet":            {words: "take some away", ask: patches(&jobsetapi.JobSet{}, "runs", manyAnnotations)},
		"write much into a JobSet": {words: "take some away", ask: patches(&jobsetapi.JobSet{}, "runs", longAnnotation)},
		"create a JobSet with the gate": {words: "leave the gate out", ask: func(ctx context.Context, s *scene, c client.Client) error {
			js := s.jobSet("gated")
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
			return c.Create(ctx, js)
		}},
		"create a JobSet whose pods are taken for gated": {words: "label kueue-trainer.dev/gated", ask: createsJobSet(func(template *corev1.PodTemplateSpec) {
			template.Labels = map[string]string{patch.GatedLabel: "true"}
		})},
		"create a JobSet whose pods look like a TrainJob's": {words: "leave the label out", ask: createsJobSet(func(template *corev1.PodTemplateSpec) {
			template.Labels = map[string]string{"kueue.x-k8s.io/podset": "node"}
		})},
		"put the gate into a JobSet": {words: "leave the gate out",
			ask: changes(&jobsetapi.JobSet{}, "bare", `[{"op":"add","path":"/spec/replicatedJobs/0/template/spec/template/spec/schedulingGates","value":[{"name":"kueue-trainer.dev/admission"}]}]`)},
	},
	ofJobs: {
		"resume a child Job that waits": {words: "change the TrainJob", ask: patches(&batchv1.Job{}, "waits-node-0", `{"spec":{"suspend":false}}`)},
		"suspend a child Job that runs": {words: "change the TrainJob", ask: patches(&batchv1.Job{}, "runs-node-0", `{"spec":{"suspend":true}}`)},
		"take the gate off a child Job": {words: "change the TrainJob",
			ask: changes(&batchv1.Job{}, "waits-node-0", `[{"op":"remove","path":"/spec/template/spec/schedulingGates"}]`)},
		"place the pods of a child Job elsewhere": {words: "change the TrainJob",
			ask: patches(&batchv1.Job{}, "waits-node-0", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`)},
		"give a child Job more pods":       {words: "change the TrainJob", ask: patches(&batchv1.Job{}, "runs-node-0", `{"spec":{"parallelism":3,"completions":3}}`)},
		"have a child Job delete itself":   {words: "change the TrainJob", ask: patches(&batchv1.Job{}, "runs-side-0", `{"spec":{"ttlSecondsAfterFinished":1}}`)},
		"take a child Job from its JobSet": {words: "change the TrainJob", ask: patches(&batchv1.Job{}, "runs-node-0", dropOwner)},
		"give a child Job to another JobSet by its labels": {words: "change the TrainJob",
			ask: patches(&batchv1.Job{}, "runs-node-0", `{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-name":null}}}`)},
		"have JobSet take a child Job for another run's": {words: "change the TrainJob",
			ask: patches(&batchv1.Job{}, "runs-node-0", `{"metadata":{"labels":{"jobset.sigs.k8s.io/job-restart-attempt":"0"}}}`)},
		"orphan a child Job":                   {words: "delete it with propagationPolicy Foreground", ask: deletes(&batchv1.Job{}, "runs-node-0", orphaning)},
		"orphan a child Job by saying nothing": {words: "delete it with propagationPolicy Foreground", ask: deletes(&batchv1.Job{}, "runs-node-0")},
		"orphan all child Jobs":                {words: "delete it with propagationPolicy Foreground", ask: deletesAll(&batchv1.Job{}, metav1.DeletePropagationOrphan)},
		"give a child Job finalizer orphan":    {words: "leave the finalizer out", ask: patches(&batchv1.Job{}, "runs-node-0", addOrphan)},
		"give a child Job a finalizer of one's own": {words: `with finalizer "example.com/mine" its pods would run on`,
			ask: patches(&batchv1.Job{}, "runs-node-0", addOwn)},
		"have a child Job replaced beside its pods":                  {words: "--cascade=foreground", ask: deletes(&batchv1.Job{}, "runs-node-0", inBackground)},
		"have a child Job replaced that was to go in the foreground": {words: "--cascade=foreground", ask: deletes(&batchv1.Job{}, "waits-node-0", inBackground)},
		"have a child Job replaced whose pods are just made":         {words: "is just getting its pods", ask: deletes(&batchv1.Job{}, "starts-node-0", inForeground)},
		"have a finished child Job run again":                        {words: "delete the TrainJob instead", ask: deletes(&batchv1.Job{}, "runs-side-0", inForeground)},
		"have a child Job replaced before its pods are gone":         {words: "wait for its pods", ask: patches(&batchv1.Job{}, "waits-node-0", `{"metadata":{"finalizers":null}}`)},
		"fill a child Job": {words: "take some away", ask: patches(&batchv1.Job{}, "runs-node-0", manyAnnotations)},
		"create a Job that a JobSet takes for its own": {words: "only JobSet and kueue-trainer make", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, s.likeJob("planted", get(ctx, s.site, &batchv1.Job{}, "runs-node-0").OwnerReferences...))
		}},
		"give a Job to a JobSet": {words: "only JobSet and kueue-trainer make", ask: func(ctx context.Context, s *scene, c client.Client) error {
			owners, err := jsonOf(get(ctx, s.site, &batchv1.Job{}, "runs-node-0").OwnerReferences)
			if err != nil {
				return err
			}
			return patches(&batchv1.Job{}, "bare-node-0", `{"metadata":{"ownerReferences":`+owners+`}}`)(ctx, s, c)
		}},
		"create a Job whose pods look like a TrainJob's": {words: "only JobSet and kueue-trainer make", ask: createsJob(func(template *corev1.PodTemplateSpec) {
			template.Labels = likeOnes
		})},
		"create a Job whose pods nobody frees": {words: "only JobSet and kueue-trainer make", ask: createsJob(func(template *corev1.PodTemplateSpec) {
			template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}
		})},
		"create a Job whose pods are taken for gated": {words: "only JobSet and kueue-trainer make", ask: createsJob(func(template *corev1.PodTemplateSpec) {
			template.Labels = map[string]string{patch.GatedLabel: "true"}
		})},
		"create a child Job": {words: "only JobSet and kueue-trainer make", ask: func(ctx context.Context, s *scene, c client.Client) error {
			like := get(ctx, s.site, &batchv1.Job{}, "waits-node-0")
			child := &batchv1.Job{ObjectMeta: s.meta("waits-node-1", like.OwnerReferences...)}
			child.Labels = like.Labels
			child.Spec.Template.Labels = map[string]string{patch.GatedLabel: "true"}
			child.Spec.Template.Spec = anyPod().Spec
			return c.Create(ctx, child)
		}},
	},
	ofPods: {
		"take the gate off a pod": {words: "waits for quota", ask: changes(&corev1.Pod{}, "gated", dropPodGate)},
		"take the gate off a pod with its mark": {words: "waits for quota",
			ask: changes(&corev1.Pod{}, "gated", `[{"op":"remove","path":"/spec/schedulingGates"},{"op":"remove","path":"/metadata/labels"}]`)},
		"take the mark off a gated pod": {words: "stay as they are", ask: patches(&corev1.Pod{}, "gated", `{"metadata":{"labels":null}}`)},
		"have a gated pod freed with another TrainJob": {words: "stay as they are",
			ask: patches(&corev1.Pod{}, "gated", `{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-name":"runs"}}}`)},
		"create a pod that looks like a TrainJob's": {words: "leave out label",
			ask: func(ctx context.Context, s *scene, c client.Client) error { return c.Create(ctx, s.likePod("other")) }},
		"make a pod look like a TrainJob's": {words: "leave out label",
			ask: patches(&corev1.Pod{}, "gated", `{"metadata":{"labels":{"kueue.x-k8s.io/podset":"node"}}}`)},
		"take the Job controller's finalizer off a pod": {words: "only Kubernetes takes finalizer", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return s.send(ctx, c, &corev1.Pod{}, s.Pods(ctx, "runs")[0].Name, types.MergePatchType, `{"metadata":{"finalizers":null}}`)
		}},
		"have Kubernetes delete a pod as one too many": {words: "annotations of Kubernetes", ask: patchesPod("mine", "node",
			`{"metadata":{"annotations":{"batch.kubernetes.io/job-completion-index":null}}}`)},
		"have Kubernetes release a pod by a label that its Job may select by": {words: "its labels", ask: patchesPod("mine", "node",
			`{"metadata":{"labels":{"example.com/own":"x"}}}`)},
		"hide a pod that runs": {words: "runs on the quota of its TrainJob",
			ask: patches(&corev1.Pod{}, "sized", `{"metadata":{"labels":{"kueue.x-k8s.io/podset":null}}}`)},
		"hide a pod that runs from its JobSet": {words: "runs on the quota of its TrainJob",
			ask: patches(&corev1.Pod{}, "sized", `{"metadata":{"labels":{"jobset.sigs.k8s.io/jobset-name":null}}}`)},
		"orphan a pod that runs": {words: "runs on the quota of its TrainJob", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return patches(&corev1.Pod{}, s.Pods(ctx, "runs")[0].Name, dropOwner)(ctx, s, c)
		}},
		"fill a pod with an annotation": {words: "take some away", ask: patchesPod("mine", "node", longAnnotation)},
		"fill a pod with annotations":   {words: "take some away", ask: patchesPod("mine", "node", manyAnnotations)},
		"fill a gated pod":              {words: "take some away", ask: patches(&corev1.Pod{}, "gated", manyAnnotations)},
		"fill a pod with tolerations": {words: "take some away", ask: patchesPodAs(types.JSONPatchType, "mine", "node", "["+hundred(
			`{"op":"add","path":"/spec/tolerations/-","value":{"key":"example.com/%d","operator":"Exists"}}`)+"]")},
		"fill a pod with finalizers": {words: "take some away", ask: patchesPod("mine", "node", manyFinalizers)},
		"fill a pod with the name of its image": {words: "take some away", ask: patchesPodAs(types.StrategicMergePatchType, "mine", "node",
			`{"spec":{"containers":[{"name":"node","image":"`+strings.Repeat("x", 2000)+`"}]}}`)},
		"fill a pod with the arguments of an ephemeral container": {words: "take some away", ask: debugsPod("sized", `"image":"x","args":["`+strings.Repeat("x", 5000)+`"]`)},
		"fill a pod with the environment of an ephemeral container": {words: "take some away",
			ask: debugsPod("sized", `"image":"x","env":[`+hundred(`{"name":"V%d","value":"x"}`)+`]`)},
		"resize a pod": {words: "it cannot be resized", ask: func(ctx context.Context, s *scene, c client.Client) error {
			const more = `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"64"}}}]}}`
			return c.SubResource("resize").Patch(ctx, &corev1.Pod{ObjectMeta: s.meta("sized")}, client.RawPatch(types.StrategicMergePatchType, []byte(more)))
		}},
		"create a gated pod": {words: "leave the gate out",
			ask: func(ctx context.Context, s *scene, c client.Client) error { return c.Create(ctx, s.gatedPod("other")) }},
	},
	ofAdoptions: {
		"have a Job adopt another pod": {words: "batch.kubernetes.io/controller-uid", ask: func(ctx context.Context, s *scene, c client.Client) error {
			pod := &corev1.Pod{ObjectMeta: s.meta("planted"), Spec: anyPod().Spec}
			pod.Labels = map[string]string{batchv1.ControllerUidLabel: string(get(ctx, s.site, &batchv1.Job{}, "mine-node-0").UID)}
			return c.Create(ctx, pod)
		}},
		"have a Job adopt a pod that is there": {words: "batch.kubernetes.io/controller-uid", ask: func(ctx context.Context, s *scene, c client.Client) error {
			uid := string(get(ctx, s.site, &batchv1.Job{}, "mine-node-0").UID)
			return s.send(ctx, c, &corev1.Pod{}, "plain", types.MergePatchType, `{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"`+uid+`"}}}`)
		}},
	},
	ofDeletions: {
		"have a pod run beside the next one":                           {words: "--grace-period=5", ask: deletesPod("mine", "node")},
		"have a pod end no sooner than the next one comes":             {words: "--grace-period=5", ask: deletesPod("mine", "node", client.GracePeriodSeconds(10))},
		"have a pod run beside the next one for a day":                 {words: "--grace-period=5", ask: deletesPod("mine", "node", client.GracePeriodSeconds(86400))},
		"have a pod run on that nobody sees any more":                  {words: "--grace-period=5", ask: deletesPod("mine", "node", client.GracePeriodSeconds(0))},
		"have all pods run beside the next ones":                       {words: "--grace-period=5", ask: deletesAll(&corev1.Pod{}, metav1.DeletePropagationBackground)},
		"have a pod run for ten seconds beside one that comes at once": {words: "--grace-period=1,", ask: deletes(&corev1.Pod{}, "silent", client.GracePeriodSeconds(10))},
		"evict a pod whose name Kubernetes cut": {words: "deleteOptions.gracePeriodSeconds", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return c.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: s.meta(cutName)}, &policyv1.Eviction{})
		}},
		"evict a pod that runs beside the next one then": {words: "deleteOptions.gracePeriodSeconds", ask: evictsPod("mine", nil)},
	},
	ofWorkloads: {
		"take the finalizer off a Workload":                            {words: "delete the Workload", ask: ofWorkload("runs", `{"metadata":{"finalizers":null}}`)},
		"add a finalizer to a Workload":                                {words: "delete the Workload", ask: ofWorkload("runs", `{"metadata":{"finalizers":["kueue.x-k8s.io/resource-in-use","example.com/mine"]}}`)},
		"fill a Workload with an annotation":                           {words: "take some away", ask: ofWorkload("runs", longAnnotation)},
		"fill a Workload with annotations":                             {words: "take some away", ask: ofWorkload("runs", manyAnnotations)},
		"annotate the Workload of a TrainJob that stops, all the time": {words: "gives its quota back when the last pod", ask: ofWorkload("stops", annotate)},
		"toggle the mark of a TrainJob that stops": {words: "gives its quota back when the last pod",
			ask: ofWorkload("stops", `{"metadata":{"annotations":{"kueue-trainer.dev/deactivate":"again"}}}`)},
		"take the mark off a TrainJob that stops": {words: "gives its quota back when the last pod",
			ask: ofWorkload("stops", `{"metadata":{"annotations":{"kueue-trainer.dev/deactivate":null}}}`)},
		"toggle what preempts a TrainJob that stops": {words: "gives its quota back when the last pod",
			ask: ofWorkload("stops", `{"spec":{"preemptionGates":[{"name":"example.com/mine"}]}}`)},
		"take over fields of the Workload of a TrainJob that stops": {words: "gives its quota back when the last pod",
			ask: func(ctx context.Context, s *scene, c client.Client) error {
				const active = `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","spec":{"active":true}}`
				return c.Patch(ctx, &kueue.Workload{ObjectMeta: s.meta(s.Workload(ctx, "stops").Name)},
					client.RawPatch(types.ApplyPatchType, []byte(active)), client.FieldOwner("mine"))
			}},
		"give away the quota of pods that are left": {words: "goes with the last of them", ask: deletes(&kueue.Workload{}, "remainder")},
		"deactivate a Workload of pods that are left": {words: "goes with the last of them",
			ask: patches(&kueue.Workload{}, "remainder", `{"spec":{"active":false}}`)},
		"limit the time of a Workload of pods that are left": {words: "goes with the last of them",
			ask: patches(&kueue.Workload{}, "remainder", `{"spec":{"maximumExecutionTimeSeconds":1}}`)},
		"take the pods that are left from a Workload": {words: "goes with the last of them",
			ask: patches(&kueue.Workload{}, "remainder", `{"metadata":{"labels":null}}`)},
		"have a Workload of pods that are left stay with others": {words: "goes with the last of them",
			ask: patches(&kueue.Workload{}, "remainder", `{"metadata":{"annotations":{"kueue-trainer.dev/jobset-uids":"other"}}}`)},
		"take a Workload for one of pods that are left": {words: "change its podSets, priority, owner",
			ask: ofWorkload("runs", `{"metadata":{"labels":{"kueue-trainer.dev/remainder-of":"runs"}}}`)},
		"keep a TrainJob that runs from every preemption": {words: "by label kueue.x-k8s.io/priority-class",
			ask: ofWorkload("runs", `{"spec":{"priority":2147483647}}`)},
		"have a TrainJob take the place of one that runs": {words: "change the TrainJob",
			ask: ofWorkload("waits", `{"metadata":{"annotations":{"kueue.x-k8s.io/workload-slice-replacement-for":"x/y"}}}`)},
		"have a Workload of nobody's take the place of one that runs": {words: "are Kueue's", ask: func(ctx context.Context, s *scene, c client.Client) error {
			wl := s.plantedWorkload()
			wl.Annotations = map[string]string{"kueue.x-k8s.io/workload-slice-replacement-for": "x/y"}
			return c.Create(ctx, wl)
		}},
		"prepare a Workload of the highest priority": {words: "are Kueue's", ask: func(ctx context.Context, s *scene, c client.Client) error {
			wl := s.plantedWorkload()
			wl.Spec.Priority = new(int32(2147483647))
			return c.Create(ctx, wl)
		}},
		"prepare a Workload of the highest priority with an owner": {words: "are Kueue's", ask: func(ctx context.Context, s *scene, c client.Client) error {
			owner := s.ownedBy(ctx, "waits")
			owner.APIVersion, owner.Kind, owner.Controller = "v1", "ConfigMap", nil
			wl := s.plantedWorkload(owner)
			wl.Spec.Priority = new(int32(2147483647))
			return c.Create(ctx, wl)
		}},
		"prepare a Workload that looks like MultiKueue's": {words: "are Kueue's", ask: func(ctx context.Context, s *scene, c client.Client) error {
			wl := s.plantedWorkload()
			wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "far"}
			return c.Create(ctx, wl)
		}},
		"boost a Workload of nobody's": {words: "are Kueue's", ask: func(ctx context.Context, s *scene, c client.Client) error {
			wl := s.plantedWorkload()
			wl.Annotations = map[string]string{"kueue.x-k8s.io/priority-boost": "1000"}
			return c.Create(ctx, wl)
		}},
		"take a Workload of the highest priority from the owner that he made for it": {words: "nobody takes it from its controller",
			ask: patches(&kueue.Workload{}, "owned", dropOwner)},
		"fill a Workload of nobody's with metadata": {words: "takes 32 labels", ask: func(ctx context.Context, s *scene, c client.Client) error {
			wl := s.plantedWorkload()
			wl.Annotations = map[string]string{"example.com/much": strings.Repeat("x", 5000)}
			return c.Create(ctx, wl)
		}},
		"boost a TrainJob": {words: "by label kueue.x-k8s.io/priority-class",
			ask: ofWorkload("runs", `{"metadata":{"annotations":{"kueue.x-k8s.io/priority-boost":"1000"}}}`)},
		"take a Workload from its TrainJob": {words: "change the TrainJob", ask: ofWorkload("runs", dropOwner)},
		"have a TrainJob charged for less": {words: "change the TrainJob", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return s.send(ctx, c, &kueue.Workload{}, s.Workload(ctx, "waits").Name, types.JSONPatchType,
				`[{"op":"remove","path":"/spec/podSets/0/template/spec/containers/0/resources"}]`)
		}},
		"create the Workload of a TrainJob": {words: "only Kueue and kueue-trainer make it", ask: func(ctx context.Context, s *scene, c client.Client) error {
			return c.Create(ctx, s.plantedWorkload(s.ownedBy(ctx, "waits")))
		}},
	},
})

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
	"let a TrainJob go that is being deleted":   patches(&trainer.TrainJob{}, "goes", `{"metadata":{"finalizers":null}}`),
	"annotate a TrainJob that is being deleted": patches(&trainer.TrainJob{}, "goes", annotate),
	"annotate a TrainJob":                       patches(&trainer.TrainJob{}, "runs", annotate),
	"stop a TrainJob":                           patches(&trainer.TrainJob{}, "runs", `{"spec":{"suspend":true}}`),
	"delete a runtime that nothing uses":        deletes(&trainer.TrainingRuntime{}, "spare"),
	"claim a device": func(ctx context.Context, s *scene, c client.Client) error {
		return c.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: s.meta("another"), Spec: s.claims("").Spec.Spec})
	},
	"delete a claim template that nothing uses": deletes(&resourcev1.ResourceClaimTemplate{}, "unclaimed"),
	"give a runtime another image": changes(&trainer.TrainingRuntime{}, "mine",
		`[{"op":"replace","path":"/spec/template/spec/replicatedJobs/0/template/spec/template/spec/containers/0/image","value":"example.com/next"}]`),
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
		return s.deleted(ctx, c, &kueue.Workload{}, s.Workload(ctx, "waits").Name)
	},
	"create a prebuilt Workload": func(ctx context.Context, s *scene, c client.Client) error {
		return c.Create(ctx, s.plantedWorkload())
	},
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
var systemFlows = map[string]flow{
	"the garbage collector delete a JobSet":    {account: garbageCollector, ask: deletes(&jobsetapi.JobSet{}, "runs", inBackground)},
	"the garbage collector delete a child Job": {account: garbageCollector, ask: deletes(&batchv1.Job{}, "runs-side-0", inBackground)},
	"the garbage collector delete a snapshot": {account: garbageCollector, since: world.Trainer23,
		ask: deletes(&corev1.ConfigMap{}, "runs-runtime-snapshot", inBackground)},
	"the garbage collector release a JobSet": {account: garbageCollector, ask: patches(&jobsetapi.JobSet{}, "runs", dropOwner)},
	"the garbage collector release a snapshot": {account: garbageCollector, since: world.Trainer23,
		ask: patches(&corev1.ConfigMap{}, "runs-runtime-snapshot", dropOwner)},
	"the garbage collector release a Workload": {account: garbageCollector, ask: ofWorkload("runs", dropOwner)},
	"the garbage collector delete a Workload of pods that are gone": {account: garbageCollector,
		ask: deletes(&kueue.Workload{}, "remainder", inBackground)},
	"the namespace controller delete a Workload of pods that are left": {account: namespaceController,
		ask: deletes(&kueue.Workload{}, "remainder", inBackground)},
	"the namespace controller delete all TrainJobs": {account: namespaceController,
		ask: deletesAll(&trainer.TrainJob{}, metav1.DeletePropagationBackground)},
	"the namespace controller delete all JobSets": {account: namespaceController,
		ask: deletesAll(&jobsetapi.JobSet{}, metav1.DeletePropagationBackground)},
	"the namespace controller delete all Jobs": {account: namespaceController, ask: deletesAll(&batchv1.Job{}, metav1.DeletePropagationBackground)},
	"the namespace controller delete all ConfigMaps": {account: namespaceController,
		ask: deletesAll(&corev1.ConfigMap{}, metav1.DeletePropagationBackground)},
	"the namespace controller delete all pods": {account: namespaceController, ask: deletesAll(&corev1.Pod{}, metav1.DeletePropagationBackground)},
	"Kueue's priority booster boost a TrainJob": {account: priorityBooster,
		ask: ofWorkload("runs", `{"metadata":{"annotations":{"kueue.x-k8s.io/priority-boost":"1000"}}}`)},
	"who may patch all Workloads change the priority of a TrainJob's": {account: priorityBooster,
		ask: ofWorkload("runs", `{"spec":{"priority":1000}}`)},
	"the Job controller delete a pod":                {account: jobController, ask: deletesPod("mine", "node")},
	"the pod collector delete a lost pod":            {account: podCollector, ask: deletesPod("mine", "node", client.GracePeriodSeconds(0))},
	"the TTL controller delete a finished child Job": {account: ttlController, ask: deletes(&batchv1.Job{}, "runs-side-0", inForeground)},
}

// patches is the request of a merge patch.
func patches(obj client.Object, name, patch string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.send(ctx, c, obj.DeepCopyObject().(client.Object), name, types.MergePatchType, patch)
	}
}

// changes is the request of a JSON patch.
func changes(obj client.Object, name, operations string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.send(ctx, c, obj.DeepCopyObject().(client.Object), name, types.JSONPatchType, operations)
	}
}

// ofWorkload is the request of a merge patch of a TrainJob's Workload.
func ofWorkload(job, patch string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.send(ctx, c, &kueue.Workload{}, s.Workload(ctx, job).Name, types.MergePatchType, patch)
	}
}

// patchesPod is the request of a merge patch of a replicated job's pod.
func patchesPod(job, replicatedJob, patch string) request {
	return patchesPodAs(types.MergePatchType, job, replicatedJob, patch)
}

func patchesPodAs(kind types.PatchType, job, replicatedJob, patch string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.send(ctx, c, &corev1.Pod{}, s.podOf(ctx, job, replicatedJob).Name, kind, patch)
	}
}

// adopts is the request that makes a TrainJob the controller of an object.
func adopts(obj client.Object, name, job string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		owners, err := jsonOf([]metav1.OwnerReference{s.ownedBy(ctx, job)})
		if err != nil {
			return err
		}
		return patches(obj, name, `{"metadata":{"ownerReferences":`+owners+`}}`)(ctx, s, c)
	}
}

// createsJob is the request of a Job with such pods.
func createsJob(change func(*corev1.PodTemplateSpec)) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		job := s.likeJob("planted")
		change(&job.Spec.Template)
		return c.Create(ctx, job)
	}
}

// createsJobSet is the request of a JobSet with such pods.
func createsJobSet(change func(*corev1.PodTemplateSpec)) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		js := s.jobSet("other")
		change(&js.Spec.ReplicatedJobs[0].Template.Spec.Template)
		return c.Create(ctx, js)
	}
}

// debugsPod is the request of an ephemeral container.
func debugsPod(name, container string) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.SubResource("ephemeralcontainers").Patch(ctx, &corev1.Pod{ObjectMeta: s.meta(name)},
			client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"ephemeralContainers":[{"name":"debug",`+container+`}]}}`)))
	}
}

// deletes is the request of a deletion.
func deletes(obj client.Object, name string, opts ...client.DeleteOption) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.deleted(ctx, c, obj.DeepCopyObject().(client.Object), name, opts...)
	}
}

// deletesPod is the request of the deletion of a replicated job's pod.
func deletesPod(job, replicatedJob string, opts ...client.DeleteOption) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return s.deleted(ctx, c, &corev1.Pod{}, s.podOf(ctx, job, replicatedJob).Name, opts...)
	}
}

// evictsPod is the request of a pod's eviction.
func evictsPod(job string, grace *int64) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.SubResource("eviction").Create(ctx, s.podOf(ctx, job, "node"),
			&policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: grace}})
	}
}

// deletesAll is the request to delete all objects of a kind.
func deletesAll(obj client.Object, policy metav1.DeletionPropagation) request {
	return func(ctx context.Context, s *scene, c client.Client) error {
		return c.DeleteAllOf(ctx, obj.DeepCopyObject().(client.Object), client.InNamespace(s.Namespace), client.PropagationPolicy(policy))
	}
}
