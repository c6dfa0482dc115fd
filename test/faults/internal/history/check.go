// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadevict "sigs.k8s.io/kueue/pkg/workload/evict"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// Invariant names what must always hold.
type Invariant string

// The invariants that every version of every object is checked for.
const (
	OursOnly      Invariant = "ours only"
	Exact         Invariant = "exact"
	NoQuotaNoPod  Invariant = "no quota, no pod"
	NotOursToStop Invariant = "not ours to stop"
)

// Violation says what did not hold, and from which version on.
type Violation struct {
	Invariant Invariant
	Version   record.Version
	Message   string
}

// Expectation is what the checks cannot see in the objects themselves.
type Expectation struct {
	// NodeSelector and Tolerations are those that the pods of every job have without
	// an admission, with GPU tolerations that an integration adds by itself.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	// OwnEntry is the manager of the entry that the integration writes.
	OwnEntry string
	// UserWrites are the resource versions of TrainJobs as users wrote them.
	UserWrites map[uint64]bool
	// Restarts is how often a user's own edits may have a job started again.
	Restarts int
	// AnyFlavorVersion lets pods match a flavor as it was before its latest change, as
	// long as they match one version of it whole: its watch was held back.
	AnyFlavorVersion bool
}

type checker struct {
	Expectation
	found []Violation

	// What there is at one resource version.
	pods      map[types.UID]*corev1.Pod
	workloads map[types.UID]*kueue.Workload
	// trainJobs are without Go types, which could lose a field.
	trainJobs map[types.UID]*unstructured.Unstructured
	// flavors holds all node labels and tolerations that a flavor ever had, the present ones last.
	flavors map[string][]*kueue.ResourceFlavor
	// owners maps a JobSet to its TrainJob; it outlives both.
	owners map[types.UID]types.UID
	// freed is since when a pod has no gate, stopped since when a Workload must not start any, as resource versions.
	freed, stopped map[types.UID]uint64

	// entries are those of other managers as users last wrote them, by TrainJob.
	entries map[types.UID]string
	// starts counts the pods that had a node, by TrainJob and place in it.
	starts    map[started]int
	evictions map[evicted]int32
	last      map[types.UID]record.Version
}

type started struct {
	job   types.UID
	place string
}

type evicted struct{ job, workload types.UID }

// Check goes through versions in the order of their resource versions and gives everything that should not have been.
func Check(versions []record.Version, want Expectation) []Violation {
	c := &checker{
		Expectation: want,
		pods:        map[types.UID]*corev1.Pod{}, workloads: map[types.UID]*kueue.Workload{}, trainJobs: map[types.UID]*unstructured.Unstructured{},
		flavors: map[string][]*kueue.ResourceFlavor{}, owners: map[types.UID]types.UID{}, last: map[types.UID]record.Version{},
		freed: map[types.UID]uint64{}, stopped: map[types.UID]uint64{},
		entries: map[types.UID]string{}, starts: map[started]int{}, evictions: map[evicted]int32{},
	}
	for _, v := range record.InOrder(versions) {
		c.last[v.Object.GetUID()] = v
		if err := c.check(v); err != nil {
			c.report(Exact, v, "%v", err)
		}
	}
	c.checkStarts()
	return c.found
}

func (c *checker) check(v record.Version) error {
	read := func(into any) error {
		return runtime.DefaultUnstructuredConverter.FromUnstructured(v.Object.Object, into)
	}
	switch v.Object.GetKind() {
	case "ResourceFlavor":
		flavor := &kueue.ResourceFlavor{}
		c.flavors[v.Object.GetName()] = append(c.flavors[v.Object.GetName()], flavor)
		return read(flavor)
	case "JobSet":
		if owner := metav1.GetControllerOf(v.Object); owner != nil {
			c.owners[v.Object.GetUID()] = owner.UID
		}
	case "TrainJob":
		if before := replace(c.trainJobs, v, v.Object); !v.Deleted {
			c.checkEntries(v, before)
			c.checkOrder(v, before)
		}
	case "Workload":
		wl := &kueue.Workload{}
		err := read(wl)
		if replace(c.workloads, v, wl); !v.Deleted {
			since(c.stopped, v, workloadevict.IsEvicted(wl) || !workload.IsActive(wl))
		}
		c.countEvictions(c.trainJobOf(wl), wl)
		return err
	case "Pod":
		pod := &corev1.Pod{}
		err := read(pod)
		since(c.freed, v, len(pod.Spec.SchedulingGates) == 0)
		if before := replace(c.pods, v, pod); !v.Deleted && bound(pod) && !bound(before) {
			c.checkBinding(v, pod)
		}
		return err
	}
	return nil
}

func (c *checker) report(i Invariant, v record.Version, format string, args ...any) {
	c.found = append(c.found, Violation{i, v, fmt.Sprintf(format, args...)})
}

