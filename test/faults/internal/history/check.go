// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// Invariant names what must always hold.
type Invariant string

// The invariants that every version of every object is checked for.
const (
	OursOnly       Invariant = "ours only"
	Exact          Invariant = "exact"
	NoQuotaNoPod   Invariant = "no quota, no pod"
	OneIncarnation Invariant = "one incarnation"
	NotOursToStop  Invariant = "not ours to stop"
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

// checker goes through a history once.
type checker struct {
	Expectation
	*state
	found []Violation
	// entries are those of other managers as users last wrote them, by TrainJob.
	entries map[types.UID]string
	// starts counts the pods that had a node, by TrainJob and place in it.
	starts map[types.UID]map[string]int
	// evictions by Workload, and the TrainJob each belongs to.
	evictions map[types.UID]int64
	jobs      map[types.UID]types.UID
}

// Check goes through versions in the order of their resource versions and gives
// everything that should not have been.
func Check(versions []record.Version, want Expectation) []Violation {
	versions = record.InOrder(versions)
	c := &checker{
		Expectation: want, state: newState(),
		entries: map[types.UID]string{}, starts: map[types.UID]map[string]int{},
		evictions: map[types.UID]int64{}, jobs: map[types.UID]types.UID{},
	}
	for _, v := range versions {
		before := c.apply(v)
		switch v.Object.GetKind() {
		case "TrainJob":
			c.checkEntries(v, before)
			c.checkOrder(v, before)
		case "Workload":
			c.countEvictions(v)
			c.checkRelease(v, before)
		case "Pod":
			if !v.Deleted && bound(v.Object) && (before == nil || !bound(before)) {
				c.checkBinding(v)
			}
		}
	}
	return append(c.found, c.tooManyStarts(versions)...)
}

func (c *checker) report(i Invariant, v record.Version, format string, args ...any) {
	c.found = append(c.found, Violation{i, v, fmt.Sprintf(format, args...)})
}

// checkEntries: what others wrote into a TrainJob stays as they wrote it.
func (c *checker) checkEntries(v record.Version, before *unstructured.Unstructured) {
	if v.Deleted {
		return
	}
	entries := OtherEntries(v.Object, c.OwnEntry)
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
	if v.Deleted || c.UserWrites[v.RV] || c.ownIsLast(v.Object) {
		return
	}
	starts := field(v.Object, "spec", "suspend") == false && (before == nil || field(before, "spec", "suspend") != false)
	if starts || before == nil || c.ownIsLast(before) {
		c.report(Exact, v, "our patch entry is not the last: %s", toJSON(entriesOf(v.Object)))
	}
}

// ownIsLast reports whether no entry comes after ours.
func (c *checker) ownIsLast(job *unstructured.Unstructured) bool {
	entries := entriesOf(job)
	own := slices.IndexFunc(entries, func(e any) bool {
		entry, ok := e.(map[string]any)
		return ok && owner(entry) == c.OwnEntry
	})
	return own < 0 || c.allOwn(entries[own:])
}

// allOwn reports whether all entries are ours: on Trainer 2.1 there is one per replicated job.
func (c *checker) allOwn(entries []any) bool {
	return !slices.ContainsFunc(entries, func(e any) bool {
		entry, ok := e.(map[string]any)
		return !ok || owner(entry) != c.OwnEntry
	})
}

func entriesOf(job *unstructured.Unstructured) []any {
	_, entries := Entries(job)
	return entries
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

// owner is the manager of an entry; an override of Trainer 2.1 has it in an annotation.
func owner(entry map[string]any) any {
	if manager, ok := entry["manager"]; ok {
		return manager
	}
	return field(&unstructured.Unstructured{Object: entry}, "metadata", "annotations", patch.ManagerAnnotation)
}

// OtherEntries returns the patch entries of a TrainJob that are not manager's, as JSON.
// The time in each is Trainer's to write and left out.
func OtherEntries(job *unstructured.Unstructured, manager string) string {
	_, entries := Entries(job)
	others := []any{}
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		if !ok || owner(entry) == manager {
			continue
		}
		entry = maps.Clone(entry)
		delete(entry, "time")
		others = append(others, entry)
	}
	return toJSON(others)
}

// checkBinding: a pod that gets a node belongs to an admitted Workload, looks as that
// says, and is the only one at its place.
func (c *checker) checkBinding(v record.Version) {
	pod := v.Object
	job := c.trainJobOf(pod)
	if c.starts[job] == nil {
		c.starts[job] = map[string]int{}
	}
	c.starts[job][place(pod)]++
	for _, other := range c.of("Pod", job) {
		if other.GetUID() != pod.GetUID() && bound(other) && place(other) == place(pod) {
			c.report(OneIncarnation, v, "pod %s is still there at the same place", other.GetName())
		}
	}
	workloads := slices.DeleteFunc(c.of("Workload", job), func(wl *unstructured.Unstructured) bool { return !admitted(wl) })
	if len(workloads) == 0 {
		c.report(NoQuotaNoPod, v, "bound to %s while no Workload of TrainJob %q is admitted", text(pod, "spec", "nodeName"), c.names[job])
		return
	}
	if stopped := c.stopped[workloads[0].GetUID()]; stopped > 0 && c.freed[pod.GetUID()] > stopped {
		c.report(NoQuotaNoPod, v, "its gate went at resourceVersion %d, after Workload %s was evicted or deactivated at %d",
			c.freed[pod.GetUID()], workloads[0].GetName(), stopped)
	}
	c.checkExact(v, workloads[0])
}

// place is what only one pod of a job may have at a time.
func place(pod *unstructured.Unstructured) string {
	l := pod.GetLabels()
	return fmt.Sprintf("%s/%s/%s", l["jobset.sigs.k8s.io/replicatedjob-name"], l["jobset.sigs.k8s.io/job-index"], l["batch.kubernetes.io/job-completion-index"])
}

func (c *checker) checkExact(v record.Version, wl *unstructured.Unstructured) {
	var got corev1.PodSpec
	spec, _ := field(v.Object, "spec").(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &got); err != nil {
		c.report(Exact, v, "%v", err)
		return
	}
	if len(got.SchedulingGates) > 0 {
		c.report(Exact, v, "bound with gates %v", got.SchedulingGates)
	}
	c.checkMarks(v, wl)
	flavors := assignedFlavors(wl, replicatedJob(v.Object))
	for _, flavor := range flavors {
		if len(c.flavors[flavor]) == 0 {
			c.report(Exact, v, "admitted to flavor %q, which nobody has seen", flavor)
			return
		}
	}
	var differences []string
	for _, placement := range c.placements(flavors) {
		difference := c.differs(&got, placement)
		if difference == "" {
			return
		}
		differences = append(differences, difference)
	}
	c.report(Exact, v, "admitted to flavors %v: %s", flavors, strings.Join(differences, "; nor as before: "))
}

func replicatedJob(pod *unstructured.Unstructured) string {
	return pod.GetLabels()["jobset.sigs.k8s.io/replicatedjob-name"]
}

// checkMarks: a pod carries Kueue's labels and its annotation as its Workload has it, and
// none besides.
func (c *checker) checkMarks(v record.Version, wl *unstructured.Unstructured) {
	want := map[string]string{
		"kueue.x-k8s.io/podset":             replicatedJob(v.Object),
		"kueue.x-k8s.io/local-queue-name":   text(wl, "spec", "queueName"),
		"kueue.x-k8s.io/cluster-queue-name": text(wl, "status", "admission", "clusterQueue"),
	}
	if got := kueueKeys(v.Object.GetLabels()); !maps.Equal(got, want) {
		c.report(Exact, v, "Kueue's labels are %v, want %v", got, want)
	}
	want = map[string]string{"kueue.x-k8s.io/workload": wl.GetName()}
	if got := kueueKeys(v.Object.GetAnnotations()); !maps.Equal(got, want) {
		c.report(Exact, v, "Kueue's annotations are %v, want %v", got, want)
	}
}

func kueueKeys(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		if strings.Contains(key, "kueue") {
			out[key] = value
		}
	}
	return out
}

