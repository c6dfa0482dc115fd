// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const queues = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h100}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohortName: all
  namespaceSelector: {}
  queueingStrategy: BestEffortFIFO
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: h100
      resources: [{name: nvidia.com/gpu, nominalQuota: 8}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: team-a}
spec: {clusterQueue: team-a}
`

const arriving = `time,queue,gpus,duration
0s,team-a/main,8,4h
1h,team-a/main,8,4h
2h,team-a/main,8,4h,10
`

// told runs the command on files of these contents, of which - is standard input, and returns what is said on standard error, too.
func told(t *testing.T, files map[string]string, args ...string) (out, errOut string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if name != "-" {
			expect.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	t.Chdir(dir)
	streams, in, stdout, stderr := genericiooptions.NewTestIOStreams()
	in.WriteString(files["-"])
	flags := cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	cmd := NewCommand(flags, streams)
	flags.AddFlags(cmd.Flags())
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// plays plays a day of the queues, to which jobs come, or nobody.
func plays(t *testing.T, files map[string]string, jobs string, args ...string) (out, errOut string, err error) {
	t.Helper()
	arrivals := "none"
	if jobs != "" {
		arrivals, files["-"] = "-", jobs
	}
	return told(t, files, slices.Concat([]string{"-f", "queues.yaml", "--horizon", "24h", "--arrivals", arrivals}, args)...)
}

// A job that ran before the play began loses that as well, and slices of GPUs count like GPUs.
func TestLostHours(t *testing.T) {
	for _, name := range []string{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"} {
		begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "runs"}}
		wl.Spec.PodSets = []kueue.PodSet{kit.PodSet("node", 1, name, "8")}
		kit.With(wl, kit.Is(kueue.WorkloadAdmitted, ""), kit.Since(begin.Add(-40*time.Hour)), kit.Assigned("gpus", "h100"))
		c := newCounter(begin, 24*time.Hour, nil, []forecast.Job{{Workload: wl}})
		c.tell(forecast.Event{Kind: forecast.Preempted, Job: client.ObjectKeyFromObject(wl), At: begin.Add(time.Hour), Workload: wl})
		expect.Same(t, "GPU-hours of "+name, 8*41.0, c.result.LostGPUHours)
	}
}

func TestPodsOfArrivals(t *testing.T) {
	for gpus, want := range map[int32]string{1: "1 of 1", 8: "1 of 8", 9: "1 of 4, 1 of 5", 12: "2 of 6", 16: "2 of 8", 17: "1 of 5, 2 of 6"} {
		pods := expect.Each(workloadOf(&kueue.LocalQueue{}, 0, gpus, 0, time.Time{}).Spec.PodSets, func(ps kueue.PodSet) string {
			return fmt.Sprintf("%d of %d", ps.Count, ps.Template.Spec.Containers[0].Resources.Requests.Name(gpu.Whole, "").Value())
		})
		expect.Same(t, "Unexpected pods, and GPUs of each", want, strings.Join(pods, ", "))
	}
}

// What an admin adds to the pods of TrainJobs, arrivals have, too.
func TestTolerationRulesOfArrivals(t *testing.T) {
	reserved := corev1.Toleration{Key: "example.com/reserved", Operator: corev1.TolerationOpExists}
	at := &outlook.Outlook{
		Inventory: &inventory.Inventory{LocalQueues: []kueue.LocalQueue{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "main"}}}},
		Manager:   &config.Configuration{TolerationRules: []config.TolerationRule{{Resources: []string{"nvidia.com/*"}, Tolerations: []corev1.Toleration{reserved}}}},
	}
	jobs := expect.Must(readArrivals([]byte("0s,a/main,1,1h\n"), "jobs.csv", at))(t)
	want := []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, reserved}
	expect.Same(t, "Unexpected tolerations", want, jobs[0].Workload.Spec.PodSets[0].Template.Spec.Tolerations)
}

// The earliest is the begin, wherever it stands.
func TestTimesOfArrivals(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	i := &inventory.Inventory{LocalQueues: []kueue.LocalQueue{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "main"}}}}
	at := &outlook.Outlook{Inventory: i, Now: begin}
	newestFirst := "\ufefftime,queue,gpus,duration\n2026-01-31T14:00:00Z,a/main,1,1h\n2026-01-31T12:00:00Z,a/main,1,1h\n"
	jobs := expect.Must(readArrivals([]byte(newestFirst), "jobs.csv", at))(t)
	after := expect.Each(jobs, func(job forecast.Job) time.Duration { return job.Arrives.Sub(begin).Round(time.Second) })
	expect.Same(t, "Unexpected times", []time.Duration{2 * time.Hour, 0}, after)
	_, err := readArrivals([]byte(strings.Repeat("noon,a/main,1,1h\n", 1000)), "jobs.csv", at)
	expect.Same(t, "Lines of the error", 11, strings.Count(err.Error(), "\n")+1)
}

// nodes are two below a topology.
const nodes = `---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n1, labels: {pool: h100, kubernetes.io/hostname: n1}}
  status: {allocatable: {nvidia.com/gpu: 8, pods: 110}, conditions: [{type: Ready, status: "True"}]}