// checkEntries: what others wrote into a TrainJob stays as they wrote it. The time in each entry is Trainer's to write.
func (c *checker) checkEntries(v record.Version, before *unstructured.Unstructured) {
	_, all := Entries(v.Object.DeepCopy())
	entries := toJSON(WithoutTime(slices.DeleteFunc(all, c.owns)))
	if before == nil || c.UserWrites[v.RV] {
		c.entries[v.Object.GetUID()] = entries
		return
	}
	if wrote := c.entries[v.Object.GetUID()]; entries != wrote {
		c.report(OursOnly, v, "entries of others are %s, the user wrote %s", entries, wrote)
	}
}

// checkOrder: our entry is the last, so that no other has its way over the admission. What
// a user writes past the webhook is the user's; a start with it is not.
func (c *checker) checkOrder(v record.Version, before *unstructured.Unstructured) {
	if c.UserWrites[v.RV] || c.ownIsLast(v.Object) {
		return
	}
	starts := field(v.Object, "spec", "suspend") == false && (before == nil || field(before, "spec", "suspend") != false)
	if starts || before == nil || c.ownIsLast(before) {
		_, entries := Entries(v.Object)
		c.report(Exact, v, "our patch entry is not the last: %s", toJSON(entries))
	}
}

// ownIsLast reports whether no entry comes after ours. On Trainer 2.1 there is one of ours per replicated job.
func (c *checker) ownIsLast(job *unstructured.Unstructured) bool {
	_, entries := Entries(job)
	first := slices.IndexFunc(entries, c.owns)
	return first < 0 || !slices.ContainsFunc(entries[first:], func(entry any) bool { return !c.owns(entry) })
}

// Entries returns the field of spec that holds the patch entries of a TrainJob, which
// depends on the release of Trainer, and the entries.
func Entries(job *unstructured.Unstructured) (string, []any) {
	for _, name := range []string{"podTemplateOverrides", "runtimePatches"} {
		if entries, ok := field(job, "spec", name).([]any); ok {
			return name, entries
		}
	}
	return "runtimePatches", nil
}

// owns reports whether an entry is ours; an override of Trainer 2.1 has its manager in an annotation.
func (c *checker) owns(entry any) bool {
	fields, _ := entry.(map[string]any)
	manager, ok := fields["manager"]
	if !ok {
		manager = field(&unstructured.Unstructured{Object: fields}, "metadata", "annotations", patch.ManagerAnnotation)
	}
	return manager == c.OwnEntry
}

// WithoutTime leaves out what Trainer stamps into patch entries.
func WithoutTime(entries []any) []any {
	for _, e := range entries {
		if entry, ok := e.(map[string]any); ok {
			delete(entry, "time")
		}
	}
	return entries
}

// checkBinding: a pod that gets a node belongs to an admitted Workload, and looks as that says. That it is the only one at
// its place, and that no quota is given back while pods run, is for the ledger to say.
func (c *checker) checkBinding(v record.Version, pod *corev1.Pod) {
	job := c.trainJobOf(pod)
	c.starts[started{job, place(pod)}]++
	workloads := slices.DeleteFunc(slices.Collect(maps.Values(c.workloads)), func(wl *kueue.Workload) bool { return c.trainJobOf(wl) != job })
	slices.SortFunc(workloads, func(a, b *kueue.Workload) int { return strings.Compare(a.Name, b.Name) })
	running := slices.IndexFunc(workloads, mayRun)
	if running < 0 {
		c.report(NoQuotaNoPod, v, "bound to %s while no Workload of TrainJob %q is admitted", pod.Spec.NodeName, c.lastOf(job).Object.GetName())
		return
	}
	wl := workloads[running]
	if stopped := c.stopped[wl.UID]; stopped > 0 && c.freed[pod.UID] > stopped {
		c.report(NoQuotaNoPod, v, "its gate went at resourceVersion %d, after Workload %s was evicted or deactivated at %d", c.freed[pod.UID], wl.Name, stopped)
	}
	c.checkExact(v, pod, wl)
}

// place is what only one pod of a job may have at a time.
func place(pod *corev1.Pod) string {
	return fmt.Sprintf("%s/%s/%s", replicatedJob(pod), pod.Labels[jobsetapi.JobIndexKey], pod.Labels[batchv1.JobCompletionIndexAnnotation])
}

func replicatedJob(pod *corev1.Pod) string { return pod.Labels[jobsetapi.ReplicatedJobNameKey] }