// placement is what flavors add to a pod.
type placement struct {
	NodeLabels  map[string]string   `json:"nodeLabels"`
	Tolerations []corev1.Toleration `json:"tolerations"`
}

// placements are what all flavors of a pod add together: one, or with AnyFlavorVersion one
// for each combination of their versions, the present ones first.
func (c *checker) placements(flavors []string) []placement {
	all := []placement{{}}
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

func (p placement) with(flavor *unstructured.Unstructured) placement {
	var own placement
	spec, _ := field(flavor, "spec").(map[string]any)
	if err := json.Unmarshal([]byte(toJSON(spec)), &own); err != nil {
		own.NodeLabels = map[string]string{"unreadable": err.Error()}
	}
	sum := placement{NodeLabels: maps.Clone(p.NodeLabels), Tolerations: append(slices.Clone(p.Tolerations), own.Tolerations...)}
	if sum.NodeLabels == nil {
		sum.NodeLabels = map[string]string{}
	}
	maps.Copy(sum.NodeLabels, own.NodeLabels)
	return sum
}

// differs says in what a pod is not base + flavors, or nothing.
func (c *checker) differs(pod *corev1.PodSpec, flavors placement) string {
	selector := maps.Clone(c.NodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	maps.Copy(selector, flavors.NodeLabels)
	if !maps.Equal(selector, pod.NodeSelector) {
		return fmt.Sprintf("node selector %v, want %v", pod.NodeSelector, selector)
	}
	want := tolerationSet(append(slices.Clone(c.Tolerations), flavors.Tolerations...))
	if got := tolerationSet(pod.Tolerations); !slices.Equal(got, want) {
		return fmt.Sprintf("tolerations %v, want %v", got, want)
	}
	return ""
}

// tolerationSet returns tolerations in an order of their own, without those that
// Kubernetes adds to every pod.
func tolerationSet(all []corev1.Toleration) []string {
	var out []string
	for _, t := range all {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			out = append(out, toJSON(t))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// assignedFlavors returns the flavors that a Workload was admitted to with a PodSet, for
// all its resources.
func assignedFlavors(wl *unstructured.Unstructured, podSet string) []string {
	assignments, _ := field(wl, "status", "admission", "podSetAssignments").([]any)
	var names []string
	for _, a := range assignments {
		assignment, ok := a.(map[string]any)
		if !ok || assignment["name"] != podSet {
			continue
		}
		flavors, _ := assignment["flavors"].(map[string]any)
		for _, flavor := range flavors {
			name, _ := flavor.(string)
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkRelease: quota is given back, by the end of the admission or of the Workload, when
// no pod is left, also of a job that its user deleted.
func (c *checker) checkRelease(v record.Version, before *unstructured.Unstructured) {
	if before == nil || field(before, "status", "admission") == nil || condition(before, "Finished") {
		return
	}
	if !v.Deleted && field(v.Object, "status", "admission") != nil && !condition(v.Object, "Finished") {
		return
	}
	job := c.trainJobOf(v.Object)
	for _, pod := range c.of("Pod", job) {
		if bound(pod) {
			c.report(OneIncarnation, v, "its quota is given away while pod %s runs on %s", pod.GetName(), text(pod, "spec", "nodeName"))
		}
	}
}

func (c *checker) countEvictions(v record.Version) {
	c.jobs[v.Object.GetUID()] = c.trainJobOf(v.Object)
	evictions, _ := field(v.Object, "status", "schedulingStats", "evictions").([]any)
	total := int64(0)
	for _, e := range evictions {
		if e, ok := e.(map[string]any); ok {
			count, _ := e["count"].(int64)
			total += count
		}
	}
	c.evictions[v.Object.GetUID()] = max(total, c.evictions[v.Object.GetUID()])
}

// tooManyStarts: a job starts once, and once more after each eviction.
func (c *checker) tooManyStarts(versions []record.Version) []Violation {
	var found []Violation
	for job, places := range c.starts {
		evictions := 0
		for wl, owner := range c.jobs {
			if owner == job {
				evictions += int(c.evictions[wl])
			}
		}
		for place, starts := range places {
			if starts > 1+evictions+c.Restarts {
				found = append(found, Violation{NotOursToStop, lastOf(versions, job), fmt.Sprintf(
					"%d pods were started at %s, with %d evictions and %d restarts of the user's", starts, place, evictions, c.Restarts)})
			}
		}
	}
	return found
}

func lastOf(versions []record.Version, uid types.UID) record.Version {
	for _, v := range slices.Backward(versions) {
		if v.Object.GetUID() == uid {
			return v
		}
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