- apiVersion: v1
  kind: Node
  metadata: {name: n2, labels: {pool: h100, kubernetes.io/hostname: n2}}
  status: {allocatable: {nvidia.com/gpu: 8, pods: 110}, conditions: [{type: Ready, status: "True"}]}
`

// racked are the queues with 16 GPUs on these.
var racked = strings.NewReplacer("metadata: {name: h100}", "metadata: {name: h100}\nspec: {nodeLabels: {pool: h100}, topologyName: racks}", "nominalQuota: 8", "nominalQuota: 16").Replace(queues) + nodes

// Who has a place on a node that goes starts over on another.
func TestDrainEvicts(t *testing.T) {
	placed := strings.Replace(of(workloads+runs, "mine", time.Hour, "8"), "resourceUsage:",
		"topologyAssignment: {levels: [kubernetes.io/hostname], slices: [{domainCount: 1, podCounts: {universal: 8}, valuesPerLevel: [{universal: n1}]}]}, resourceUsage:", 1)
	const stops = "warning: drained nodes have 1 job start over, team-a/mine among them\n"
	type row struct {
		args     []string
		starts   int
		gpuHours float64
		warn     string
	}
	expect.Rows(t, map[string]row{
		"one is left":      {args: []string{"--drain", "n1"}, starts: 1, gpuHours: 8 * 4, warn: stops},
		"none is left":     {args: []string{"--drain", "n1", "--drain", "n2"}, warn: stops},
		"it is on another": {args: []string{"--drain", "n2"}, gpuHours: 8 * 3},
	}, func(t *testing.T, tc row) {
		out, warned, err := plays(t, map[string]string{"queues.yaml": racked + placed}, "", append(tc.args, "--assume", "4h", "-o", "json")...)
		expect.NoError(t, err)
		after := expect.FromJSON[Comparison](t, out).After
		expect.Same(t, "Unexpected starts", tc.starts, after.Starts)
		expect.Same(t, "Unexpected GPU-hours", tc.gpuHours, math.Round(16*24*mean(after.Used[0].Shares)))
		expect.Same(t, "Unexpected warnings", tc.warn, warned)
	})
}

func TestAddNodes(t *testing.T) {
	cordoned := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cordoned"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	i := &inventory.Inventory{Flavors: []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}}, Nodes: []corev1.Node{cordoned}}
	c := &changed{Outlook: &outlook.Outlook{Inventory: i}}
	expect.Says(t, addNodes(c, "h100", "1"), "flavor h100 has no node that is ready and not cordoned")
	i.Nodes = append(i.Nodes, *kit.ReadyNode("one", nil))
	expect.NoError(t, addNodes(c, "h100", "2"))
	expect.NoError(t, addNodes(c, "h100", "1"))
	var names []string
	for n := range i.Nodes {
		if inventory.Ready(&i.Nodes[n]) {
			names = append(names, i.Nodes[n].Name)
		}
	}
	expect.Same(t, "Unexpected nodes to which pods can come", []string{"one", "added-h100-0", "added-h100-1", "added-h100-2"}, names)
}

func TestWrongInput(t *testing.T) {
	const gpus = "team-a/h100/nvidia.com/gpu"
	type row struct {
		// jobs come, or nobody.
		jobs, scenario string
		// lending is the lending limit of team-a; empty for none.
		lending string
		args    []string
		want    string
	}
	expect.Rows(t, map[string]row{
		"a time that is none":       {jobs: "noon,team-a/main,8,4h\n", want: `-:1: time: "noon" is neither a time after the begin, such as 90m, nor one like 2026-01-31T12:00:00Z`},
		"a time before the begin":   {jobs: "-90m,team-a/main,8,4h\n", want: `-:1: time: "-90m" is before the begin`},
		"columns in another order":  {jobs: "queue,time,gpus,duration\nteam-a/main,1h,8,4h\n", want: "-:1: the columns are queue,time,gpus,duration, and not time,queue,gpus,duration,priority"},
		"a queue that is not there": {jobs: "time,queue,gpus,duration\n1h,team-b/main,8,4h\n", want: `-:2: queue: there is no LocalQueue "team-b/main": write it as namespace/name`},
		"GPUs that are none":        {jobs: "1h,team-a/main,many,4h\n", want: `-:1: gpus: "many" is no number of GPUs`},
		"GPUs beyond all bounds":    {jobs: "1h,team-a/main,99999999999,4h\n", want: `-:1: gpus: "99999999999" is no number of GPUs`},
		"a row that is too short":   {jobs: "1h,team-a/main\n", want: "-:1: there are 2 fields, and not time,queue,gpus,duration"},

		"a job that comes before the begin": {args: []string{"--job", "one.yaml@+-2h"}, want: `"-2h" is no time like 2h`},
		"a negative quota":                  {args: []string{"--set-quota", gpus + "=-8"}, want: `setQuota[0] "team-a/h100/nvidia.com/gpu=-8": "-8" is negative`},
		"a negative limit":                  {args: []string{"--set-borrowing-limit", gpus + "=-1"}, want: `setBorrowingLimit[0] "team-a/h100/nvidia.com/gpu=-1": "-1" is negative`},
		"an unknown flavor": {args: []string{"--set-quota", "team-a/a100/nvidia.com/gpu=8"},
			want: `setQuota[0] "team-a/a100/nvidia.com/gpu=8": ClusterQueue team-a has no quota of nvidia.com/gpu in flavor a100`},
		"a quota below what is lent": {lending: "4", args: []string{"--set-quota", gpus + "=2"}, want: `setQuota[0] "team-a/h100/nvidia.com/gpu=2": ClusterQueue team-a lends up to 4 of it, and Kueue takes no quota below that`},
		"half a change":              {args: []string{"--add-nodes", "h100"}, want: `addNodes[0] "h100": there is no = in it`},
		"a node that there is not":   {args: []string{"--drain", "n9"}, want: `drain[0] "n9": there is no such node`},
		"advice for what is changed": {args: []string{"--for", "team-a/mine", "--now", "--set-quota", gpus + "=16"}, want: "--now tells of things as they are: leave the changes out"},
		"advice as a chart":          {args: []string{"--for", "team-a/mine", "--now", "-o", "svg"}, want: "--now goes with -o json or jsonpath=TEMPLATE, or without -o"},
		"a negative time":            {args: []string{"--assume", "-4h"}, want: "--assume: -4h0m0s is no time that a job runs"},

		"a field that a scenario does not have": {scenario: "setQuotas: []\n", want: `unknown field "setQuotas"`},
		"two scenarios in a file":               {scenario: "drain: [a]\n---\ndrain: [b]\n", want: "s.yaml:3: a scenario is one document, and here another begins"},
		"a preemption policy that there is not": {scenario: "preemption: {team-a: {withinClusterQueue: Any, reclaimWithinCohort: Sometimes, borrowWithinCohort: {policy: Any}}}\n",
			want: "s.yaml: preemption[team-a].withinClusterQueue: \"Any\" is none of [Never LowerPriority LowerOrNewerEqualPriority]\n" +
				"preemption[team-a].reclaimWithinCohort: \"Sometimes\" is none of [Never LowerPriority Any]\npreemption[team-a].borrowWithinCohort.policy: \"Any\" is none of [Never LowerPriority]"},
		"preemption while borrowing, and no reclaim": {scenario: "preemption: {team-a: {borrowWithinCohort: {policy: LowerPriority}}}\n",
			want: "s.yaml: preemption[team-a].borrowWithinCohort.policy: Kueue takes LowerPriority with a reclaimWithinCohort that is not Never only"},
		"a strategy that there is not": {scenario: "fairSharing: {preemptionStrategies: [LessThanInitialShare, Nonsense]}\n",
			want: `s.yaml: fairSharing.preemptionStrategies[1]: "Nonsense" is none of [LessThanOrEqualToFinalShare LessThanInitialShare]`},
	}, func(t *testing.T, tc row) {
		args := tc.args
		if tc.scenario != "" {
			args = append(args, "--scenario", "s.yaml")
		}
		quotas := queues
		if tc.lending != "" {
			quotas = strings.Replace(queues, "nominalQuota: 8", "nominalQuota: 8, lendingLimit: "+tc.lending, 1)
		}
		_, _, err := plays(t, map[string]string{"queues.yaml": quotas, "s.yaml": tc.scenario}, tc.jobs, args...)
		expect.Need(t, err != nil, "there is no error")
		expect.Says(t, err, tc.want)
	})
}

const workloads = `---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: %[1]s, namespace: team-a, uid: %[1]s, creationTimestamp: "%[2]s", ownerReferences: [{apiVersion: v1, kind: TrainJob, name: %[1]s, uid: j-%[1]s}]}
spec:
  queueName: main
  priority: 0
  active: true
  podSets: [{name: node, count: %[3]s, template: {spec: {containers: [{name: node, image: x, resources: {requests: {nvidia.com/gpu: 1}}}]}}}]
