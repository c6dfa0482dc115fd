// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const runtimeYAML = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: "%KIND"
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: %NODES, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: torch, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
`

const jobYAML = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: new, namespace: "%NS"}
spec: {runtimeRef: {name: torch, kind: "%KIND"}}
`

// harness reads a cluster that a scene describes.
type harness struct {
	*testing.T
	objects    []client.Object
	forbidden  []string                     // kinds that may be listed in a namespace only
	denied     []string                     // kinds that may not be listed at all
	deniedGets []string                     // kinds that may not be got
	visible    []visibility.PendingWorkload // answers of the visibility API; nil: it is not served
}

func (h *harness) client() client.WithWatch {
	h.Helper()
	seen := kit.Refusing(h.refuse)
	seen.SubResourceGet = h.subResource
	return kit.Fake(cluster.Scheme(), h.objects...).
		WithIndex(&jobsetapi.JobSet{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Kind} }).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithIndex(&corev1.Event{}, "type", func(o client.Object) []string { return []string{o.(*corev1.Event).Type} }).
		WithInterceptorFuncs(seen).Build()
}

// facts reads those of newScene's job.
func (h *harness) facts() *Facts {
	h.Helper()
	c := h.client()
	return expect.Must(readRendered(h.Context(), c, expect.Must(trainjob.NewRenderer(h.Context(), c.Scheme()))(h), newScene().Job))(h)
}

// preview looks at the first TrainJob of a file.
func (h *harness) preview(file string, queue ...string) *Facts { return h.previews(file, queue...)[0] }

// previews looks at all of them.
func (h *harness) previews(file string, queue ...string) (all []*Facts) {
	h.Helper()
	c := h.client()
	documents := []manifest.File{*manifest.Parse("job.yaml", []byte(file))}
	jobs, _, err := readFiles(documents, "team")
	expect.NoError(h, err)
	previews := expect.Must(newPreviews(h.Context(), c, expect.Must(trainjob.NewRenderer(h.Context(), c.Scheme()))(h), documents, "team"))(h)
	for i := range jobs {
		for _, name := range queue {
			metav1.SetMetaDataLabel(&jobs[i].ObjectMeta, kit.QueueLabel, name)
		}
		all = append(all, expect.Must(previews.of(h.Context(), &jobs[i]))(h))
	}
	return all
}

// refuse hides the CRD, too, which users may not read, so that the newest Trainer is assumed.
func (h *harness) refuse(object any, key client.ObjectKey) error {
	kind, listed := strings.CutSuffix(expect.Must(apiutil.GVKForObject(object.(runtime.Object), cluster.Scheme()))(h).Kind, "List")
	if key.Name == trainjob.CRDName || !listed && slices.Contains(h.deniedGets, kind) ||
		listed && (slices.Contains(h.denied, kind) || key.Namespace == "" && slices.Contains(h.forbidden, kind)) {
		return kit.Forbidden(kind)
	}
	return nil
}

func (h *harness) subResource(_ context.Context, _ client.Client, name string, _, into client.Object, _ ...client.SubResourceGetOption) error {
	if name != "pendingworkloads" || h.visible == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: name}, "")
	}
	into.(*visibility.PendingWorkloadsSummary).Items = h.visible
	return nil
}

// objects are those of a scene's inventory.
func (s *scene) objects() []client.Object {
	i := s.inventory
	return slices.Concat(inventory.Objects(i.LocalQueues), inventory.Objects(i.ClusterQueues), inventory.Objects(i.Flavors), inventory.Objects(i.Nodes))
}

// queued is the objects of newScene's job, Workload and inventory.
func queued() []client.Object {
	s := newScene()
	return append([]client.Object{s.Job, s.Workload}, s.objects()...)
}

