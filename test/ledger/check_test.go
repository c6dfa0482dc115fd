// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

type change struct {
	manifest string
	deleted  bool
}

func is(manifests ...string) []change {
	return expect.Each(manifests, func(manifest string) change { return change{manifest: manifest} })
}

func gone(manifests ...string) []change {
	changes := is(manifests...)
	for i := range changes {
		changes[i].deleted = true
	}
	return changes
}

func then(changes ...[]change) []change { return slices.Concat(changes...) }

// unqueued has TrainJob one in no queue.
var unqueued = is(`{kind: TrainJob, metadata: {uid: t-one, name: one}}`)

func history(t *testing.T, changes []change) []record.Version {
	t.Helper()
	versions := make([]record.Version, 0, len(changes))
	for i, c := range changes {
		obj := expect.FromYAML[unstructured.Unstructured](t, c.manifest)
		versions = append(versions, record.Version{RV: uint64(i + 1), Deleted: c.deleted, Object: &obj, At: time.Unix(int64(i+1), 0)})
	}
	return versions
}

// The cluster: two kinds of nodes, a flavor of each, and one of both.
const (
	nodeA   = `{kind: Node, metadata: {uid: na, name: node-a, labels: {gpu: a}}}`
	nodeB   = `{kind: Node, metadata: {uid: nb, name: node-b, labels: {gpu: b}}}`
	flavorA = `{kind: ResourceFlavor, metadata: {uid: fa, name: a}, spec: {nodeLabels: {gpu: a}}}`
	flavorB = `{kind: ResourceFlavor, metadata: {uid: fb, name: b}, spec: {nodeLabels: {gpu: b}}}`
	anyNode = `{kind: ResourceFlavor, metadata: {uid: fc, name: any}}`
	queue   = `{kind: LocalQueue, metadata: {uid: lq, name: queue}, spec: {clusterQueue: cq}}`
)

// clusterQueue has quota of all flavors.
func clusterQueue(name string, quota int) string {
	of := func(flavor string) string {
		return fmt.Sprintf(`{name: %s, resources: [{name: nvidia.com/gpu, nominalQuota: %d}]}`, flavor, quota)
	}
	return fmt.Sprintf(`{kind: ClusterQueue, metadata: {uid: %s, name: %s}, spec: {resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [%s, %s, %s]}]}}`,
		name, name, of("a"), of("b"), of("any"))
}

// inCohort has quota of flavor a, and a cohort.
func inCohort(name, more string) string {
	return fmt.Sprintf(`{kind: ClusterQueue, metadata: {uid: %s, name: %s}, spec: {cohortName: all, resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: a, resources: [{name: nvidia.com/gpu, nominalQuota: 8%s}]}]}]}}`, name, name, more)
}

// cohort has quota of flavor a, and a parent.
func cohort(name, parent string, quota int) string {
	return fmt.Sprintf(`{kind: Cohort, metadata: {uid: %s, name: %s}, spec: {parentName: "%s", resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: a, resources: [{name: nvidia.com/gpu, nominalQuota: %d}]}]}]}}`, name, name, parent, quota)
}

// job is a queued TrainJob with its JobSet and Job; uids are made of its name.
func job(name string) []string {
	return []string{
		fmt.Sprintf(`{kind: TrainJob, metadata: {uid: t-%s, name: %s, labels: {kueue.x-k8s.io/queue-name: queue}}}`, name, name),
		fmt.Sprintf(`{kind: JobSet, metadata: {uid: s-%s, name: %s, ownerReferences: [{kind: TrainJob, uid: t-%s, controller: true}]}}`, name, name, name),
		fmt.Sprintf(`{kind: Job, metadata: {uid: j-%s, name: %s, ownerReferences: [{kind: JobSet, uid: s-%s, controller: true}]}}`, name, name, name),
	}
}

// workloadOf is a Workload of two pods with 4 GPUs each.
func workloadOf(job, status string) string {
	return fmt.Sprintf(`{kind: Workload, metadata: {uid: w-%s, name: %s, ownerReferences: [{kind: TrainJob, uid: t-%s, controller: true}]},
		spec: {podSets: [{name: node, count: 2, template: {spec: {containers: [{name: c, resources: {requests: {nvidia.com/gpu: 4}}}]}}}]}, status: %s}`, job, job, job, status)
}