`

const runs = `status:
  admission: {clusterQueue: team-a, podSetAssignments: [{name: node, count: %[3]s, flavors: {nvidia.com/gpu: h100}, resourceUsage: {nvidia.com/gpu: %[3]s}}]}
  conditions:
  - {type: QuotaReserved, status: "True", lastTransitionTime: "%[2]s", reason: QuotaReserved, message: ""}
  - {type: Admitted, status: "True", lastTransitionTime: "%[2]s", reason: Admitted, message: ""}
`

// of fills in the name, the age and the GPUs of a Workload.
func of(text, name string, age time.Duration, gpus string) string {
	return strings.NewReplacer("%[1]s", name, "%[2]s", time.Now().Add(-age).UTC().Format(time.RFC3339), "%[3]s", gpus).Replace(text)
}

// sliced has slices of GPUs in place of whole ones.
func sliced(text string) string {
	return strings.ReplaceAll(text, "nvidia.com/gpu", "nvidia.com/mig-1g.10gb")
}

// Whatever they are ordered by, the same jobs are one way.
func TestNowTellsASetOnce(t *testing.T) {
	all := queues + of(workloads+runs, "small", 6*time.Hour, "2") + of(workloads+runs, "large", 2*time.Hour, "6") + of(workloads, "mine", time.Minute, "8")
	at := expect.Must(readFiles([]manifest.File{*manifest.Parse("queues.yaml", []byte(all))}, "default"))(t)
	at.Now = time.Now()
	for n, age := range []time.Duration{6 * time.Hour, 2 * time.Hour} { // Both lose 12 GPU-hours.
		for c := range at.Workloads[n].Status.Conditions {
			at.Workloads[n].Status.Conditions[c].LastTransitionTime.Time = at.Now.Add(-age)
		}
	}
	advice := expect.Must(advise(t.Context(), at, "team-a/mine"))(t)
	got := expect.Each(advice.Ways, func(way Way) []string { return expect.Each(way.Without, func(loss Loss) string { return loss.Job }) })
	expect.Same(t, "Unexpected ways", [][]string{{"team-a/large", "team-a/small"}}, got)
}

// One that has stopped, or that starts by a clock which is ahead, has nothing to lose.
func TestRunsSince(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		admitted  func(*kueue.Workload)
		ago, want time.Duration
	}{
		"it runs":                 {admitted: kit.Is(kueue.WorkloadAdmitted, ""), ago: time.Hour, want: time.Hour},
		"it was stopped":          {admitted: kit.Isnt(kueue.WorkloadAdmitted, ""), ago: time.Hour},
		"it starts in the future": {admitted: kit.Is(kueue.WorkloadAdmitted, ""), ago: -time.Hour},
	} {
		wl := kit.With(&kueue.Workload{}, tc.admitted, kit.Since(now.Add(-tc.ago)))
		expect.Same(t, name, tc.want, now.Sub(runsSince(wl, now)))
	}
}

// A job that was created again has a Workload that has ended, whose priority matters no more.
func TestPriorityOfEnded(t *testing.T) {
	done := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "llm"}}
	kit.Is(kueue.WorkloadFinished, "")(&done)
	waits := kueue.Workload{ObjectMeta: done.ObjectMeta}
	i := &inventory.Inventory{Workloads: []kueue.Workload{done, waits}}
	expect.NoError(t, setPriority(&changed{Outlook: &outlook.Outlook{Inventory: i}}, inventory.JobName(&waits), "7"))
	expect.That(t, i.Workloads[0].Spec.Priority == nil && i.Workloads[1].Spec.Priority != nil, "the one that has ended is changed")
}

// A priority that is changed is not that of those who come like the job.
func TestPriorityOfArrivals(t *testing.T) {
	before := outlook.Outlook{Now: time.Now(), Inventory: &inventory.Inventory{
		ClusterQueues: []kueue.ClusterQueue{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
		LocalQueues:   []kueue.LocalQueue{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "a"}}},
		Workloads:     []kueue.Workload{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "llm", CreationTimestamp: metav1.Now()}, Spec: kueue.WorkloadSpec{QueueName: "main"}}},
	}}
	scenario := Scenario{Priorities: []string{inventory.JobName(&before.Workloads[0]) + "=7"}}
	after := expect.Must(scenario.apply(&before))(t)
	o := &options{}
	for _, at := range []*outlook.Outlook{&before, after.Outlook} {
		q, _ := at.Question()
		o.keepComing(q)
		expect.That(t, len(q.Arrivals) == 1 && q.Arrivals[0].Workload.Spec.Priority == nil, "others come with %v", q.Arrivals)
	}
}

// Who comes is drawn from a day at least, and only from jobs whose running times are known.
func TestWhoComes(t *testing.T) {
	young := queues + of(workloads, "one", time.Hour, "8") + of(workloads, "two", 20*time.Minute, "8")
	old := queues + of(workloads, "one", 48*time.Hour, "8") + of(workloads, "two", 20*time.Minute, "8")
	limited := strings.ReplaceAll(old, "active: true", "active: true\n  maximumExecutionTimeSeconds: 7200")
	type row struct {
		queues, warn, err string
		args              []string
		comes             bool
	}
	expect.Rows(t, map[string]row{
		"an hour is known": {queues: young, args: []string{"--assume", "4h"},
			warn: "warning: nobody is taken to come: it is known of the last 60 min only who came, and a day is the least; a CSV of --arrivals says it\n"},
		"no running time is known": {queues: old,
			err: "nothing is known of how long 2 of 2 jobs run that came in the last days, like whom others would come: take a time for them, such as --assume 4h, or say who comes with --arrivals, a CSV or none"},
		"one is assumed":        {queues: old, args: []string{"--assume", "4h"}, comes: true},
		"all have a time limit": {queues: limited, comes: true},
		"nobody came":           {queues: queues},
	}, func(t *testing.T, tc row) {
		out, warned, err := told(t, map[string]string{"queues.yaml": tc.queues}, append(tc.args, "-f", "queues.yaml", "-o", "csv")...)
		expect.Same(t, "Unexpected error", tc.err, expect.Text(err))
		expect.Same(t, "Unexpected warnings", tc.warn, warned)
		jobs := 0
		_, totals, _ := strings.Cut(out, "\nbefore,,,")
		_, _ = fmt.Sscan(strings.Split(totals, ",")[0], &jobs) // There is none without jobs.
		expect.Same(t, "Others come", tc.comes, jobs > 2)
	})
}

func TestPrometheus(t *testing.T) {
	server := kit.Prometheus(t, "", func(_ string, ranged bool) string {
		if ranged {
			return ""
		}
		return `{"metric":{"namespace":"team-a","local_queue":"main","le":"3600"},"value":[0,"20"]}`
	})
	coming := map[string]string{"queues.yaml": queues + of(workloads, "mine", time.Minute, "4")}
	_, got, err := plays(t, coming, "", "--prometheus", server.URL)
	expect.NoError(t, err)
	expect.Same(t, "Unexpected warnings", "", got)
	server.Close()
	_, _, err = told(t, coming, "-f", "queues.yaml", "--prometheus", server.URL)
	expect.Says(t, err, "asking Prometheus: ")
}

// The page on forecasts shows what these files give.
func TestSamplesOfThePage(t *testing.T) {
	samples := expect.Must(filepath.Abs("../../../docs/samples"))(t)
	page := string(expect.Must(os.ReadFile(filepath.Join(samples, "..", "forecast.md")))(t))
	got, _, err := told(t, nil, "-f", filepath.Join(samples, "forecast-queues.yaml"), "--arrivals", filepath.Join(samples, "forecast-jobs.csv"),
		"--horizon", "24h", "--set-quota", "team-a/h100/nvidia.com/gpu=16")
	expect.NoError(t, err)
	expect.That(t, strings.Contains(page, "\n"+got+"```"), "the page does not show:\n%s", got)
}