// TestPodEvents has what kubelets say told in both ways of reading, while there is a pod to be made.
func TestPodEvents(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*corev1.Pod), []string]{
		"a pod to be made":   {In: onNode(1), Want: []string{"FailedMount", ImagePulled}},
		"a pod without node": {In: func(*corev1.Pod) {}},
		"a pod that runs":    {In: func(p *corev1.Pod) { onNode(1)(p); runningPod(p) }},
	}, func(t *testing.T, tc expect.Row[func(*corev1.Pod), []string]) {
		s := newScene(admitted, withPods(1, tc.In))
		s.JobSet.OwnerReferences = s.Workload.OwnerReferences
		objects := []client.Object{s.Job, s.Workload, s.JobSet, &s.Pods[0]}
		s.Pods[0].Namespace, s.Pods[0].Labels = "team", map[string]string{jobsetapi.JobSetNameKey: "llm"}
		for minutes, reason := range []string{"FailedMount", ImagePulled, "Pulled"} {
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: reason, Namespace: "team"}, Type: corev1.EventTypeNormal, Reason: reason,
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: s.Pods[0].UID}, LastTimestamp: minutesAgo(minutes)}
			if reason == "FailedMount" {
				e.Type = corev1.EventTypeWarning
			}
			objects = append(objects, e)
		}
		h := &harness{T: t, objects: objects}
		all := expect.Must(ReadAll(t.Context(), h.client(), ""))(t)
		for how, f := range map[string]*Facts{"one": h.facts(), "all": all.Facts[0]} {
			expect.Same(t, "Unexpected events, read of "+how, tc.Want, reasonsOf(f.PodEvents))
		}
	})
}

// TestPodsOfOthers has pods read by the job's label, and those of others only where they take of a topology.
func TestPodsOfOthers(t *testing.T) {
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}}}}
	placed := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "placed", Annotations: map[string]string{kueue.PodSetRequiredTopologyAnnotation: "rack"}}, Spec: corev1.PodSpec{NodeName: "n1"}}
	bound := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "bound"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	pending := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "pending"}}
	expect.Rows(t, map[string]expect.Row[[]client.Object, []string]{
		"without a topology none are":                                     {},
		"with a topology those on nodes, which Kueue has not placed, are": {In: []client.Object{topology}, Want: []string{"bound"}},
	}, func(t *testing.T, tc expect.Row[[]client.Object, []string]) {
		h := &harness{T: t, objects: slices.Concat(queued(), []client.Object{placed.DeepCopy(), bound.DeepCopy(), pending.DeepCopy()}, tc.In)}
		expect.Same(t, "Unexpected pods of others", tc.Want, expect.Each(h.facts().Cluster.Pods, func(p corev1.Pod) string { return p.Name }))
	})
}

func reasonsOf(events []corev1.Event) []string {
	return expect.Each(events, func(e corev1.Event) string { return e.Reason })
}

func TestFacts(t *testing.T) {
	note := func(name string, minutes int, kind string) client.Object {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"}, Type: kind, Reason: name,
			InvolvedObject: corev1.ObjectReference{UID: "llm-uid"}, LastTimestamp: minutesAgo(minutes)}
	}
	h := &harness{T: t, objects: append(queued(),
		note("Old", 9, corev1.EventTypeWarning), note("New", 1, corev1.EventTypeWarning), note("Fine", 0, corev1.EventTypeNormal),
		waitingWorkload("somebody", "gpus", 1, minutesAgo(1)))}
	f := h.facts()
	got := []any{f.Workload.Name, len(f.PodSets), reasonsOf(f.Warnings), f.Undescribed != nil, f.Visible}
	expect.Same(t, "Unexpected facts", []any{"trainjob-llm", 1, []string{"New", "Old"}, true, (*Position)(nil)}, got)
}

func TestWhatUsersSeeOfTheirNamespace(t *testing.T) {
	h := &harness{T: t, objects: queued(), forbidden: []string{"LocalQueue", "ClusterQueue", "Workload", "Node"},
		visible: []visibility.PendingWorkload{{ObjectMeta: metav1.ObjectMeta{Name: "trainjob-llm"}, PositionInClusterQueue: 4}}}
	f := h.facts()
	expect.Same(t, "Unexpected position", &Position{Place: 5, Source: Visibility}, f.Visible)
	expect.That(t, f.localQueue() != nil && f.Workload != nil, "LocalQueue or Workload of the namespace was not read")
	want := []string{"nodes", inventory.ClusterQueues, inventory.Workloads, "customresourcedefinitions.apiextensions.k8s.io"}
	expect.Same(t, "Unexpected unseen kinds", want, Explain(f).Unseen)
}

