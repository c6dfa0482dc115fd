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
	Version   Version
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
	// Restarts is how often a user's own edits may have a job started anew.
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
func Check(versions []Version, want Expectation) []Violation {
	versions = slices.Clone(versions)
	slices.SortStableFunc(versions, func(a, b Version) int { return int(int64(a.RV) - int64(b.RV)) })
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

func (c *checker) report(i Invariant, v Version, format string, args ...any) {
	c.found = append(c.found, Violation{i, v, fmt.Sprintf(format, args...)})
}

// checkEntries: what others wrote into a TrainJob stays as they wrote it.
func (c *checker) checkEntries(v Version, before *unstructured.Unstructured) {
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

// Entries gives the field of spec that holds the patch entries of a TrainJob, which
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

// OtherEntries gives the patch entries of a TrainJob that are not manager's, as JSON.
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
func (c *checker) checkBinding(v Version) {
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
	c.checkExact(v, workloads[0])
}

// place is what only one pod of a job may have at a time.
func place(pod *unstructured.Unstructured) string {
	l := pod.GetLabels()
	return fmt.Sprintf("%s/%s/%s", l["jobset.sigs.k8s.io/replicatedjob-name"], l["jobset.sigs.k8s.io/job-index"], l["batch.kubernetes.io/job-completion-index"])
}

func (c *checker) checkExact(v Version, wl *unstructured.Unstructured) {
	var got corev1.PodSpec
	spec, _ := field(v.Object, "spec").(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &got); err != nil {
		c.report(Exact, v, "%v", err)
		return
	}
	if len(got.SchedulingGates) > 0 {
		c.report(Exact, v, "bound with gates %v", got.SchedulingGates)
	}
	flavor := assignedFlavor(wl, v.Object.GetLabels()["jobset.sigs.k8s.io/replicatedjob-name"])
	versions := c.flavors[flavor]
	if flavor == "" {
		// It asks for nothing that has flavors.
		versions = []*unstructured.Unstructured{{Object: map[string]any{}}}
	}
	if len(versions) == 0 {
		c.report(Exact, v, "admitted to flavor %q, which nobody has seen", flavor)
		return
	}
	if !c.AnyFlavorVersion {
		versions = versions[len(versions)-1:]
	}
	var differences []string
	for _, version := range slices.Backward(versions) {
		difference := c.differs(&got, version)
		if difference == "" {
			return
		}
		differences = append(differences, difference)
	}
	c.report(Exact, v, "admitted to flavor %s: %s", flavor, strings.Join(differences, "; nor as before: "))
}

// differs says in what a pod is not base + flavor, or nothing.
func (c *checker) differs(pod *corev1.PodSpec, flavor *unstructured.Unstructured) string {
	var spec struct {
		NodeLabels  map[string]string   `json:"nodeLabels"`
		Tolerations []corev1.Toleration `json:"tolerations"`
	}
	given, _ := field(flavor, "spec").(map[string]any)
	if err := json.Unmarshal([]byte(toJSON(given)), &spec); err != nil {
		return err.Error()
	}
	selector := maps.Clone(c.NodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	maps.Copy(selector, spec.NodeLabels)
	if !maps.Equal(selector, pod.NodeSelector) {
		return fmt.Sprintf("node selector %v, want %v", pod.NodeSelector, selector)
	}
	want := tolerationSet(append(slices.Clone(c.Tolerations), spec.Tolerations...))
	if got := tolerationSet(pod.Tolerations); !slices.Equal(got, want) {
		return fmt.Sprintf("tolerations %v, want %v", got, want)
	}
	return ""
}

// tolerationSet gives tolerations in an order of their own, without those that
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

// assignedFlavor gives the flavor that a Workload was admitted to with a PodSet.
func assignedFlavor(wl *unstructured.Unstructured, podSet string) string {
	assignments, _ := field(wl, "status", "admission", "podSetAssignments").([]any)
	for _, a := range assignments {
		assignment, ok := a.(map[string]any)
		if !ok || assignment["name"] != podSet {
			continue
		}
		flavors, _ := assignment["flavors"].(map[string]any)
		for _, flavor := range flavors {
			name, _ := flavor.(string)
			return name
		}
	}
	return ""
}

// checkRelease: quota is given back, by the end of the admission or of the Workload, when
// no pod is left. A job that its user deleted
// does not count: its pods are the garbage collector's, and Kueue does not wait for it.
func (c *checker) checkRelease(v Version, before *unstructured.Unstructured) {
	if before == nil || field(before, "status", "admission") == nil || condition(before, "Finished") {
		return
	}
	if !v.Deleted && field(v.Object, "status", "admission") != nil && !condition(v.Object, "Finished") {
		return
	}
	job := c.trainJobOf(v.Object)
	if trainJob := c.objects[job]; trainJob == nil || trainJob.GetDeletionTimestamp() != nil {
		return
	}
	for _, pod := range c.of("Pod", job) {
		if bound(pod) {
			c.report(OneIncarnation, v, "its quota is given away while pod %s runs on %s", pod.GetName(), text(pod, "spec", "nodeName"))
		}
	}
}

func (c *checker) countEvictions(v Version) {
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
func (c *checker) tooManyStarts(versions []Version) []Violation {
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

func lastOf(versions []Version, uid types.UID) Version {
	for _, v := range slices.Backward(versions) {
		if v.Object.GetUID() == uid {
			return v
		}
	}
	return Version{Object: &unstructured.Unstructured{}}
}

func toJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