func admission(flavor string) string {
	return `admission: {clusterQueue: cq, podSetAssignments: [{name: node, count: 2, flavors: {nvidia.com/gpu: ` + flavor + `}, resourceUsage: {nvidia.com/gpu: 8}}]}`
}

func admitted(job, flavor string) string {
	return workloadOf(job, `{`+admission(flavor)+`, conditions: [{type: QuotaReserved, status: "True"}]}`)
}

func jobOf(name, jobSet string) string {
	return fmt.Sprintf(`{kind: Job, metadata: {uid: j-%s, name: one, ownerReferences: [{kind: JobSet, uid: %s, controller: true}]}}`, name, jobSet)
}

// pods are of TrainJob one, on node-a.
func pods(names ...string) (changes []change) {
	for _, name := range names {
		changes = append(changes, is(podOn(name, "one", "node-a"))...)
	}
	return changes
}

func podOn(name, job, node string) string { return podThat(name, job, node, "") }

// podThat has more after its spec.
func podThat(name, job, node, more string) string {
	return fmt.Sprintf(`{kind: Pod, metadata: {uid: p-%s, name: %q, labels: {jobset.sigs.k8s.io/replicatedjob-name: node}, ownerReferences: [{kind: Job, uid: j-%s, controller: true}]},
		spec: {nodeName: %q, containers: [{name: c, resources: {requests: {nvidia.com/gpu: 4}}}]}%s}`, name, name, job, node, more)
}

type over struct {
	Rule                      Rule
	ClusterQueue, Flavor, Job string
	Asked, Allowed            int64
	Ended                     bool
}

