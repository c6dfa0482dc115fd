// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPrint(t *testing.T) {
	waits := newScene(taken("h100", 3), pending("urgent", 10, minutesAgo(1)), func(s *scene) {
		s.Fields = []provenance.Field{{Job: "node", Path: "spec.template.spec.nodeSelector[disk]",
			Setting:  provenance.Setting{Source: provenance.Source{Kind: provenance.Runtime}, Value: json.RawMessage(`"` + strings.Repeat("long ", 20) + `"`)},
			Overrode: []provenance.Setting{{Source: provenance.Source{Kind: provenance.Patch, Manager: "example.com/me"}, Value: json.RawMessage(`"b"`)}}}}
		s.inventory.Unseen = []string{inventory.Nodes}
	})
	want := `TrainJob team/llm waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100: 8 of 32 GPUs are free; flavor a100: ClusterQueue gpus has 16 GPUs at the most, 2nd of 2 pending.
What helps: wait until others in ClusterQueue gpus have ended, or raise the job's priority (label kueue.x-k8s.io/priority-class) above that of those in front

OBJECT                    STATE       WAITS FOR
TrainJob llm              Suspended   the admission of its Workload
  Workload trainjob-llm   Pending     quota: QuotaInUse
  JobSet llm              Missing     Trainer to make it

Queue: LocalQueue gpus, ClusterQueue gpus, BestEffortFIFO, priority 0
Position: 2nd of 2 pending, behind team/urgent (computed)

REPLICATED JOB   FLAVOR   NEEDS     FREE   QUOTA   MAX   VERDICT
node             h100     32 GPUs   8      32      32    not now: 8 of 32 GPUs are free
node             a100     32 GPUs   16     16      16    never: ClusterQueue gpus has 16 GPUs at the most
What helps with a flavor:
  a100: create the job again, since spec.trainer cannot change, and ask for less (fewer nodes, or less per node), or raise the nominalQuota of flavor a100 in ClusterQueue gpus by 16 GPUs

REPLICATED JOB   PLACEMENT                                    VALUE                                                           SET BY          INSTEAD OF
-                metadata.labels[kueue.x-k8s.io/queue-name]   gpus                                                            TrainJob
node             nodeSelector[disk]                           long long long long long long long long long long long long …   runtime torch   b (example.com/me)

Not seen: you may not list nodes, so this is not the whole story; an admin sees more.
`
	expect.Same(t, "Unexpected output", want, printed(t, new(Explain(waits.facts(t)))))
}

func TestWhatHelpsWithSeveralFlavorsIsSaidOnce(t *testing.T) {
	without := func(flavor, remedy string) Verdict {
		return Verdict{PodSet: "node", Flavor: flavor, Reasons: []Reason{{Code: TooMuch, Lasting: true, Remedy: remedy}}}
	}
	var out strings.Builder
	(&printer{out: &out}).remedies(&Explanation{Flavors: []Verdict{
		without("a100", "add a toleration"), without("h100", "ask for less"), without("b200", "add a toleration"), without("a100", "add a toleration"), without("l40s", "take a\x1b[2J out"),
	}})
	expect.Same(t, "Unexpected lines", "What helps with a flavor:\n  a100, b200: add a toleration\n  h100: ask for less\n  l40s: take a\uFFFD[2J out\n", out.String())
}

// TestPrintWhatIsNotSeen tells of what is not there apart from what the user may not list.
func TestPrintWhatIsNotSeen(t *testing.T) {
	const kueue = noConfiguration + "namespace kueue-system has no ConfigMap kueue-manager-config that can be read"
	var out strings.Builder
	(&printer{out: &out}).unseen([]string{"nodes", kueue, "pods"})
	expect.Same(t, "Unexpected lines", "\nNot seen: "+kueue+", so this is not the whole story; an admin can name it in kueueConfigMap of kueue-trainer's configuration.\n"+
		"\nNot seen: you may not list nodes, pods, so this is not the whole story; an admin sees more.\n", out.String())
}

// TestPositionOfUnknownTotal is Kueue's answer for who may not read the ClusterQueue.
func TestPositionOfUnknownTotal(t *testing.T) {
	p := &Position{Place: 2, Source: Visibility}
	expect.Same(t, "Unexpected text", "2nd in its ClusterQueue (says Kueue)", positionText(p))
	expect.Same(t, "Unexpected names", []string{"place", "source"}, keysOf(t, json.RawMessage(expect.JSON(t, p))))
}

// TestPrintOfSeveral says that one is not told as if the others came, too.
func TestPrintOfSeveral(t *testing.T) {
	of := Explanation{Namespace: "team", Name: "llm", State: State{Message: "fits"}}
	const one = "TrainJob team/llm fits.\n"
	for n, want := range map[int]string{1: one, 2: "Each of 2 TrainJobs is told as if it came alone.\n\n" + one + "\n\n" + one} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		expect.NoError(t, (&options{streams: streams}).print(slices.Repeat([]Explanation{of}, n)))
		expect.Same(t, "Unexpected output", want, out.String())
	}
}

