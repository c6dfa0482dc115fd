// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The job of most tests.
var (
	jobKey     = client.ObjectKey{Namespace: "ns", Name: "job"}
	jobRequest = ctrl.Request{NamespacedName: jobKey}
)

// dependenciesOn returns the dependencies of a manager that has led for ever, of Trainer 2.3 and of a
// Kueue that manages all namespaces.
func dependenciesOn(tb testing.TB, c client.Client, describer *podsets.Describer) *dependencies {
	tb.Helper()
	settings := testenv.Kueue()
	return &dependencies{
		Describer: describer, client: c, live: c,
		refusals: jobevents.NewRefusals(c), inTree: testenv.InTree(tb, false), trainer: testenv.Served(tb, trainjob.Trainer23),
		expectations: testenv.LedSince(time.Time{}), records: &records{},
		waitForJobSet: config.WaitForJobSet, startTimeout: time.Hour,
		kueue: settings, queues: queues.New(c, c, settings), metrics: inttest.Metrics(), ledger: ledger.New(ledger.Options{}),
	}
}

// newReconciler returns a reconciler for a cluster with one runtime, "torch", and objects.
func newReconciler(t *testing.T, objects ...client.Object) (*reconciler, *events.FakeRecorder) {
	t.Helper()
	c := inttest.Fake(inttest.Runtime(), kit.Namespace(jobKey.Namespace)).Build()
	deps, recorder := dependenciesOn(t, c, testenv.Describer(t, c)), events.NewFakeRecorder(10)
	deps.Defaults = servedDefaults()
	deps.live, deps.Recorder, deps.refusals = inttest.PodsByPhase(c), jobevents.New(recorder), jobevents.NewRefusals(liveEvents(c, nil))
	r := &reconciler{deps: deps}
	create(t, r, objects...)
	return r, recorder
}

// create creates objects, which rows of a table may share, and deletes those that have a deletion time.
func create(t *testing.T, r *reconciler, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		deleted := obj.GetDeletionTimestamp() != nil
		obj.SetResourceVersion("")
		expect.NoError(t, r.deps.client.Create(t.Context(), obj))
		if deleted {
			expect.NoError(t, r.deps.client.Delete(t.Context(), obj))
		}
	}
}

// createDescribed creates the Workload of what a TrainJob asks for.
func createDescribed(t *testing.T, r *reconciler, stored *trainjob.TrainJob, changes ...func(*kueue.Workload)) *kueue.Workload {
	t.Helper()
	wl := inttest.WorkloadOf(stored)
	wl.Spec.PodSets = expect.Must(jobOf(t, r, stored).describe(t.Context()))(t)
	create(t, r, kit.With(wl, changes...))
	return wl
}

// onStatuses returns a reconciler of an API server that has the status of Workloads apart, as a real one does.
func onStatuses(t *testing.T, objects ...client.Object) (*reconciler, *events.FakeRecorder) {
	t.Helper()
	r, recorder := newReconciler(t)
	c := inttest.Fake(append(objects, inttest.Runtime())...).WithStatusSubresource(&kueue.Workload{}).Build()
	r.deps.client, r.deps.live = c, inttest.PodsByPhase(c)
	return r, recorder
}

// jobOf is a TrainJob in the eyes of a reconcile.
func jobOf(tb testing.TB, r *reconciler, stored *trainjob.TrainJob) *job {
	tb.Helper()
	key := client.ObjectKeyFromObject(stored)
	view := expect.Must(state.Observe(tb.Context(), r.deps.client, key))(tb)
	j := &job{deps: r.deps, observed: observed{TrainJob: *stored, key: key, view: view, record: r.deps.records.of(key, stored.UID)}}
	expect.NoError(tb, observeNamespace(tb.Context(), j).err)
	return j
}

// known returns all records.
func known(r *records) (all []*record) {
	r.Range(func(_, value any) bool {
		all = append(all, value.(*record))
		return true
	})
	return all
}

func look(t *testing.T, r *reconciler, key client.ObjectKey) (ctrl.Result, error) {
	t.Helper()
	j, err := r.deps.observe(t.Context(), key)
	if err != nil {
		return ctrl.Result{}, err
	}
	return j.reconcile(t.Context()).asResult()
}

func reconcileOnce(t *testing.T, r *reconciler) (ctrl.Result, *trainjob.TrainJob) {
	t.Helper()
	result, err := look(t, r, jobKey)
	if !errors.Is(err, errOldView) {
		expect.NoError(t, err)
	}
	return result, storedJob(t, r)
}

func storedJob(t *testing.T, r *reconciler) *trainjob.TrainJob {
	t.Helper()
	stored := &trainjob.TrainJob{}
	expect.NoError(t, r.deps.client.Get(t.Context(), jobKey, stored))
	return stored
}

// disagreeing returns a TrainJob and its JobSet: whether each is suspended, and what Trainer says of
// the job since a time.
func disagreeing(job, said, jobSet bool, since time.Time) (*trainjob.TrainJob, *jobsetapi.JobSet) {
	condition := metav1.Condition{Type: trainer.TrainJobSuspended, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}
	if said {
		condition.Status = metav1.ConditionTrue
	}
	t := &trainjob.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}},
		Spec:       trainjob.Spec{Suspend: &job, RuntimeRef: trainer.RuntimeRef{Name: "torch"}},
		Status:     trainer.TrainJobStatus{Conditions: []metav1.Condition{condition}},
	}
	js := inttest.JobSetOf(t, jobSet)
	js.Status.Conditions = []metav1.Condition{kit.True(string(jobsetapi.JobSetSuspended), "")}
	js.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since.Add(-time.Minute))
	return t, js
}

