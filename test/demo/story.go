// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// pools are the node labels of flavors, as GPU Feature Discovery sets them. The first has a label more:
// a job that changes pools must not keep it.
var pools = map[string]map[string]string{
	"h100": {kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"},
	"a100": {kit.ProductLabel: kit.A100},
}

// quota of each pool: all GPUs that there are.
const quota = "32"

// story is the main job: TrainJobs of two teams under quota on two pools of GPU nodes.
type story struct {
	teller
	cluster *world.Cluster
	teams   []site
	// made is what everything else goes with.
	made  []client.Object
	queue kueue.ClusterQueue
	jobs  []*job
	// poolOf has the nodes with GPUs.
	poolOf map[string]string
	// misplaced says which pod selects other nodes than those of the pool that it is on.
	misplaced string
}

// job is a TrainJob, and what was seen of it.
type job struct {
	*trainer.TrainJob
	at       site
	workload *kueue.Workload
	pods     []corev1.Pod
	// began is when its first pod was created, pools are those that its pods ran on, one after the other.
	began     metav1.Time
	pools     []string
	preemptor *job
	told      []string
}

func newStory(cluster *world.Cluster) *story {
	s := &story{cluster: cluster, poolOf: map[string]string{}}
	s.teller = teller{paint: show.Painter(os.Stdout), width: 14, look: s.look}
	return s
}

func (s *story) play(ctx context.Context) {
	s.set(ctx)
	fmt.Print(`
Two teams, vision and language, share the quota of ClusterQueue gpus on two pools of GPU nodes, of 32
GPUs each. Together their TrainJobs want 66, two more than there are.
Nodes and their pods are fake (kwok), and the demo says when a pod has computed. Everything else is
real: the API server, its scheduler and controllers, Kueue, Trainer, JobSet, kueue-trainer. They know
namespaces, pools and ClusterQueue by names that end in -demo. Seconds, TrainJob, what happens:

`)
	s.start = time.Now()
	vision, language := s.teams[0], s.teams[1]
	// The arithmetic forces the story, and every step waits for what the one before it leads to.
	// resnet fills the H100 pool.
	resnet := s.submit(ctx, vision, vision.Job("resnet").Nodes(4).GPUs("8"))
	s.await(ctx, s.trains(resnet, "h100"))
	// llama is urgent: Kueue takes the first pool it can have, be it by preemption, and resnet is the only job to
	// preempt. The 16 H100s left are too few for resnet, the 32 A100s are just enough.
	llama := s.submit(ctx, language, language.Job("llama").Runtime("deepspeed-distributed").Nodes(2).GPUs("8").Priority("urgent"))
	s.await(ctx, s.trains(llama, "h100"), s.trains(resnet, "a100"))
	// qwen takes 2 of those 16.
	qwen := s.submit(ctx, language, language.Job("qwen").Runtime("torchtune-qwen2.5-1.5b").Nodes(1).GPUs("2").Initializers())
	s.await(ctx, qwen.claim("is admitted", func() bool { return len(qwen.admitted()) > 0 }))
	// vit finds 14 H100s and no A100 free, 2 H100s short, until one of the others ends.
	vit := s.submit(ctx, vision, vision.Job("vit").Nodes(2).GPUs("8"))
	s.await(ctx, vit.claim("waits for quota, and has no pod", func() bool {
		return strings.Contains(vit.condition(kueue.WorkloadQuotaReserved).Message, "insufficient unused quota") && len(vit.pods) == 0
	}), qwen.claim("downloads dataset and model", func() bool {
		return len(qwen.pods) == 2 && runs(qwen.pods[0]) && runs(qwen.pods[1])
	}))
	language.Finish(ctx, "qwen", "succeeded")
	s.await(ctx, s.trains(qwen, "h100"))
	language.Finish(ctx, "llama", "succeeded", "launcher")
	s.await(ctx, llama.finishes(), s.trains(vit, "h100"))
	for _, j := range []*job{qwen, resnet, vit} {
		j.at.Finish(ctx, j.Name, "succeeded", "node")
	}
	s.await(ctx, qwen.finishes(), resnet.finishes(), vit.finishes(), s.quotaFree())

	free := llama.condition(kueue.WorkloadFinished).LastTransitionTime
	s.verify(
		resnet.ran("trained on H100 nodes first, and on A100 nodes later", "h100", "a100"),
		llama.ran("trained on H100 nodes only", "h100"),
		qwen.ran("downloaded dataset and model without a GPU before it trained on H100 nodes", "cpu", "h100"),
		vit.ran("trained on H100 nodes only", "h100"),
		resnet.claim("lost its quota to "+llama.String(), func() bool { return resnet.preemptor == llama }),
		vit.claim("had no pod until "+llama.String()+" finished", func() bool { return !vit.began.Before(&free) }),
		claim{"every pod selected its nodes by the labels of its pool, no more and no less",
			func() bool { return s.misplaced == "" }, func() string { return s.misplaced }},
		resnet.finishes(), llama.finishes(), qwen.finishes(), vit.finishes(), s.quotaFree())
}

func (s *story) set(ctx context.Context) {
	for _, name := range []string{"vision", "language"} {
		team := newSite(ctx, s.cluster, name)
		s.teams, s.made = append(s.teams, team), append(s.made, kit.Namespace(team.Namespace))
	}
	first := s.teams[0]
	s.queue.Name = first.Name("gpus")
	for _, obj := range []client.Object{
		kit.Priority("urgent", 1000), first.Flavor("h100", pools["h100"]), first.Flavor("a100", pools["a100"]),
		kit.ClusterQueue(s.queue.Name, kit.Quota{Flavor: first.Name("h100"), GPUs: quota}, kit.Quota{Flavor: first.Name("a100"), GPUs: quota}),
	} {
		first.Make(ctx, obj)
		s.made = append(s.made, obj)
	}
	for _, team := range s.teams {
		team.Make(ctx, team.LocalQueue())
		team.ready(ctx)
	}
	for _, node := range world.All(ctx, attempt.Gomega(), first, &corev1.NodeList{}).Items {
		for pool, of := range pools {
			if labels.SelectorFromSet(of).Matches(labels.Set(node.Labels)) {
				s.poolOf[node.Name] = pool
			}
		}
	}
}

// strike deletes what the story made, and with the namespaces everything in them.
func (s *story) strike(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	return attempt.To(func() {
		for _, obj := range s.made {
			attempt.Succeed(client.IgnoreNotFound(s.cluster.Client.Delete(ctx, obj)))
		}
		for _, obj := range s.made {
			s.teams[0].EventuallyGone(ctx, obj)
		}
	})
}

func (s *story) submit(ctx context.Context, at site, builder *kit.TrainJobBuilder) *job {
	j := &job{TrainJob: builder.Obj(), at: at, workload: &kueue.Workload{}}
	at.Make(ctx, j.TrainJob)
	gpus := j.Spec.Trainer.ResourcesPerNode.Requests[kit.GPU]
	text := fmt.Sprintf("submitted: %s, %s x %d GPUs", j.Spec.RuntimeRef.Name, show.Count(*j.Spec.Trainer.NumNodes, "node"), gpus.Value())
	if class := j.Labels[kit.PriorityLabel]; class != "" {
		text += ", priority " + class
	}
	s.once(j, plain, text)
	s.jobs = append(s.jobs, j)
	return j
}

func (s *story) look(ctx context.Context) {
	s.teams[0].Read(ctx, &s.queue, s.queue.Name)
	for _, j := range s.jobs {
		j.TrainJob = j.at.TrainJob(ctx, j.Name)
		j.workload, j.pods = cmp.Or(j.at.Workload(ctx, j.Name), &kueue.Workload{}), j.at.Pods(ctx, j.Name)
		s.tellWhy(j)
		s.tellWhere(j)
		if complete(j.TrainJob) && j.condition(kueue.WorkloadFinished).Status == metav1.ConditionTrue {
			s.once(j, s.paint.Green, "succeeded: its quota is free again")
		}
	}
}

// tellWhy tells why a job had to stop, and why it waits.
func (s *story) tellWhy(j *job) {
	// Kueue keeps this message when the job is admitted again.
	message := j.condition(kueue.WorkloadPreempted).Message
	for _, other := range s.jobs {
		if strings.Contains(message, string(other.UID)) {
			j.preemptor = other
			_, why, _ := strings.Cut(message, " due to ")
			why, _, _ = strings.Cut(why, ";")
			s.once(j, s.paint.Red, fmt.Sprintf("preempted by %s: %s", other, why))
		}
	}
	if j.preemptor != nil && len(j.pods) == 0 {
		s.once(j, plain, "stopped: its pods have ended")
	}
	if quota := j.condition(kueue.WorkloadQuotaReserved); quota.Status == metav1.ConditionFalse && !strings.HasPrefix(quota.Message, "Preempted ") {
		s.once(j, s.paint.Yellow, "waits: "+quota.Message)
	}
}

// tellWhere tells where a job may run, and where all pods of a replicated job do.
func (s *story) tellWhere(j *job) {
	for _, pod := range j.pods {
		pool := s.poolOf[pod.Spec.NodeName]
		if j.began.IsZero() {
			j.began = pod.CreationTimestamp
		}
		if runs(pod) {
			j.pools = slices.Compact(append(j.pools, cmp.Or(pool, "cpu")))
		}
		if pod.Spec.NodeName != "" && !maps.Equal(pod.Spec.NodeSelector, pools[pool]) {
			s.misplaced = fmt.Sprintf("pod %s on %s selects %v", pod.Name, pod.Spec.NodeName, pod.Spec.NodeSelector)
		}
	}
	for _, set := range j.admitted() {
		if flavor := set.Flavors[kit.GPU]; flavor != "" {
			s.once(j, s.paint.Cyan, fmt.Sprintf("admitted to pool %s", flavor))
		}
	}
	for _, set := range j.admitted() {
		if nodes := j.nodes(set); nodes != nil {
			s.once(j, plain, fmt.Sprintf("%s runs on %s", set.Name, strings.Join(nodes, ", ")))
		}
	}
}

// once tells of a job what was not told of it yet, by the names that things have without the worlds' suffix.
func (s *story) once(j *job, colour func(string) string, text string) {
	if !slices.Contains(j.told, text) {
		j.told = append(j.told, text)
		s.say(j.String(), colour, short(text))
	}
}

func short(text string) string { return strings.ReplaceAll(text, "-"+suffix, "") }

func (j *job) String() string { return short(j.Namespace + "/" + j.Name) }

func (j *job) condition(name string) metav1.Condition {
	return ptr.Deref(apimeta.FindStatusCondition(j.workload.Status.Conditions, name), metav1.Condition{})
}

// admitted is what Kueue gives now, or gave until the job finished, to each replicated job.
func (j *job) admitted() []kueue.PodSetAssignment {
	if j.condition(kueue.WorkloadAdmitted).Status != metav1.ConditionTrue || j.condition(kueue.WorkloadEvicted).Status == metav1.ConditionTrue {
		return nil
	}
	return j.workload.Status.Admission.PodSetAssignments
}

// nodes are those of the pods of a replicated job, nil as long as not all of them run.
func (j *job) nodes(set kueue.PodSetAssignment) (nodes []string) {
	for _, pod := range world.OfReplicatedJob(j.pods, string(set.Name)) {
		if runs(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	if len(nodes) != int(*set.Count) {
		return nil
	}
	return slices.Sorted(slices.Values(nodes))
}

func (j *job) claim(text string, is func() bool) claim {
	return claim{fmt.Sprintf("%s %s", j, text), is, func() string {
		return fmt.Sprintf("told last: %q; it ran on %v, has %d pods, TrainJob complete: %t", j.told[len(j.told)-1], j.pools, len(j.pods), complete(j.TrainJob))
	}}
}

func (s *story) trains(j *job, pool string) claim {
	return j.claim("trains: all its pods with GPUs run on pool "+pool, func() bool {
		for _, set := range j.admitted() {
			flavor, nodes := string(set.Flavors[kit.GPU]), j.nodes(set)
			if flavor != "" && (flavor != j.at.Name(pool) || nodes == nil || slices.ContainsFunc(nodes, func(node string) bool { return s.poolOf[node] != pool })) {
				return false
			}
		}
		return len(j.admitted()) > 0
	})
}

func (j *job) finishes() claim {
	return j.claim("finishes, TrainJob and Workload, and no pod of it is left running", func() bool {
		return complete(j.TrainJob) && j.condition(kueue.WorkloadFinished).Reason == kueue.WorkloadFinishedReasonSucceeded &&
			!slices.ContainsFunc(j.pods, func(pod corev1.Pod) bool { return pod.Status.Phase != corev1.PodSucceeded })
	})
}

func (j *job) ran(text string, pools ...string) claim {
	return j.claim(text, func() bool { return slices.Equal(j.pools, pools) })
}

func (s *story) quotaFree() claim {
	inUse := func(of kueue.FlavorUsage) bool { return !of.Resources[0].Total.IsZero() }
	return claim{"all quota of ClusterQueue gpus is free again",
		func() bool { return !slices.ContainsFunc(s.queue.Status.FlavorsUsage, inUse) },
		func() string { return fmt.Sprintf("in use are %v", s.queue.Status.FlavorsUsage) }}
}