func TestCheck(t *testing.T) {
	type row struct {
		// lacks is what there is in the others from the beginning.
		lacks     string
		story     []change
		want      []over
		tolerated []over
		gap       record.Gap
	}
	expect.Rows(t, map[string]row{
		"a job runs on what it is charged for, and ends": {
			story: then(
				is(admitted("one", "a"), podOn("1", "one", "")), pods("1", "2"),
				is(podThat("1", "one", "node-a", ", status: {phase: Succeeded}"), podThat("2", "one", "node-a", ", status: {phase: Failed}")),
				is(workloadOf("one", `{`+admission("a")+`, conditions: [{type: QuotaReserved, status: "True"}, {type: Finished, status: "True"}]}`)),
			),
		},
		"a pod runs while its Workload waits": {story: then(is(workloadOf("one", "{}")), pods("1")), want: []over{{Uncharged, "cq", "a", "one", 4, 0, false}}},
		"a pod runs without a Workload, until it is deleted": {
			story: then(pods("1"), gone(podOn("1", "one", "node-a"))),
			want:  []over{{Uncharged, "cq", "a", "one", 4, 0, true}},
		},
		"a job has a pod more than it is charged for, beside one that has none yet": {
			story: then(is(admitted("one", "a"), admitted("two", "a")), pods("1", "2", "3")),
			want:  []over{{OverQuota, "cq", "a", "", 12, 8, false}, {Uncharged, "cq", "a", "one", 12, 8, false}},
		},
		"a pod is on nodes of another flavor": {
			story: is(admitted("one", "a"), podOn("1", "one", "node-b")),
			want:  []over{{Uncharged, "cq", "b", "one", 4, 0, false}},
		},
		"a pod is on a node that two flavors have, and its Workload has the second": {story: then(is(admitted("one", "any")), pods("1"))},
		"a pod is on a node of no flavor": {
			lacks: anyNode,
			story: then(
				is(`{kind: ResourceFlavor, metadata: {uid: fc, name: any}, spec: {nodeLabels: {gpu: c}}}`),
				is(`{kind: Node, metadata: {uid: nd, name: node-d}}`, admitted("one", "a"), podOn("1", "one", "node-d")),
			),
			want: []over{{Uncharged, "cq", "", "one", 4, 0, false}},
		},
		"a flavor is edited while pods of before run": {
			story: then(is(admitted("one", "a"), `{kind: ResourceFlavor, metadata: {uid: fa, name: a}, spec: {nodeLabels: {gpu: other}}}`), pods("1")),
		},
		"quota goes while a pod terminates": {
			story: then(
				is(admitted("one", "a")), pods("1"),
				is(`{kind: Pod, metadata: {uid: p-1, name: "1", deletionTimestamp: "2026-01-01T00:00:00Z", ownerReferences: [{kind: Job, uid: j-one, controller: true}]}, spec: {nodeName: node-a, containers: [{name: c, resources: {requests: {nvidia.com/gpu: 4}}}]}}`),
				is(workloadOf("one", "{}")), gone(podOn("1", "one", "node-a")),
			),
			want: []over{{Uncharged, "cq", "a", "one", 4, 0, true}},
		},
		"a job is deleted and its pods are orphans": {
			story: then(
				is(admitted("one", "a")), pods("1"),
				is(`{kind: JobSet, metadata: {uid: s-one, name: one}}`), gone(job("one")[0], admitted("one", "a")),
			),
			want: []over{{Uncharged, "cq", "a", "one", 4, 0, false}},
		},
		"a JobSet comes back after its Workload finished": {
			story: then(
				is(admitted("one", "a")), gone(job("one")[1]),
				is(workloadOf("one", `{`+admission("a")+`, conditions: [{type: QuotaReserved, status: "True"}, {type: Finished, status: "True"}]}`)),
				is(`{kind: JobSet, metadata: {uid: again, name: one, ownerReferences: [{kind: TrainJob, uid: t-one, controller: true}]}}`),
				is(jobOf("again", "again"), podOn("1", "again", "node-a")),
			),
			want: []over{{Uncharged, "cq", "a", "one", 4, 0, false}},
		},
		"JobSet makes a Job of a JobSet that is gone, which Kubernetes deletes at once": {
			story: then(
				is(admitted("one", "a")), pods("1", "2"), gone(job("one")...), is(jobOf("late", "s-one"), podOn("3", "late", "node-a")),
				gone(`{kind: Job, metadata: {uid: j-late, name: one}}`, podOn("3", "late", "node-a")),
			),
			tolerated: []over{{Uncharged, "cq", "a", "one", 12, 8, true}},
		},
		"such a Job that nobody deletes": {
			story: then(is(admitted("one", "a")), pods("1", "2"), gone(job("one")[1]), is(jobOf("late", "s-one"), podOn("3", "late", "node-a"))),
			want:  []over{{OverQuota, "cq", "a", "", 12, 8, false}, {Uncharged, "cq", "a", "one", 12, 8, false}},
		},
		"such a Job beside one pod too many": {
			story: then(
				is(admitted("one", "a")), pods("1", "2", "3"), gone(job("one")[1]), is(jobOf("late", "s-one"), podOn("4", "late", "node-a")),
				gone(`{kind: Job, metadata: {uid: j-late, name: one}}`),
			),
			want: []over{{OverQuota, "cq", "a", "", 16, 8, false}, {Uncharged, "cq", "a", "one", 16, 8, false}},
		},
		"a Job whose JobSet goes later": {
			story: then(is(admitted("one", "a")), pods("1", "2"), gone(job("one")[1]), is(job("one")[2]), pods("3")),
			want:  []over{{OverQuota, "cq", "a", "", 12, 8, false}, {Uncharged, "cq", "a", "one", 12, 8, false}},
		},
		"pods come back whose quota was reclaimed": {
			story: then(
				is(admitted("one", "a")), pods("1", "2"),
				is(workloadOf("one", `{`+admission("a")+`, reclaimablePods: [{name: node, count: 1}], conditions: [{type: QuotaReserved, status: "True"}]}`)),
			),
			want: []over{{Uncharged, "cq", "a", "one", 8, 4, false}},
		},
		"a pod asks for nothing": {
			story: is(`{kind: Pod, metadata: {uid: p-1, name: "1", ownerReferences: [{kind: Job, uid: j-one, controller: true}]}, spec: {nodeName: node-a, containers: [{name: c}]}}`),
		},
		"a JobSet that somebody plants under that of a TrainJob is nobody's": {story: is(
			`{kind: JobSet, metadata: {uid: planted, name: planted, ownerReferences: [{kind: JobSet, uid: s-one, controller: true}]}}`,
			jobOf("planted", "planted"), podOn("1", "planted", "node-a"))},
		"a job without a queue is nobody's": {story: then(unqueued, pods("1"))},
		"a job without a queue has a Workload, as with manageJobsWithoutQueueName": {
			story:     then(unqueued, pods("1"), is(workloadOf("one", "{}")), slices.Repeat(is(nodeA), 61)),
			want:      []over{{Uncharged, "", "", "one", 4, 0, false}},
			tolerated: []over{{Uncharged, "", "", "one", 4, 0, true}},
		},
		"a job that runs without a queue stops to come into one": {
			story:     then(unqueued, pods("1"), is(job("one")[0]), slices.Repeat(is(nodeA), 10), gone(podOn("1", "one", "node-a")), is(nodeA)),
			tolerated: []over{{Uncharged, "cq", "a", "one", 4, 0, true}},
		},
		"a job that has come into a queue makes another pod without quota": {
			story: then(unqueued, is(job("one")[0]), pods("1")),
			want:  []over{{Uncharged, "cq", "a", "one", 4, 0, false}},
		},
		"a deactivated job's pods terminate": {
			story: then(is(admitted("one", "a")), pods("1"), is(strings.Replace(admitted("one", "a"), "spec: {", "spec: {active: false, ", 1)), gone(podOn("1", "one", "node-a"))),
			want:  []over{{Uncharged, "cq", "a", "one", 4, 0, true}},
		},
		"Kueue gives more than there is": {
			story: then(is(admitted("one", "a"), admitted("two", "a")), pods("1", "2"), is(podOn("3", "two", "node-a"))),
			want:  []over{{OverQuota, "cq", "a", "", 12, 8, false}},
		},
		"an admin lowers the quota of a running job": {story: then(is(admitted("one", "a")), pods("1"), is(clusterQueue("cq", 0)), pods("2"))},
		"a lowered quota is not given to somebody else": {
			story: then(is(admitted("one", "a"), clusterQueue("cq", 0)), gone(admitted("one", "a")), is(admitted("two", "a"), podOn("1", "two", "node-a"))),
			want:  []over{{OverQuota, "cq", "a", "", 4, 0, false}},
		},
		"a ClusterQueue borrows in its cohort": {
			story: then(
				is(inCohort("cq", ""), inCohort("lends", ""), admitted("one", "a"), admitted("two", "a")),
				pods("1", "2"), is(podOn("3", "two", "node-a"), podOn("4", "two", "node-a")),
			),
		},
		"a ClusterQueue borrows more than it may": {
			story: then(
				is(inCohort("cq", ", borrowingLimit: 2"), inCohort("lends", ""), admitted("one", "a"), admitted("two", "a")),
				pods("1", "2"), is(podOn("3", "two", "node-a")),
			),
			want: []over{{OverQuota, "cq", "a", "", 12, 10, false}},
		},
		"a cohort has not that much": {
			story: then(is(inCohort("cq", ""), admitted("one", "a"), admitted("two", "a")), pods("1", "2"), is(podOn("3", "two", "node-a"))),
			want:  []over{{OverQuota, "cohort all", "a", "", 12, 8, false}},
		},
		"a cohort has quota of its own, and of its parent": {
			story: then(
				is(inCohort("cq", ""), cohort("all", "top", 2), cohort("top", "", 2), admitted("one", "a"), admitted("two", "a")),
				pods("1", "2"), is(podOn("3", "two", "node-a")),
			),
		},
		"a cohort has not that much, and nor has its parent": {
			story: then(
				is(inCohort("cq", ""), cohort("all", "top", 2), cohort("top", "", 1), admitted("one", "a"), admitted("two", "a")),
				pods("1", "2"), is(podOn("3", "two", "node-a")),
			),
			want: []over{{OverQuota, "cohort top", "a", "", 12, 11, false}},
		},
		"versions are missing": {story: then(pods("1"), gone(podOn("1", "one", "node-a"))), gap: record.Gap{From: 1, To: 100}},
	}, func(t *testing.T, tc row) {
		begin := then(is(nodeA, nodeB, flavorA, flavorB, anyNode, clusterQueue("cq", 8), queue), is(job("one")...), is(job("two")...))
		begin = slices.DeleteFunc(begin, func(c change) bool { return c.manifest == tc.lacks })
		got := expect.Must(Check(history(t, then(begin, tc.story)), tc.gap))(t)
		expect.Same(t, fmt.Sprintf("Unexpected violations %v", got.Violations), tc.want, overs(got.Violations))
		expect.Same(t, fmt.Sprintf("Unexpectedly tolerated %v", got.Tolerated), tc.tolerated, overs(got.Tolerated))
	})
}

func overs(violations []Violation) []over {
	return expect.Each(violations, func(v Violation) over {
		return over{v.Rule, v.ClusterQueue, v.Flavor, v.Job, v.Asked, v.Allowed, !v.Until.IsZero()}
	})
}