// TestPreview is in a cluster where newScene's job waits, with a runtime of 2 nodes.
func TestPreview(t *testing.T) {
	job, namespaced := fill(jobYAML, "ClusterTrainingRuntime", ""), fill(jobYAML, "TrainingRuntime", "")
	ofCluster := func(nodes string) string { return fill(runtimeYAML, "ClusterTrainingRuntime", nodes) }
	kueueIs := func(configuration string) func(*harness) {
		return func(h *harness) {
			h.objects = append(h.objects, kit.ConfigMap(kueueconfig.Default.Namespace, kueueconfig.Default.Name, kueueconfig.Default.Key,
				"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"+configuration))
		}
	}
	defaultQueue := func(h *harness) { h.objects = append(h.objects, kit.LocalQueue("team", "default", "gpus")) }
	hidden := func(h *harness) { h.denied = []string{"ConfigMap"} }
	tainted := func(h *harness) {
		for _, object := range h.objects {
			if flavor, ok := object.(*kueue.ResourceFlavor); ok {
				flavor.Spec.NodeTaints = []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
			}
		}
	}
	rules := func(h *harness) {
		h.objects = append(h.objects, kit.ConfigMap(config.Namespace, cluster.ManagerConfigMap+"-7g6h", cluster.ManagerConfigKey,
			"tolerationRules: [{resources: [nvidia.com/*], tolerations: [{key: team, operator: Exists}]}]"))
	}
	const missing = "the configuration of Kueue: namespace kueue-system has no ConfigMap kueue-manager-config that can be read"
	type row struct {
		files  string
		change func(*harness)
		want   string   // pods of the first PodSet, the queue and the reason
		unseen []string // the configurations that decide, and that are not known
	}
	expect.Rows(t, map[string]row{
		"the runtime of the cluster":       {files: job, want: "2  NoQueue", unseen: []string{missing}},
		"a runtime of the same files wins": {files: job + "---" + ofCluster("3"), want: "3  NoQueue", unseen: []string{missing}},
		"a namespaced runtime, in the namespace of the command": {files: fill(runtimeYAML, "TrainingRuntime", "4") + "---" + namespaced,
			want: "4  NoQueue", unseen: []string{missing}},
		"no such runtime":             {files: namespaced, want: "0  RuntimeMissing", unseen: []string{missing}},
		"a job that would be refused": {files: job + "---" + strings.Replace(ofCluster("3"), "limits", "requests", 1), want: "0  CannotRun", unseen: []string{missing}},
		"a priority class that is not there": {files: strings.Replace(job, "metadata: {", "metadata: {labels: {kueue.x-k8s.io/priority-class: gone}, ", 1),
			want: "2  " + jobevents.ReasonNoPriority, unseen: []string{missing}},
		"TrainJob and runtime in a list":          {files: listed(job, ofCluster("8")), want: "8  NoQueue", unseen: []string{missing}},
		"a namespace with a default queue":        {files: job, change: defaultQueue, want: "2 default Fits"},
		"Kueue's configuration is known":          {files: job, change: kueueIs(""), want: "2  NoQueue"},
		"Kueue's configuration is broken":         {files: job, change: kueueIs("metrics: ["), want: "2  NoQueue", unseen: []string{missing}},
		"Kueue's configuration is not to be seen": {files: job, change: hidden, want: "2  NoQueue", unseen: []string{"configmaps of namespace kueue-system"}},
		"a taint that nobody tolerates":           {files: job, change: kit.All(defaultQueue, tainted), want: "2 default " + string(Taint)},
		"a taint that a rule tolerates":           {files: job, change: kit.All(defaultQueue, tainted, rules), want: "2 default Fits"},
		"a taint, and rules that are not to be seen": {files: job, change: kit.All(defaultQueue, tainted, rules, hidden), want: "2 default " + string(Taint),
			unseen: []string{"configmaps of namespace " + config.Namespace}},
		"rules that make no difference, not to be seen": {files: job, change: kit.All(defaultQueue, rules, hidden), want: "2 default Fits"},
	}, func(t *testing.T, tc row) {
		h := &harness{T: t, objects: append(queued(), clusterRuntime(t, "2"))}
		kit.With(h, tc.change)
		f := h.preview(tc.files)
		e, pods := Explain(f), int32(0)
		if len(f.PodSets) > 0 {
			pods = f.PodSets[0].Count
		}
		expect.Same(t, "Unexpected preview", tc.want, fmt.Sprint(pods, " ", f.queueName(), " ", e.State.Reason))
		unseen := slices.DeleteFunc(e.Unseen, func(kind string) bool { return !strings.Contains(kind, "config") })
		expect.Same(t, "Unexpected configurations", tc.unseen, unseen, cmpopts.EquateEmpty())
	})
}

