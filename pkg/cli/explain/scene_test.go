// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var now = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// minutesAgo is a time before now.
func minutesAgo(n int) metav1.Time { return metav1.NewTime(now.Add(-time.Duration(n) * time.Minute)) }

// scene is a cluster with the pools h100 (4 nodes of 8 GPUs in two racks) and a100 (2 nodes),
// whose quota is that of ClusterQueue gpus, and TrainJob team/llm in LocalQueue gpus.
type scene struct {
	*Facts
	inventory *inventory.Inventory
}

// changes make a scene of what newScene begins with.
type changes []func(*scene)

func given(with ...func(*scene)) changes { return with }

// is has the state pass by itself, or something may be done.
func (c changes) is(phase Phase, reason, message, remedy string) row[State] {
	return row[State]{c, State{Phase: phase, Reason: reason, Message: message, Remedy: remedy}}
}

// stuck has it last until somebody acts.
func (c changes) stuck(phase Phase, reason, message, remedy string) row[State] {
	return row[State]{c, State{Phase: phase, Reason: reason, Message: message, Remedy: remedy, Stuck: true}}
}

// row is a scene and what is made of its facts.
type row[T any] struct {
	scene changes
	want  T
}

// eachScene compares what is made of each scene.
func eachScene[T any](t *testing.T, what string, rows map[string]row[T], of func(*Facts) T, options ...cmp.Option) {
	t.Helper()
	expect.Rows(t, rows, func(t *testing.T, tc row[T]) {
		expect.Same(t, "Unexpected "+what, tc.want, of(newScene(tc.scene...).facts(t)), options...)
	})
}

// newScene begins with a job of 4 nodes x 8 GPUs that was queued 5 minutes ago.
func newScene(with ...func(*scene)) *scene {
	s := &scene{Facts: &Facts{Around: Around{Now: now, Field: patch.Of(trainjob.Trainer23), Manager: waitingFor(10 * time.Second)}}, inventory: &inventory.Inventory{
		Flavors:       []kueue.ResourceFlavor{flavor("h100"), flavor("a100")},
		ClusterQueues: []kueue.ClusterQueue{clusterQueue("gpus", "", quota("h100", "32"), quota("a100", "16"))},
		LocalQueues:   []kueue.LocalQueue{localQueue("gpus", "gpus")},
	}}
	for i := range 4 {
		s.inventory.Nodes = append(s.inventory.Nodes, node("h100", i))
	}
	for i := range 2 {
		s.inventory.Nodes = append(s.inventory.Nodes, node("a100", i))
	}
	s.Job = &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
		Name: "llm", Namespace: "team", UID: "llm-uid", CreationTimestamp: minutesAgo(5),
		Labels: map[string]string{kit.QueueLabel: "gpus"},
	}}
	s.Job.Spec.RuntimeRef.Name = "torch"
	s.Job.Spec.Suspend = new(true)
	s.Workload = waitingWorkload("llm", "gpus", 4, minutesAgo(5))
	s.PodSets = s.Workload.Spec.PodSets
	return kit.With(s, with...)
}

// waitingFor is the configuration of a manager that waits so long for a JobSet.
func waitingFor(wait time.Duration) *config.Configuration {
	return &config.Configuration{WaitForJobSet: &metav1.Duration{Duration: wait}, KueueConfigMap: cluster.WithDefaults(nil).KueueConfigMap}
}

// facts puts the parts together.
func (s *scene) facts(t *testing.T) *Facts {
	t.Helper()
	if s.Workload != nil {
		s.inventory.Workloads = append(s.inventory.Workloads, *s.Workload)
		s.PodSets = podSetsOf(s.Workload)
	}
	s.Cluster = expect.Must(NewCluster(t.Context(), s.inventory))(t)
	return s.Facts
}

func node(pool string, i int) corev1.Node {
	name := fmt.Sprintf("%s-%d", pool, i)
	labels := map[string]string{"pool": pool, "rack": fmt.Sprintf("%s-rack-%d", pool, i/2), corev1.LabelHostname: name}
	return *kit.ReadyNode(name, labels, "nvidia.com/gpu", "8", "memory", "1Ti", "pods", "110")
}

func flavor(name string) kueue.ResourceFlavor { return *kit.PlainFlavor(name, "pool", name) }

func quota(flavor, gpus string) kit.Quota { return kit.Quota{Flavor: flavor, GPUs: gpus} }

// clusterQueue is one that preempts nobody.
func clusterQueue(name, cohort string, quotas ...kit.Quota) kueue.ClusterQueue {
	cq := kit.ClusterQueue(name, quotas...)
	cq.Spec.CohortName, cq.Spec.QueueingStrategy = kueue.CohortReference(cohort), kueue.BestEffortFIFO
	cq.Spec.Preemption, cq.Spec.FlavorFungibility = nil, nil
	return *cq
}

func localQueue(name, cq string) kueue.LocalQueue { return *kit.LocalQueue("team", name, cq) }

func podSet(name string, count int32) kueue.PodSet {
	return kit.PodSet(name, count, "nvidia.com/gpu", "8")
}

// waitingWorkload is the Workload of a TrainJob with pods of 8 GPUs.
func waitingWorkload(job, queue string, count int32, created metav1.Time) *kueue.Workload {
	wl := kit.Workload("team", "trainjob-"+job, queue, created.Time, podSet("node", count))
	wl.UID = types.UID(job + "-workload")
	wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: trainer.GroupVersion.String(), Kind: "TrainJob", Name: job, UID: types.UID(job + "-uid"), Controller: new(true)}}
	return wl
}