func TestCommand(t *testing.T) {
	const (
		taint   = "metadata: {name: h100}\nspec: {nodeTaints: [{key: %s, value: present, effect: NoSchedule}]}"
		never   = "warning: 1 job would not start even if nobody else was there, team-a/line-000001 among them\n"
		stopped = "warning: ClusterQueue team-a is not active: Can't admit new workloads: is stopped.\n" + never
		missing = "warning: ClusterQueue team-a is not active: Can't admit new workloads: references missing %s.\n" + never
		hour    = "0s,team-a/main,8,1h\n"
		large   = "team-a/h100/nvidia.com/gpu=16"
	)
	one, mine := of(workloads, "one", time.Minute, "1"), of(workloads, "mine", time.Minute, "4")
	in := func(from, to string) string { return strings.Replace(queues, from, to, 1) }
	full := of(workloads+runs, "old", 10*time.Hour, "4") + of(workloads+runs, "young", time.Hour, "2") + of(workloads+runs, "middle", 3*time.Hour, "2")
	// Of 36 GPUs all are used, and 8 are asked for.
	alone := of(workloads+runs, "one", time.Hour, "6") + of(workloads+runs, "two", 63*time.Minute, "6") + of(workloads+runs, "alone", 66*time.Minute, "8") +
		of(workloads+runs, "large", 5*time.Hour, "16") + of(workloads, "mine", time.Minute, "8")
	later := "status: {requeueState: {count: 1, requeueAt: \"" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "\"}}\n"
	without := strings.ReplaceAll(one, ", namespace: team-a", "")
	two := "0s,team-a/main,8,100h\n0s,team-a/main,8,100h\n"
	now := []string{"--for", "team-a/mine", "--now"}
	type row struct {
		queues, warned, err string
		// jobs come, or nobody.
		jobs string
		// one is a file with a Workload.
		one  string
		args []string
		// want are parts of what is said.
		want []string
	}
	expect.Rows(t, map[string]row{
		"as things are": {queues: queues, jobs: arriving, want: []string{`QUEUE         SIZE       JOBS   WAITING AT END   MEDIAN WAIT   P90 WAIT
all           -          3      0                0 min         9 h
team-a/main   -          3      0                0 min         9 h
team-a/main   2-8 GPUs   3      0                0 min         9 h

STARTS   PREEMPTIONS   GPU-HOURS LOST TO THEM
4        1             16

FLAVOR   GPUS      USED, OVER 24 H                                                MEAN
h100     8         ███████████████████████████████████                            58 %
`}},
		"what comes after the end does not count, and who waits at the end has waited since it came": {queues: queues, jobs: "0s,team-a/main,8,40h\n20h,team-a/main,8,4h\n25h,team-a/main,8,4h\n", args: []string{"-o", "csv", "--set-quota", large},
			want: []string{`scenario,queue,size,jobs,waiting,medianSeconds,p90Seconds
before,,,2,1,14400,14400
before,team-a/main,,2,1,14400,14400
before,team-a/main,2-8 GPUs,2,1,14400,14400
after,,,2,0,0,0
after,team-a/main,,2,0,0,0
after,team-a/main,2-8 GPUs,2,0,0,0
`}, warned: "warning: 1 of 3 rows in --arrivals after the horizon of 24 h: --horizon takes a longer one\n"},
		"a chart":           {queues: queues, jobs: arriving, args: []string{"-o", "svg"}, want: []string{`<polyline fill="none" stroke="#888888"`}},
		"for a spreadsheet": {queues: queues, jobs: arriving, args: []string{"-o", "csv"}, want: []string{"before,team-a/main,2-8 GPUs,3,0,"}},
		"for scripts":       {queues: queues, jobs: arriving, args: []string{"-o", "json"}, want: []string{`"preemptions": 1`}},
		"for scripts, where nobody comes and nothing has GPUs": {queues: strings.ReplaceAll(queues, "nvidia.com/gpu", "cpu"), args: []string{"-o", "json"},
			want: []string{`"waits": []`, `"used": []`}},
		"what changes bring has a row": {
			queues: queues, one: one, args: []string{"--assume", "1h", "--job", "one.yaml@+2h"},
			want: []string{"\nteam-a/main   1 GPU   0 → 1   0 → 0            0 min → 0 min   0 min → 0 min\n"}},
		"a Workload that is there comes twice more, from a file where it is deactivated": {queues: queues + one, one: strings.ReplaceAll(one, "active: true", "active: false"), args: []string{"--assume", "1h", "--job", "one.yaml@+2h", "--job", "one.yaml@+3h"},
			want: []string{"\n1 → 3    0 → 0         0 → 0\n"}},
		"the taint of GPU nodes, which arrivals tolerate": {queues: in("metadata: {name: h100}", fmt.Sprintf(taint, "nvidia.com/gpu")), jobs: hour},
		"a taint of the site, for which arrivals wait, and none of the others": {queues: in("metadata: {name: h100}", fmt.Sprintf(taint, "example.com/reserved")), jobs: hour + "1h,team-a/main,8,1h\n",
			warned: "warning: 2 jobs would not start even if nobody else was there, team-a/line-000001 among them\n"},
		"nodes are room below a topology":  {queues: racked, jobs: two, args: []string{"-o", "csv"}, want: []string{"\nbefore,,,2,0,"}},
		"of which one goes":                {queues: racked, jobs: two, args: []string{"-o", "csv", "--drain", "n1"}, want: []string{"\nafter,,,2,1,"}},
		"of which one goes, and one comes": {queues: racked, jobs: two, args: []string{"-o", "csv", "--drain", "n1", "--add-nodes", "h100=1"}, want: []string{"\nafter,,,2,0,"}},
		"nodes without a topology, which are no room": {queues: strings.Replace(racked, ", topologyName: racks", "", 1), args: []string{"--drain", "n1", "--add-nodes", "h100=1"},
			warned: "warning: nothing changes by more nodes of flavor h100 and node n1: nodes are room below a topology alone, and there is none\n"},
		"a job of which nothing is known, in both plays": {queues: queues + mine, args: []string{"--set-quota", large},
			warned: "warning: nothing is known of how long 1 job run, team-a/mine among them: they run to the end; --assume 4h takes a time for them\n"},
		"a job that its TrainJob gives a time": {queues: queues + strings.ReplaceAll(of(workloads+runs, "mine", time.Hour, "4"), "v1, kind: TrainJob", "trainer.kubeflow.org/v1alpha1, kind: TrainJob") +
			"---\napiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: mine, namespace: team-a, uid: j-mine}\nspec: {runtimeRef: {name: torch}, activeDeadlineSeconds: 7200}\n"},
		"a job with a time limit":  {queues: queues + strings.ReplaceAll(of(workloads+runs, "mine", time.Hour, "4"), "active: true", "active: true\n  maximumExecutionTimeSeconds: 7200")},
		"a flavor that is missing": {queues: in("metadata: {name: h100}", "metadata: {name: other}"), jobs: hour, warned: fmt.Sprintf(missing, "ResourceFlavor(s): h100")},
		"a check that is missing":  {queues: in("spec:\n", "spec:\n  admissionChecksStrategy: {admissionChecks: [{name: capacity}]}\n"), jobs: hour, warned: fmt.Sprintf(missing, "AdmissionCheck(s): capacity")},
		"a queue that is stopped":  {queues: in("spec:\n", "spec:\n  stopPolicy: Hold\n"), jobs: hour, warned: stopped},
		"a queue that is stopped, and is empty": {queues: in("spec:\n", "spec:\n  stopPolicy: Hold\n"), jobs: "25h,team-a/main,8,1h\n",
			warned: "warning: 1 of 1 row in --arrivals after the horizon of 24 h: --horizon takes a longer one\n"},
		"what names no namespace is in that of -n": {queues: strings.ReplaceAll(queues, ", namespace: team-a", "") + without, one: without,
			args: []string{"-n", "team-a", "--assume", "1h", "--job", "one.yaml@+2h", "-o", "csv"}, want: []string{"\nbefore,team-a/main,,1,0,", "\nafter,team-a/main,,2,0,"}},
		"who is left out there": {queues: queues, one: without, args: []string{"-n", "team-b", "--assume", "1h", "--job", "one.yaml@+2h"},
			warned: "warning: 1 Workload left out, whose queues are not there or have no quota for them, team-b/one among them\n"},
		"without whom a job would start": {queues: queues + full + mine, args: now, want: []string{`team-a/mine would get quota now without these; nothing is changed by this command:

WAY   WITHOUT         LOSES                            IN ALL
1     team-a/middle   6.0 GPU-hours since its start    8.0 GPU-hours
1     team-a/young    2.0 GPU-hours since its start
2     team-a/old      40.0 GPU-hours since its start   40.0 GPU-hours
`}},
		"without whom a job would start on slices": {queues: sliced(queues + full + mine), args: now, want: []string{"\n2     team-a/old      40.0 GPU-hours since its start   40.0 GPU-hours\n"}},
		"slices count as GPUs":                     {queues: sliced(queues + of(workloads+runs, "old", 10*time.Hour, "8") + mine), args: []string{"--assume", "12h", "-o", "csv"}, want: []string{"\nbefore,team-a/main,2-8 GPUs,1,0,"}},
		"slices have a chart":                      {queues: sliced(queues), want: []string{"\nh100     8 "}},
		"a job without GPUs": {queues: strings.ReplaceAll(queues+mine, "nvidia.com/gpu", "cpu"), args: []string{"--assume", "1h"},
			want: []string{"\nteam-a/main   no GPU   1 "}},
		"without whom a job would start, for scripts": {queues: queues + full + mine, args: slices.Concat(now, []string{"-o", "jsonpath={.job}: {.ways[1].gpuHours}"}), want: []string{"team-a/mine: 40"}},
		"one alone, which is cheaper than any set that is grown": {queues: strings.ReplaceAll(queues, "nominalQuota: 8", "nominalQuota: 36") + alone, args: now,
			want: []string{"\n1     team-a/alone   8.8 GPU-hours since its start    8.8 GPU-hours\n"}},
		"a limit of a queue that is alone": {queues: in("  cohortName: all\n", ""), args: []string{"--set-borrowing-limit", large},
			err: `setBorrowingLimit[0] "` + large + `": ClusterQueue team-a is in no cohort, and can borrow nothing`},
		"one that is held": {queues: queues + strings.ReplaceAll(mine, "queueName: main", "queueName: main.held"), args: now,
			err: "team-a/mine is held out of queue main: resume it first"},
		"one that Kueue tries again later": {queues: queues + of(workloads+later, "mine", time.Minute, "4"), args: now, err: "team-a/mine is to be tried again in "},
	}, func(t *testing.T, tc row) {
		out, warned, err := plays(t, map[string]string{"queues.yaml": tc.queues, "one.yaml": tc.one}, tc.jobs, tc.args...)
		expect.Says(t, err, tc.err)
		expect.Same(t, "Unexpected warnings", tc.warned, warned)
		for _, part := range tc.want {
			expect.That(t, strings.Contains(out, part), "There is no %q:\n%s", part, out)
		}
	})
}