func clusterRuntime(t *testing.T, nodes string) client.Object {
	t.Helper()
	return expect.FromYAML[*trainer.ClusterTrainingRuntime](t, fill(runtimeYAML, "ClusterTrainingRuntime", nodes))
}

// TestStartOf has an answer for every TrainJob that it is asked of, and promises no start to one that explain says will not.
func TestStartOf(t *testing.T) {
	withoutNodes := func(s *scene) { s.inventory.Nodes = s.inventory.Nodes[4:] }
	inUse := func(s *scene) { kit.With(s, taken("h100", 4), taken("a100", 2)) }
	inQueue := map[string]string{kit.QueueLabel: "gpus"}
	classless := map[string]string{kit.QueueLabel: "gpus", kueueconstants.WorkloadPriorityClassLabel: "gone"}
	type row struct {
		nodes  string
		labels map[string]string
		change func(*scene)
		denied []string
		told   outlook.Told
		want   string
	}
	expect.Rows(t, map[string]row{
		"it fits":                         {nodes: "2", labels: inQueue, want: "starts within a minute"},
		"its priority class is not there": {nodes: "2", labels: classless, want: "does not start before somebody changes something"},
		"its priority class is not there, and its pods would stay Pending": {nodes: "2", labels: classless, change: withoutNodes,
			want: "does not start before somebody changes something"},
		"it is too large":       {nodes: "9", labels: inQueue, want: "does not start before somebody changes something"},
		"its pods stay Pending": {nodes: "2", labels: inQueue, change: withoutNodes, want: "gets quota within a minute"},
		"its pods would stay Pending when others have ended": {nodes: "2", labels: inQueue, change: func(s *scene) { kit.With(s, inUse).inventory.Nodes = nil },
			told: outlook.Told{Assume: time.Hour}, want: "gets quota in about"},
		"others have to end": {nodes: "2", labels: inQueue, change: inUse, told: outlook.Told{Assume: time.Hour}, want: "starts in about"},
		"it names no queue":  {nodes: "2", want: "unknown, because it names no queue"},
		"a runtime that the user may not read": {nodes: "2", labels: inQueue, denied: []string{"ClusterTrainingRuntime"},
			want: "unknown, because it cannot be described, because you may not read its runtime"},
	}, func(t *testing.T, tc row) {
		s := newScene()
		kit.With(s, tc.change)
		h := &harness{T: t, objects: slices.Concat(s.objects(), inventory.Objects(s.inventory.Workloads), []client.Object{clusterRuntime(t, tc.nodes)}), deniedGets: tc.denied}
		job := expect.FromYAML[*trainjob.TrainJob](t, fill(jobYAML, "ClusterTrainingRuntime", ""))
		job.Labels = tc.labels
		start := expect.Must(StartOf(t.Context(), h.client(), job, tc.told))(t)
		expect.That(t, strings.HasPrefix(start.String(), tc.want), "The answer is %q and does not begin with %q", start, tc.want)
	})
}