func (c *checker) checkExact(v record.Version, pod *corev1.Pod, wl *kueue.Workload) {
	if gates := pod.Spec.SchedulingGates; len(gates) > 0 {
		c.report(Exact, v, "bound with gates %v", gates)
	}
	c.checkMarks(v, pod, wl)
	flavors := assignedFlavors(wl, replicatedJob(pod))
	for _, flavor := range flavors {
		if len(c.flavors[flavor]) == 0 {
			c.report(Exact, v, "admitted to flavor %q, which nobody has seen", flavor)
			return
		}
	}
	var differences []string
	got := placement{pod.Spec.NodeSelector, tolerationSet(pod.Spec.Tolerations)}
	for _, want := range c.placements(flavors) {
		difference := cmp.Diff(want, got, cmpopts.EquateEmpty())
		if difference == "" {
			return
		}
		differences = append(differences, difference)
	}
	c.report(Exact, v, "admitted to flavors %v (-want +got):\n%s", flavors, strings.Join(differences, "nor as before:\n"))
}

// checkMarks: a pod carries Kueue's labels and its annotation as its Workload has it, and none besides.
func (c *checker) checkMarks(v record.Version, pod *corev1.Pod, wl *kueue.Workload) {
	want := map[string]string{
		"kueue.x-k8s.io/podset":             replicatedJob(pod),
		"kueue.x-k8s.io/local-queue-name":   string(wl.Spec.QueueName),
		"kueue.x-k8s.io/cluster-queue-name": string(wl.Status.Admission.ClusterQueue),
	}
	if got := KueueKeys(pod.Labels); !maps.Equal(got, want) {
		c.report(Exact, v, "Kueue's labels are %v, want %v", got, want)
	}
	want = map[string]string{"kueue.x-k8s.io/workload": wl.Name}
	if got := KueueKeys(pod.Annotations); !maps.Equal(got, want) {
		c.report(Exact, v, "Kueue's annotations are %v, want %v", got, want)
	}
}

// KueueKeys picks the labels or annotations that are Kueue's, or an integration's.
func KueueKeys(all map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, all)
	maps.DeleteFunc(out, func(key, _ string) bool { return !strings.Contains(key, "kueue") })
	return out
}

type placement struct {
	NodeSelector map[string]string
	Tolerations  sets.Set[string]
}

// placements are what all flavors of a pod add together to what it has without an admission:
// one, or with AnyFlavorVersion one for each combination of their versions, the present ones first.
func (c *checker) placements(flavors []string) []placement {
	all := []placement{{c.NodeSelector, tolerationSet(c.Tolerations)}}
	for _, flavor := range flavors {
		versions := c.flavors[flavor]
		if !c.AnyFlavorVersion {
			versions = versions[len(versions)-1:]
		}
		var more []placement
		for _, version := range slices.Backward(versions) {
			for _, p := range all {
				more = append(more, p.with(version))
			}
		}
		all = more
	}
	return all
}

func (p placement) with(flavor *kueue.ResourceFlavor) placement {
	sum := placement{map[string]string{}, p.Tolerations.Union(tolerationSet(flavor.Spec.Tolerations))}
	maps.Copy(sum.NodeSelector, p.NodeSelector)
	maps.Copy(sum.NodeSelector, flavor.Spec.NodeLabels)
	return sum
}

// tolerationSet leaves out those that Kubernetes adds to every pod.
func tolerationSet(all []corev1.Toleration) sets.Set[string] {
	out := sets.New[string]()
	for _, t := range all {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			out.Insert(toJSON(t))
		}
	}
	return out
}

// assignedFlavors returns the flavors that a Workload was admitted to with a PodSet, for all its resources.
func assignedFlavors(wl *kueue.Workload, podSet string) []string {
	names := sets.New[string]()
	for _, assignment := range wl.Status.Admission.PodSetAssignments {
		for _, flavor := range assignment.Flavors {
			if string(assignment.Name) == podSet {
				names.Insert(string(flavor))
			}
		}
	}
	return sets.List(names)
}

func (c *checker) countEvictions(job types.UID, wl *kueue.Workload) {
	total := int32(0)
	if wl.Status.SchedulingStats != nil {
		for _, eviction := range wl.Status.SchedulingStats.Evictions {
			total += eviction.Count
		}
	}
	of := evicted{job, wl.UID}
	c.evictions[of] = max(total, c.evictions[of])
}

// checkStarts: a job starts once, and once more after each eviction.
func (c *checker) checkStarts() {
	for at, starts := range c.starts {
		evictions := 0
		for of, count := range c.evictions {
			if of.job == at.job {
				evictions += int(count)
			}
		}
		if starts > 1+evictions+c.Restarts {
			c.report(NotOursToStop, c.lastOf(at.job), "%d pods were started at %s, with %d evictions and %d restarts of the user's",
				starts, at.place, evictions, c.Restarts)
		}
	}
}

// lastOf returns the latest version of an object, or an empty one of what nobody has seen.
func (c *checker) lastOf(uid types.UID) record.Version {
	if v, seen := c.last[uid]; seen {
		return v
	}
	return record.Version{Object: &unstructured.Unstructured{}}
}

func toJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