// Kueue may be installed elsewhere, where the manager's configuration says.
func TestReleaseOfKueue(t *testing.T) {
	const configuration = "kind: Configuration\nkueueConfigMap: {namespace: batch, name: mine}\n"
	deployed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: cluster.Kueue.Deployment, Labels: map[string]string{cluster.VersionLabel: "v0.18.2"}}}
	c := kit.Fake(cluster.Scheme(), deployed, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: cluster.ManagerConfigMap}, Data: map[string]string{cluster.ManagerConfigKey: configuration}}).Build()
	var warned []string
	expect.Must(readCluster(t.Context(), c, "", func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) }))(t)
	expect.Same(t, "Unexpected warnings", []string{
		"Kueue's configuration, ConfigMap mine in namespace batch, is not there or not read, its defaults are taken",
		"the cluster has Kueue v0.18.2, and what is played is by the code of 0.19",
	}, warned)
}

// Pods take room below topologies alone, and a cluster has many.
func TestPodsAreReadForTopologies(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "runs"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	for want, objects := range map[int][]client.Object{0: {pod}, 1: {pod, kit.Topology("racks", corev1.LabelHostname)}} {
		c := kit.Fake(cluster.Scheme(), objects...).Build()
		at := expect.Must(readCluster(t.Context(), c, "", func(string, ...any) {}))(t)
		expect.Same(t, "Unexpected number of pods", want, len(at.Pods))
	}
}
