// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func queue(i *inventory.Inventory, name, gpus, used, borrowed string) {
	cq := kit.ClusterQueue(name, kit.Quota{Flavor: "h100", GPUs: gpus})
	cq.Spec.CohortName, cq.Spec.QueueingStrategy, cq.Spec.Preemption = "all", kueue.BestEffortFIFO, nil
	cq.Spec.FairSharing = &kueue.FairSharing{Weight: ptr.To(resource.MustParse("2"))}
	cq.Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{
		{Name: gpu.Whole, Total: resource.MustParse(used), Borrowed: resource.MustParse(borrowed)},
	}}}
	i.ClusterQueues, i.LocalQueues = append(i.ClusterQueues, *cq), append(i.LocalQueues, *kit.LocalQueue("ns", name, name))
}

func workload(i *inventory.Inventory, name, queue string, gpus, priority int32, age time.Duration) *kueue.Workload {
	wl := kit.Workload("ns", name, queue, now.Add(-age), kit.PodSet("node", gpus, "nvidia.com/gpu", "1"))
	wl.Spec.Priority = &priority
	i.Workloads = append(i.Workloads, *wl)
	return &i.Workloads[len(i.Workloads)-1]
}

func town() *outlook.Outlook {
	i := &inventory.Inventory{Flavors: []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}}}
	queue(i, "a", "8", "0", "0")
	queue(i, "b", "8", "12", "4")
	kit.With(workload(i, "running", "b", 12, 0, time.Hour), kit.Runs("b", "h100", now.Add(-time.Hour)))
	workload(i, "late", "a", 2, 0, time.Minute)
	workload(i, "early", "a", 2, 0, 2*time.Minute)
	workload(i, "urgent", "a", 2, 10, time.Second)
	workload(i, "borrower", "b", 2, 100, time.Hour)
	return &outlook.Outlook{Inventory: i, Kueue: &configapi.Configuration{}, Now: now, NoArrivals: true}
}

// checkedTown has a check in queue b, for some flavors or for all.
func checkedTown(flavors ...kueue.ResourceFlavorReference) *outlook.Outlook {
	at := town()
	at.ClusterQueue("b").Spec.AdmissionChecksStrategy = kit.Checks("capacity")
	at.ClusterQueue("b").Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = flavors
	at.AdmissionChecks = []kueue.AdmissionCheck{{
		ObjectMeta: metav1.ObjectMeta{Name: "capacity"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/capacity"},
		Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{kit.True(kueue.AdmissionCheckActive, "")}},
	}}
	return at
}

func printed(t *testing.T, at *outlook.Outlook) (*View, string) {
	t.Helper()
	view := expect.Must(newView(t.Context(), at))(t)
	var out strings.Builder
	expect.NoError(t, view.print(&out, show.Paint{}))
	return view, out.String()
}

func TestView(t *testing.T) {
	_, text := printed(t, town())
	expect.Same(t, "Unexpected view", `COHORT   CLUSTERQUEUE   FLAVOR   RESOURCE         NOMINAL   USED   BORROWS   LENT   WEIGHT   SHARE
all      a              h100     nvidia.com/gpu   8         0      0         4      2        0
all      b              h100     nvidia.com/gpu   8         12     4         0      2        125

PLACE   JOB           CLUSTERQUEUE   PRIORITY   NOW      WHY THERE
1       ns/urgent     a              10         starts   the first of its queue
2       ns/borrower   b              100        starts   the first of its queue
3       ns/early      a              0          waits    a lower priority than ns/urgent
4       ns/late       a              0          waits    the same priority as ns/early, and queued later
`, text)
}