// admit gives a Workload quota of a flavor and what else there is to an admission.
func admit(wl *kueue.Workload, cq, flavor string, conditions ...string) {
	kit.Assigned(cq, flavor)(wl)
	for _, condition := range append([]string{kueue.WorkloadQuotaReserved}, conditions...) {
		setCondition(wl, condition, "", "", minutesAgo(2))
	}
}

func setCondition(wl *kueue.Workload, name, reason, message string, at metav1.Time) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
		Type: name, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: at,
	})
}

// with sets a condition of the job's Workload since some minutes.
func with(kind, reason, message string, minutes int) func(*scene) {
	return func(s *scene) { setCondition(s.Workload, kind, reason, message, minutesAgo(minutes)) }
}

func evicted(reason, message string) func(*scene) {
	return with(kueue.WorkloadEvicted, reason, message, 1)
}

// preemptedBy is the job evicted for another one, in Kueue's words.
func preemptedBy(job string, minutes int) func(*scene) {
	return with(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption,
		fmt.Sprintf("Preempted to accommodate a workload (UID: %[1]s-workload, JobUID: %[1]s-uid) due to prioritization in the ClusterQueue", job), minutes)
}

// withoutQuota is the job's Workload after Kueue has looked at it, and what Kueue says.
func withoutQuota(message string) func(*scene) {
	return func(s *scene) {
		s.Workload.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Message: message}}
	}
}

// checked is what an admission check says.
func checked(name string, state kueue.CheckState, message string) func(*scene) {
	return func(s *scene) {
		s.Workload.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: kueue.AdmissionCheckReference(name), State: state, Message: message}}
	}
}

// ended is the job with a final condition.
func ended(kind, reason, message string) func(*scene) {
	return func(s *scene) {
		s.Job.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	}
}

func unseenKind(kind string) func(*scene) {
	return func(s *scene) { s.inventory.Unseen = append(s.inventory.Unseen, kind) }
}

func withoutWorkload(s *scene) { s.Workload = nil }

func switchedOff(s *scene) { s.Workload.Spec.Active = new(false) }

func queueHeld(s *scene) { s.inventory.LocalQueues[0].Spec.StopPolicy = new(kueue.Hold) }

// ofFirst leaves the ClusterQueue with the first of its flavors.
func ofFirst(n int) func(*scene) {
	return func(s *scene) {
		flavors := &s.inventory.ClusterQueues[0].Spec.ResourceGroups[0].Flavors
		*flavors = (*flavors)[:n]
	}
}

var ofH100 = ofFirst(1)

// beside adds a flavor in front that has no GPUs, and the topology of the others.
func beside(name string) func(*scene) {
	return func(s *scene) {
		without := flavor(name)
		without.Spec.TopologyName = s.inventory.Flavors[0].Spec.TopologyName
		s.inventory.Flavors = append(s.inventory.Flavors, without)
		s.inventory.ClusterQueues[0] = clusterQueue("gpus", "", quota(name, "0"), quota("h100", "32"), quota("a100", "16"))
	}
}

// reserved is the job with quota of h100, and placed the job admitted to it.
func reserved(s *scene) { admit(s.Workload, "gpus", "h100") }

func placed(s *scene) { admit(s.Workload, "gpus", "h100", kueue.WorkloadAdmitted) }

// atOnce looks at the moment of the admission.
func atOnce(s *scene) { s.Now = minutesAgo(2).Time }

// taken lets another job hold GPUs of a flavor.
func taken(flavor string, nodes int32) func(*scene) {
	return func(s *scene) {
		other := waitingWorkload("other-"+flavor, "gpus", nodes, minutesAgo(60))
		admit(other, "gpus", flavor, kueue.WorkloadAdmitted)
		s.inventory.Workloads = append(s.inventory.Workloads, *other)
	}
}

// pending lets another job wait in the same queue.
func pending(name string, priority int32, since metav1.Time) func(*scene) {
	return func(s *scene) {
		other := waitingWorkload(name, "gpus", 4, since)
		other.Spec.Priority = new(priority)
		s.inventory.Workloads = append(s.inventory.Workloads, *other)
	}
}

// admitted is the job with quota of h100, resumed, with its JobSet and Job.
func admitted(s *scene) {
	placed(s)
	s.Job.Spec.Suspend = new(false)
	s.JobSet = &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "llm", Namespace: "team"}}
	s.JobSet.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node", Replicas: 1}}
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "llm-node-0", Namespace: "team", Labels: map[string]string{jobsetapi.ReplicatedJobNameKey: "node"}}}
	job.Spec.Parallelism = new(int32(4))
	s.Jobs = []batchv1.Job{job}
}

// withPods returns the job's Job pods.
func withPods(n int, change func(*corev1.Pod)) func(*scene) {
	return func(s *scene) {
		for i := range n {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("llm-node-0-%d", i), CreationTimestamp: minutesAgo(1),
				Labels: map[string]string{batchv1.JobNameLabel: "llm-node-0", jobsetapi.ReplicatedJobNameKey: "node"},
			}}
			pod.Spec.NodeSelector = map[string]string{"pool": "h100"}
			pod.Status.Phase = corev1.PodPending
			change(&pod)
			s.Pods = append(s.Pods, pod)
		}
	}
}

func runningPod(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }

// warned is a warning event about the job.
func warned(reason, message string) func(*scene) {
	return func(s *scene) {
		s.Warnings = append(s.Warnings, corev1.Event{Reason: reason, Message: message, EventTime: metav1.NewMicroTime(minutesAgo(1).Time)})
	}
}

// of has the last warning be about a Job.
func of(job string) func(*scene) {
	return func(s *scene) { s.Warnings[len(s.Warnings)-1].InvolvedObject.Name = job }
}