// TestForecastOfWhatKueueRefuses makes none where Kueue goes by more than is seen, and does not only look again.
func TestForecastOfWhatKueueRefuses(t *testing.T) {
	for refused, want := range map[time.Duration]bool{5 * time.Second: true, 30 * time.Second: false} {
		f := newScene(refusedBefore(refused, "Pending")).facts(t)
		e := foreseen(t.Context(), newForesight(t.Context(), (&harness{T: t}).client(), "", outlook.Told{}, 1), f)
		expect.Same(t, "Unexpected forecast of one that was refused before "+refused.String(), want, e.Start.Unknown == "")
	}
}

func TestPreviewOfGenerateName(t *testing.T) {
	h := &harness{T: t, objects: queued()}
	of := func(nodes string) string {
		return fill(strings.NewReplacer("name: new", "generateName: llm-", "spec: {", "spec: {trainer: {numNodes: "+nodes+"}, ").Replace(jobYAML), "TrainingRuntime", "")
	}
	var got []string
	for _, f := range h.previews(of("4")+"---"+of("5")+"---"+fill(runtimeYAML, "TrainingRuntime", "1"), "gpus") {
		e := Explain(f)
		got = append(got, e.Name+" "+e.State.Reason)
	}
	expect.Same(t, "Unexpected names and reasons", []string{"llm- Fits", "llm- ExceedsQuota"}, got)
}

// TestPreviewOfAJobThatIsThere has it in nobody's way, its own least of all.
func TestPreviewOfAJobThatIsThere(t *testing.T) {
	other := "asks for 32 GPUs and could have them now in queue gpus (ClusterQueue gpus): node on flavor h100"
	expect.Rows(t, map[string]expect.Row[string, string]{
		"the same again": {In: strings.Replace(jobYAML, "name: new", "name: llm", 1), Want: "exists already; created again, it " + other},
		"another job":    {In: jobYAML, Want: "would wait in queue gpus (ClusterQueue gpus): asks for 32 GPUs, flavor h100: 0 of 32 GPUs are free; flavor a100: ClusterQueue gpus has 16 GPUs at the most"},
	}, func(t *testing.T, tc expect.Row[string, string]) {
		h := &harness{T: t, objects: queued()}
		admit(h.objects[1].(*kueue.Workload), "gpus", "h100", kueue.WorkloadAdmitted)
		f := h.preview(fill(tc.In+"---"+runtimeYAML, "TrainingRuntime", "4"), "gpus")
		expect.Same(t, "Unexpected preview", tc.Want, StateOf(f).Message)
	})
}

// fill returns a manifest for a kind of runtime.
func fill(text, kind, nodes string) string {
	return strings.NewReplacer("%KIND", kind, "%NODES", nodes, "%NS", "team").Replace(text)
}

// listed puts objects into a List.
func listed(texts ...string) string {
	list := "apiVersion: v1\nkind: List\nitems:\n"
	for _, text := range texts {
		list += "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
	}
	return list
}

// TestReadFiles has a file that cannot be read hide no TrainJob, and wants one.
func TestReadFiles(t *testing.T) {
	chart := *manifest.Parse("chart.yaml", []byte("{{- if .Values.a }}\na: 1\n{{- end }}\n"))
	jobs, unread, err := readFiles([]manifest.File{chart, *manifest.Parse("job.yaml", []byte(jobYAML))}, "team")
	expect.That(t, err == nil && len(jobs) == 1, "%d TrainJobs, and error: %v", len(jobs), err)
	expect.That(t, strings.HasPrefix(expect.Text(unread), "chart.yaml:1: "), "Unexpected error: %v", unread)

	_, _, err = readFiles([]manifest.File{*manifest.Parse("other.yaml", []byte("kind: ConfigMap\napiVersion: v1\n"))}, "team")
	expect.That(t, err != nil, "Files without a TrainJob were taken")
}