// TestViewOfAQueueWithChecks has who holds quota until a check is ready left out, and who would come to that told apart from
// who starts.
func TestViewOfAQueueWithChecks(t *testing.T) {
	at := checkedTown()
	checked := inventory.Find(at.Workloads, "ns", "running")
	apimeta.RemoveStatusCondition(&checked.Status.Conditions, kueue.WorkloadAdmitted)
	view, text := printed(t, at)
	_, table, _ := strings.Cut(text, "\n\n")
	expect.Same(t, "Unexpected order", `PLACE   JOB           CLUSTERQUEUE   PRIORITY   NOW          WHY THERE
1       ns/urgent     a              10         starts       the first of its queue
2       ns/borrower   b              100        gets quota   the first of its queue
3       ns/early      a              0          waits        a lower priority than ns/urgent
4       ns/late       a              0          waits        the same priority as ns/early, and queued later
`, table)
	expect.Same(t, "Unexpected state of one that is to be checked", []bool{false, true}, []bool{view.Waiting[1].StartsNow, view.Waiting[1].GetsQuota})
}

// A check that is for other flavors keeps nobody waiting.
func TestViewOfAQueueWithChecksOfAnotherFlavor(t *testing.T) {
	view, _ := printed(t, checkedTown("other"))
	expect.Same(t, "Unexpected state of a borrower", []bool{true, false}, []bool{view.Waiting[1].StartsNow, view.Waiting[1].GetsQuota})
}

// Where Kueue may look behind the first, one that came later may start before one that is too big.
func TestViewOfOneThatIsPassed(t *testing.T) {
	at := town()
	at.Workloads = slices.DeleteFunc(at.Workloads, func(wl kueue.Workload) bool { return wl.Name == "borrower" })
	workload(at.Inventory, "big", "a", 5, 0, time.Hour)
	view, _ := printed(t, at)
	big := view.Waiting[slices.IndexFunc(view.Waiting, func(w Waiting) bool { return w.Job == "ns/big" })]
	expect.Same(t, "Unexpected reason", "ns/early starts before it", big.Why)
}

func TestViewOfAHeldQueue(t *testing.T) {
	at := town()
	held := at.ClusterQueue("b")
	held.Spec.StopPolicy = ptr.To(kueue.Hold)
	held.Status.FairSharing = &kueue.FairSharingStatus{WeightedShare: 125}
	view, text := printed(t, at)
	expect.Same(t, "Unexpected share", Fair{Weight: 2, Share: 125}, view.Queues[1].Fair)
	expect.That(t, strings.HasSuffix(text, "\n-       ns/borrower   b              100        waits    Kueue does not look at it: explain says why\n"), "unexpected view:\n%s", text)
	at.Kueue = &configapi.Configuration{FairSharing: &configapi.FairSharing{}}
	expect.Same(t, "Unexpected note where Kueue looks at nobody", "", note(at, leftOut(at, nil)))
	expect.Same(t, "Unexpected text", "1", shareText(0.4))
}

func TestViewUnderFairSharing(t *testing.T) {
	at := town()
	at.Kueue = &configapi.Configuration{FairSharing: &configapi.FairSharing{}}
	view, text := printed(t, at)
	expect.That(t, strings.HasSuffix(text, "\nKueue shares fairly: "+strings.TrimPrefix(view.Note, "Kueue shares fairly: ")+"\n"), "unexpected view:\n%s", text)
	expect.Same(t, "Unexpected note where nobody waits", "", note(at, []Waiting{{StartsNow: true}}))
}

// Where Kueue's configuration is not seen, it is not taken to share by turns without a word.
func TestViewWithoutKueuesConfiguration(t *testing.T) {
	at := town()
	at.Kueue = nil
	_, text := printed(t, at)
	expect.That(t, strings.HasSuffix(text, "\nKueue's configuration is not seen: the order is that without fair sharing; an admin sees whether Kueue shares fairly.\n"), "unexpected view:\n%s", text)
}