func TestPrintWhatIsDone(t *testing.T) {
	var out strings.Builder
	(&printer{out: &out}).flavors(new(Explain(newScene(initialized, admitted).facts(t))))
	want := `
REPLICATED JOB   FLAVOR   NEEDS     FREE   QUOTA   MAX   VERDICT
initializer      h100     0 GPUs    8      32      32    done
node             h100     24 GPUs   8      32      32    assigned
`
	expect.Same(t, "Unexpected lines", want, out.String())
}

func printed(t *testing.T, e *Explanation) string {
	t.Helper()
	var out strings.Builder
	expect.NoError(t, (&printer{out: &out}).print(e))
	return out.String()
}

func TestPrintInWorkers(t *testing.T) {
	const here = `
Queue: LocalQueue gpus, ClusterQueue gpus, BestEffortFIFO, priority 0

REPLICATED JOB   FLAVOR   NEEDS     FREE   QUOTA   MAX   VERDICT
node             h100     32 GPUs   0      32      32    assigned
`
	expect.Rows(t, map[string]row[string]{
		"with flavors there alone": {scene: changes{inWest, there(t, "west", true, admitted, withPods(4, runningPod), unseenKind(inventory.Nodes))},
			want: `TrainJob team/llm is in worker cluster west, where it runs with 4 pods in queue gpus (ClusterQueue gpus): 32 GPUs, node on flavor h100.

OBJECT                        STATE      WAITS FOR
TrainJob llm                  Resumed
  Workload trainjob-llm       Admitted
  Cluster west                Assigned
    TrainJob llm              Resumed
      Workload trainjob-llm   Admitted
      JobSet llm              Resumed
        Job llm-node-0        Active
          4 pods              Running

Queue: LocalQueue gpus, ClusterQueue gpus, BestEffortFIFO, priority 0

In cluster west (context west-admin):
` + here + `
Not seen: you may not list nodes, so this is not the whole story; an admin sees more.
`},
		"while one is asked": {scene: changes{asked, there(t, "west", false, taken("h100", 4))},
			want: `TrainJob team/llm has quota in queue gpus (ClusterQueue gpus) and waits for a worker cluster to admit it: in west it waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100: 0 of 32 GPUs are free; flavor a100: ClusterQueue gpus has 16 GPUs at the most, 1st of 1 pending; east.
What helps: in cluster west (--context west-admin): ` + waitForEnd + `

OBJECT                        STATE           WAITS FOR
TrainJob llm                  Suspended       the admission of its Workload
  Workload trainjob-llm       QuotaReserved
  Cluster west                Nominated       it to admit the job
    TrainJob llm              Missing         MultiKueue to copy it
      Workload trainjob-llm   Pending         quota: QuotaInUse
  Cluster east                Nominated       it to admit the job

Queue: LocalQueue gpus, ClusterQueue gpus, BestEffortFIFO, priority 0

In cluster west (context west-admin):

Queue: LocalQueue gpus, ClusterQueue gpus, BestEffortFIFO, priority 0
Position: 1st of 1 pending (computed)

REPLICATED JOB   FLAVOR   NEEDS     FREE   QUOTA   MAX   VERDICT
node             h100     32 GPUs   0      32      32    not now: 0 of 32 GPUs are free
node             a100     32 GPUs   16     16      16    never: ClusterQueue gpus has 16 GPUs at the most
What helps with a flavor:
  a100: create the job again, since spec.trainer cannot change, and ask for less (fewer nodes, or less per node), or raise the nominalQuota of flavor a100 in ClusterQueue gpus by 16 GPUs
`},
	}, func(t *testing.T, tc row[string]) {
		e := Explain(newScene(tc.scene...).facts(t))
		e.Placement = nil
		for _, w := range e.Workers {
			if w.Explanation != nil {
				w.Explanation.Placement = nil
			}
		}
		expect.Same(t, "Unexpected output", tc.want, printed(t, &e))
	})
}

func TestNamesInJSON(t *testing.T) {
	text := expect.JSON(t, Explain(newScene(taken("h100", 3), withPods(1, runningPod)).facts(t)))
	got := expect.FromJSON[map[string]json.RawMessage](t, text)
	names := map[string][]string{"": slices.Sorted(maps.Keys(got))}
	for _, part := range []string{"state", "queue", "chain", "flavors", "podSets", "placement"} {
		names[part] = keysOf(t, got[part])
	}
	want := map[string][]string{
		"":          {"chain", "flavors", "name", "namespace", "placement", "podSets", "queue", "state"},
		"state":     {"message", "phase", "reason", "remedy", "since", "stuck"},
		"queue":     {"clusterQueue", "localQueue", "position", "priority", "strategy"},
		"chain":     {"depth", "kind", "name", "state", "waitsFor"},
		"flavors":   {"assigned", "fits", "flavor", "podSet", "reasons", "resources"},
		"podSets":   {"name", "perPod", "pods"},
		"placement": {"field", "setBy", "value"},
	}
	expect.Same(t, "Unexpected names, which scripts rely on", want, names)
}

// keysOf returns the names in an object, or in the first one of a list.
func keysOf(t *testing.T, data json.RawMessage) []string {
	t.Helper()
	var list []map[string]any
	if json.Unmarshal(data, &list) == nil {
		return slices.Sorted(maps.Keys(list[0]))
	}
	return slices.Sorted(maps.Keys(expect.FromJSON[map[string]any](t, string(data))))
}