// suspendedJob returns a TrainJob that waits, and its JobSet.
func suspendedJob() (*trainjob.TrainJob, *jobsetapi.JobSet) {
	return disagreeing(true, true, true, time.Now())
}

// formerOf is a deleted TrainJob of the same name.
func formerOf(job *trainjob.TrainJob) *trainjob.TrainJob {
	return kit.With(job.DeepCopy(), func(job *trainjob.TrainJob) { job.UID = "former" })
}

func place(tb testing.TB, job *trainjob.TrainJob, placements ...patch.Placement) {
	tb.Helper()
	patch.Of(trainjob.Trainer23).Set(&job.Spec, placements)
}

func jobSetState(t *testing.T, c client.Client, js *jobsetapi.JobSet) string {
	t.Helper()
	if !inttest.Exists(t, c, js) {
		return "gone"
	}
	inttest.Reload(t, c, js)
	if ptr.Deref(js.Spec.Suspend, false) {
		return "suspended"
	}
	return "runs"
}

// saidOf notes the conditions of Workloads whose status is written, which the fake API server of these tests does not have.
func saidOf(r *reconciler) *[]string {
	var said []string
	r.deps.client = kit.Writes(r.deps.client, func(w kit.Write) error {
		if w.SubResource == "" {
			return nil
		}
		for _, condition := range w.Object.(*kueue.Workload).Status.Conditions {
			said = append(said, fmt.Sprintf("%s %s: %s", condition.Type, condition.Status, condition.Reason))
		}
		return kit.ErrAnswered
	})
	return &said
}

func changeJob(t *testing.T, r *reconciler, change func(*trainjob.TrainJob)) {
	t.Helper()
	expect.NoError(t, r.deps.client.Update(t.Context(), kit.With(storedJob(t, r), change)))
}

func theWorkload(t *testing.T, c client.Client) *kueue.Workload {
	t.Helper()
	var list kueue.WorkloadList
	err := c.List(t.Context(), &list)
	expect.Need(t, err == nil && len(list.Items) == 1, "there are %d Workloads, want one; error: %v", len(list.Items), err)
	return &list.Items[0]
}

func changeWorkload(t *testing.T, c client.Client, change func(*kueue.Workload)) {
	t.Helper()
	expect.NoError(t, c.Update(t.Context(), kit.With(theWorkload(t, c), change)))
}

var preempted = kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption)

// deleted is a Workload that create deletes, going one that is about to go and stays.
func deleted(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.Now()) }

func going(wl *kueue.Workload) { kit.With(wl, deleted).Finalizers = []string{"test/hold"} }

// evictedAgo has Kueue have evicted a Workload some time ago.
func evictedAgo(ago time.Duration) func(*kueue.Workload) {
	evicted := kit.True(kueue.WorkloadEvicted, kueue.WorkloadEvictedByPreemption)
	evicted.LastTransitionTime = metav1.NewTime(time.Now().Add(-ago))
	return kit.Says(evicted)
}

// isDeleted has somebody's finalizer keep a TrainJob that create deletes.
func isDeleted(job *trainjob.TrainJob) {
	job.DeletionTimestamp, job.Finalizers = new(metav1.Now()), []string{"example.com/mine"}
}

func ended(condition string) func(*trainjob.TrainJob) {
	return func(t *trainjob.TrainJob) { t.Status.Conditions = append(t.Status.Conditions, kit.True(condition, "")) }
}

// elsewhere has MultiKueue run a TrainJob in another cluster.
func elsewhere(job *trainjob.TrainJob) { job.Spec.ManagedBy = new(kueue.MultiKueueControllerName) }

func ofPods(count int32) func(*kueue.Workload) {
	return func(wl *kueue.Workload) { wl.Spec.PodSets = []kueue.PodSet{{Name: "node", Count: count}} }
}

// prebuilt has a TrainJob name the Workload that it would get.
func prebuilt(job *trainjob.TrainJob) {
	job.Labels[kueueconstants.PrebuiltWorkloadLabel] = inttest.WorkloadOf(job).Name
}

// giveQuota admits a Workload by ClusterQueue gpus.
func giveQuota(wl *kueue.Workload) {
	kit.Admitted(wl)
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{{Name: "node", Count: new(int32(1))}}}
}

func eventsSoFar(recorder *events.FakeRecorder, text string) []string {
	var found []string
	for len(recorder.Events) > 0 {
		if event := <-recorder.Events; strings.Contains(event, text) {
			found = append(found, event)
		}
	}
	return found
}

// wantTold fails where the first that the user was told lacks a text. With no text wanted, it is that
// anything was told.
func wantTold(t *testing.T, told []string, want string) {
	t.Helper()
	expect.That(t, (len(told) > 0) == (want != "") && (len(told) == 0 || strings.Contains(told[0], want)), "The user is told %q, want %q", told, want)
}

// servedDefaults are those of Kueue's Workload CRD.
var servedDefaults = sync.OnceValue(func() *podsets.Defaults {
	dir := must(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").Output())
	data := must(os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml")))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		panic(err)
	}
	return podsets.FixedDefaults(must(podset.NewDefaults(crd, kueue.SchemeGroupVersion.Version)))
})

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