// Who sees a namespace gets no place, and those at whom Kueue does not look are told apart.
func TestViewOfWhoSeesLittle(t *testing.T) {
	at := town()
	at.Inventory.ClusterQueues, at.Inventory.Unseen = nil, []string{inventory.ClusterQueues, inventory.Workloads}
	workload(at.Inventory, "held", trainjob.HeldQueue("a"), 2, 0, time.Hour)
	at.LocalQueue("ns", "b").Spec.StopPolicy = ptr.To(kueue.Hold)
	at.Inventory.LocalQueues[0].Status.FlavorsReservation = []kueue.LocalQueueFlavorUsage{{Name: "h100", Resources: []kueue.LocalQueueResourceUsage{{Name: gpu.Whole, Total: resource.MustParse("12")}}}}
	view, text := printed(t, at)
	expect.Same(t, "Unexpected view", `LOCALQUEUE   FLAVOR   RESOURCE         USED
ns/a         h100     nvidia.com/gpu   12

PLACE   JOB           CLUSTERQUEUE   PRIORITY   NOW     WHY THERE
-       ns/urgent     a              10         waits   the first of its queue in this namespace
-       ns/early      a              0          waits   a lower priority than ns/urgent
-       ns/late       a              0          waits   the same priority as ns/early, and queued later
-       ns/borrower   b              100        waits   Kueue does not look at it: explain says why
-       ns/held       -              0          waits   Kueue does not look at it: explain says why
`, text)
	expect.Same(t, "Unexpected kinds", at.Inventory.Unseen, view.Unseen)
}

func TestRead(t *testing.T) {
	ours, others := kit.LocalQueue("ns", "a", "a"), kit.LocalQueue("other", "a", "a")
	timeout := apierrors.NewTimeoutError("it takes too long", 1)
	type row struct {
		// cluster and namespace are what is answered to who lists LocalQueues there.
		cluster, namespace error
		configMaps         error
		queues             []string
		unseen             []string
		err                string
		code               int
	}
	expect.Rows(t, map[string]row{
		"all is seen":                          {queues: []string{"ns", "other"}},
		"a namespace is":                       {cluster: kit.Forbidden("localqueues"), queues: []string{"ns"}, unseen: []string{inventory.LocalQueues}},
		"not even that":                        {cluster: kit.Forbidden("localqueues"), namespace: kit.Forbidden("localqueues"), err: "you may not list LocalQueues in namespace ns: name another with -n", code: exit.Unseen},
		"the cluster does not answer for it":   {cluster: kit.Forbidden("localqueues"), namespace: timeout, err: "reading LocalQueues: ", code: exit.Failed},
		"Kueue's configuration is not":         {configMaps: kit.Forbidden("configmaps"), queues: []string{"ns", "other"}, unseen: []string{"configmaps"}},
		"the cluster does not answer for that": {configMaps: timeout, err: "listing the ConfigMaps of namespace", code: exit.Failed},
	}, func(t *testing.T, tc row) {
		c := kit.Fake(cluster.Scheme(), ours, others).WithInterceptorFuncs(kit.Refusing(func(object any, key client.ObjectKey) error {
			switch object.(type) {
			case *corev1.ConfigMapList:
				return tc.configMaps
			case *kueue.LocalQueueList:
				return map[string]error{"": tc.cluster, "ns": tc.namespace}[key.Namespace]
			}
			return nil
		})).Build()
		at, err := read(t.Context(), c, "ns")
		expect.Same(t, "Unexpected exit code", tc.code, exit.Code(err))
		if tc.err != "" {
			expect.Says(t, err, tc.err)
			return
		}
		expect.Same(t, "Unexpected namespaces", tc.queues, kueuelib.Map(at.LocalQueues, func(q *kueue.LocalQueue) string { return q.Namespace }))
		expect.Same(t, "Unexpected kinds", tc.unseen, at.Inventory.Unseen)
	})
}

// Pods take room below topologies alone, and a cluster has many.
func TestPodsAreReadForTopologies(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "runs"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	c := kit.Fake(cluster.Scheme(), pod).Build()
	expect.Same(t, "Unexpected number of pods", 0, len(expect.Must(read(t.Context(), c, ""))(t).Pods))
}
