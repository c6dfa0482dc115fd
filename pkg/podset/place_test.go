// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func podSet(name kueue.PodSetReference, change func(*corev1.PodTemplateSpec)) kueue.PodSet {
	return kueue.PodSet{Name: name, Count: 1, Template: *kit.With(&corev1.PodTemplateSpec{}, change)}
}

func TestPlace(t *testing.T) {
	spot, no := corev1.Toleration{Key: "spot", Value: "yes"}, corev1.Toleration{Key: "spot", Value: "no"}
	equal, evicting := spot, spot
	equal.Operator, evicting.Effect = corev1.TolerationOpEqual, corev1.TaintEffectNoExecute
	node := func() kueuelib.PodSetInfo {
		return kueuelib.PodSetInfo{
			Name: "node", Count: 1, Labels: map[string]string{"kueue.x-k8s.io/podset": "node", "same": "s"}, Annotations: map[string]string{"kueue.x-k8s.io/workload": "wl"},
			NodeSelector: map[string]string{"pool": "h100", "gpu": "h100"}, Tolerations: []corev1.Toleration{exists("spot")}, SchedulingGates: gates("kueue.x-k8s.io/topology"),
		}
	}
	as := func(i kueuelib.PodSetInfo) patch.Placement {
		return patch.Placement{
			Name: "node", Labels: i.Labels, Annotations: i.Annotations, NodeSelector: i.NodeSelector, Tolerations: i.Tolerations, SchedulingGates: i.SchedulingGates,
		}
	}
	type row struct {
		podSets []kueue.PodSet
		infos   []kueuelib.PodSetInfo
		want    []patch.Placement
	}
	expect.Rows(t, map[string]row{
		"no PodSets": {want: []patch.Placement{}},
		"an admission that adds nothing keeps the base tolerations": {podSets: []kueue.PodSet{podSet("node", func(p *corev1.PodTemplateSpec) { p.Spec.Tolerations = []corev1.Toleration{exists("nvidia.com/gpu")} })},
			infos: []kueuelib.PodSetInfo{{Name: "node"}}, want: []patch.Placement{{Name: "node", Tolerations: []corev1.Toleration{exists("nvidia.com/gpu")}}}},
		"everything that an admission adds, each PodSet its own": {podSets: []kueue.PodSet{
			podSet("launcher", nil),
			podSet("node", func(p *corev1.PodTemplateSpec) {
				p.Labels = map[string]string{"mine": "1", "same": "s"}
				p.Annotations = map[string]string{"mine": "1"}
				p.Spec.NodeSelector = map[string]string{"zone": "z1", "pool": "h100"}
				p.Spec.SchedulingGates = gates("example.com/mine")
			}),
		}, infos: []kueuelib.PodSetInfo{{Name: "launcher", Count: 1, NodeSelector: map[string]string{"pool": "cpu"}}, node()},
			want: []patch.Placement{{Name: "launcher", NodeSelector: map[string]string{"pool": "cpu"}}, as(node())}},
		"base tolerations first, then those of the admission that are not there": {
			podSets: []kueue.PodSet{podSet("node", func(p *corev1.PodTemplateSpec) {
				p.Spec.Tolerations = []corev1.Toleration{spot, exists("nvidia.com/gpu"), equal}
			})},
			infos: []kueuelib.PodSetInfo{{Name: "node", Tolerations: []corev1.Toleration{equal, no, evicting, exists("nvidia.com/gpu"), exists("pool")}}},
			want:  []patch.Placement{{Name: "node", Tolerations: []corev1.Toleration{spot, exists("nvidia.com/gpu"), no, evicting, exists("pool")}}}},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected placements", tc.want, expect.Must(Place(tc.podSets, tc.infos))(t))
	})
}

func TestPlaceErrorsArePermanentAndSayWhere(t *testing.T) {
	mine := func(p *corev1.PodTemplateSpec) {
		p.Labels = map[string]string{"team": "a"}
		p.Annotations = map[string]string{"note": "a"}
		p.Spec.NodeSelector = map[string]string{"pool": "a100", "zone": "z1"}
	}
	first := podSet("launcher", nil)
	type infos = []kueuelib.PodSetInfo
	type row struct {
		// podSets are nodes with all of mine where they are left out.
		podSets   []kueue.PodSet
		infos     infos
		wantInErr []string
	}
	expect.Rows(t, map[string]row{
		"another node selector": {podSets: []kueue.PodSet{first, podSet("node", mine)},
			infos:     infos{{Name: "launcher"}, {Name: "node", NodeSelector: map[string]string{"pool": "h100"}}},
			wantInErr: []string{"nodeSelector", `"node"`, "pool", `"a100"`, `"h100"`, "runtimePatches"}},
		"several keys of it": {infos: infos{{Name: "node", NodeSelector: map[string]string{"pool": "h100", "zone": "z2"}}},
			wantInErr: []string{"pool", "zone", `"z1"`, `"z2"`}},
		"another label": {infos: infos{{Name: "node", Labels: map[string]string{"team": "b"}}}, wantInErr: []string{"labels", `"node"`, "team", `"a"`, `"b"`}},
		"another annotation": {infos: infos{{Name: "node", Annotations: map[string]string{"note": ""}}},
			wantInErr: []string{"annotations", `"node"`, "note", `"a"`, `""`}},
		"fewer infos than PodSets": {podSets: []kueue.PodSet{first, podSet("node", nil)}, infos: infos{{Name: "launcher"}}, wantInErr: []string{"2", "1"}},
		"more infos than PodSets":  {podSets: []kueue.PodSet{}, infos: infos{{Name: "launcher"}}, wantInErr: []string{"0", "1"}},
		"infos of other PodSets": {podSets: []kueue.PodSet{first, podSet("node", nil)}, infos: infos{{Name: "launcher"}, {Name: "worker"}},
			wantInErr: []string{`"node"`, `"worker"`}},
	}, func(t *testing.T, tc row) {
		if tc.podSets == nil {
			tc.podSets = []kueue.PodSet{podSet("node", mine)}
		}
		placements, err := Place(tc.podSets, tc.infos)
		expect.ErrorWith(t, err, tc.wantInErr...)
		expect.That(t, kueuelib.IsPermanent(err), "Error %q is not permanent", err)
		expect.That(t, placements == nil, "Placements %v beside an error", placements)
		// Another message for the same would be an event of its own.
		for range 20 {
			_, again := Place(tc.podSets, tc.infos)
			expect.Same(t, "Unexpected second error", err.Error(), again.Error())
		}
	})
}

// Two tolerations that differ only in tolerationSeconds count as one, as in Kueue.
func TestPlaceKeepsTheFirstTolerationSeconds(t *testing.T) {
	evicted := func(seconds int64) corev1.Toleration {
		return corev1.Toleration{Key: "flaky", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(seconds)}
	}
	podSets := []kueue.PodSet{podSet("node", func(p *corev1.PodTemplateSpec) { p.Spec.Tolerations = []corev1.Toleration{evicted(60)} })}
	got := expect.Must(Place(podSets, []kueuelib.PodSetInfo{{Name: "node", Tolerations: []corev1.Toleration{evicted(5)}}}))(t)
	expect.Same(t, "Unexpected tolerations", []corev1.Toleration{evicted(60)}, got[0].Tolerations)
}

const (
	namespacedJob = "alpha.jobset.sigs.k8s.io/namespaced-job"
	noSchedule    = "alpha.jobset.sigs.k8s.io/no-schedule"
	gate          = "kueue-trainer.dev/admission"
	gatedLabel    = "kueue-trainer.dev/gated"
)

func template(labels, annotations, nodeSelector map[string]string, spec corev1.PodSpec) corev1.PodTemplateSpec {
	spec.NodeSelector = nodeSelector
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: spec}
}

// gated, tolerating and selecting are templates with nothing else.
func gated(names ...string) corev1.PodTemplateSpec {
	return template(nil, nil, nil, corev1.PodSpec{SchedulingGates: gates(names...)})
}

func tolerating(tolerations ...corev1.Toleration) corev1.PodTemplateSpec {
	return template(nil, nil, nil, corev1.PodSpec{Tolerations: tolerations})
}

func selecting(nodeSelector map[string]string, gateNames ...string) corev1.PodTemplateSpec {
	return template(nil, nil, nodeSelector, corev1.PodSpec{SchedulingGates: gates(gateNames...)})
}

func TestPlaceTemplate(t *testing.T) {
	jobsetOwn := corev1.Toleration{Key: noSchedule, Operator: corev1.TolerationOpExists}
	type keys = map[string]string
	type row struct{ child, want, placed corev1.PodTemplateSpec }
	expect.Rows(t, map[string]row{
		"nothing on either side": {},
		"from the gate to a placement": {child: template(keys{gatedLabel: "true", "jobset.sigs.k8s.io/job-index": "0"}, nil, nil, corev1.PodSpec{SchedulingGates: gates(gate)}),
			want:   template(keys{"kueue.x-k8s.io/podset": "node"}, keys{"kueue.x-k8s.io/workload": "wl"}, keys{"pool": "h100"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("spot")}}),
			placed: template(keys{"kueue.x-k8s.io/podset": "node", "jobset.sigs.k8s.io/job-index": "0"}, keys{"kueue.x-k8s.io/workload": "wl"}, keys{"pool": "h100"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("spot")}})},
		"from a placement back to the gate": {child: template(keys{"kueue.x-k8s.io/podset": "node"}, keys{"kueue.x-k8s.io/workload": "wl"}, keys{"pool": "h100"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("spot")}, SchedulingGates: gates("kueue.x-k8s.io/topology")}),
			want:   template(keys{gatedLabel: "true"}, nil, nil, corev1.PodSpec{SchedulingGates: gates(gate)}),
			placed: template(keys{gatedLabel: "true"}, nil, nil, corev1.PodSpec{SchedulingGates: gates(gate)})},
		"from one flavor to another: stale keys go, values change": {child: template(keys{"kueue.x-k8s.io/podset": "old"}, nil, keys{"pool": "h100", "gpu": "h100", "zone": "z1"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("h100")}}),
			want:   template(keys{"kueue.x-k8s.io/podset": "new"}, nil, keys{"gpu": "a100", "zone": "z1"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("a100")}}),
			placed: template(keys{"kueue.x-k8s.io/podset": "new"}, nil, keys{"gpu": "a100", "zone": "z1"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("a100")}})},
		"Kueue's labels and annotations go, also those below its domain; others stay": {child: template(
			keys{"kueue.x-k8s.io/podset": "node", "tas.kueue.x-k8s.io/x": "1", "my-kueue.x-k8s.io/x": "1", "team": "a", "podset": "1", gatedLabel: "true", "kueue-trainer.dev/other": "1"},
			keys{"kueue.x-k8s.io/workload": "wl", "kueue.x-k8s.io.example.com/x": "1", "note": "a", patch.ManagerAnnotation: patch.Manager}, nil, corev1.PodSpec{}),
			placed: template(
				keys{"my-kueue.x-k8s.io/x": "1", "team": "a", "podset": "1", "kueue-trainer.dev/other": "1"},
				keys{"kueue.x-k8s.io.example.com/x": "1", "note": "a"}, nil, corev1.PodSpec{})},
		"what JobSet adds for exclusive placement stays": {child: template(nil, nil, keys{namespacedJob: "ns_job", "pool": "h100"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("h100"), jobsetOwn}}),
			want:   template(nil, nil, keys{"gpu": "a100"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("a100")}}),
			placed: template(nil, nil, keys{namespacedJob: "ns_job", "gpu": "a100"}, corev1.PodSpec{Tolerations: []corev1.Toleration{exists("a100"), jobsetOwn}})},
		"JobSet's toleration is not doubled": {child: tolerating(jobsetOwn), want: tolerating(jobsetOwn, exists("spot")),
			placed: tolerating(jobsetOwn, exists("spot"))},
		"gates of the runtime stay": {child: gated("example.com/mine", gate), want: gated("example.com/mine"), placed: gated("example.com/mine")},
		"gates of others, which no template names, stay": {child: gated("example.com/theirs", gate, "kueue.x-k8s.io/topology"), want: gated(),
			placed: gated("example.com/theirs")},
		"fields that a suspended Job must keep are not touched": {child: template(nil, nil, nil, corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "old"}}, RestartPolicy: corev1.RestartPolicyNever, Subdomain: "s"}),
			want:   template(nil, nil, nil, corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "new"}}}),
			placed: template(nil, nil, nil, corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "old"}}, RestartPolicy: corev1.RestartPolicyNever, Subdomain: "s"})},
	}, func(t *testing.T, tc row) {
		got, want := tc.child.DeepCopy(), tc.want.DeepCopy()
		PlaceTemplate(got, &tc.want)
		expect.Same(t, "Unexpected template", tc.placed, *got)
		PlaceTemplate(got, &tc.want)
		expect.Same(t, "The second time changes it", tc.placed, *got)
		expect.Same(t, "The wanted template changed", *want, tc.want)
	})
}

// Callers compare the child with what they read: neither side may change the other.
func TestPlaceTemplateSharesNothing(t *testing.T) {
	want := template(map[string]string{"l": "v"}, map[string]string{"a": "v"}, map[string]string{"n": "v"},
		corev1.PodSpec{Tolerations: []corev1.Toleration{exists("t")}, SchedulingGates: gates("g")})
	before := *want.DeepCopy()
	read := template(map[string]string{"kueue.x-k8s.io/x": "1"}, nil, map[string]string{"old": "1"}, corev1.PodSpec{})
	child := read
	PlaceTemplate(&child, &want)
	expect.Same(t, "The maps of the template before are changed in place", map[string]string{"kueue.x-k8s.io/x": "1"}, read.Labels)
	child.Labels["l"], child.Annotations["a"], child.Spec.NodeSelector["n"] = "changed", "changed", "changed"
	child.Spec.Tolerations[0].Key, child.Spec.SchedulingGates[0].Name = "changed", "changed"
	expect.Same(t, "Changing the child changed the wanted template", before, want)
}

func TestPlacePod(t *testing.T) {
	type keys = map[string]string
	notReady := corev1.Toleration{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	placement := template(keys{"kueue.x-k8s.io/podset": "node"}, keys{"kueue.x-k8s.io/workload": "wl"}, keys{"pool": "h100", "gpu": "h100"},
		corev1.PodSpec{Tolerations: []corev1.Toleration{exists("spot")}})
	// of is a template or pod for the admission of a Workload, with node selector and gates.
	of := func(workload string, nodes keys, names ...string) corev1.PodTemplateSpec {
		return template(nil, keys{kueue.WorkloadAnnotation: workload}, nodes, corev1.PodSpec{SchedulingGates: gates(names...)})
	}
	type row struct {
		pod, want, placed corev1.PodTemplateSpec
		// made is the template of the pod's Job; nil: the pod is just as its Job made it.
		made      *corev1.PodTemplateSpec
		wantInErr []string
	}
	expect.Rows(t, map[string]row{
		"a gated pod gets its placement": {pod: template(keys{gatedLabel: "true", "job-name": "j"}, nil, nil, corev1.PodSpec{Tolerations: []corev1.Toleration{notReady}, SchedulingGates: gates(gate)}),
			want:   placement,
			placed: template(keys{"job-name": "j", "kueue.x-k8s.io/podset": "node"}, keys{"kueue.x-k8s.io/workload": "wl"}, keys{"pool": "h100", "gpu": "h100"}, corev1.PodSpec{Tolerations: []corev1.Toleration{notReady, exists("spot")}})},
		"a part of its node selector is there": {pod: selecting(keys{"pool": "h100", namespacedJob: "ns_job"}, gate),
			want: selecting(keys{"pool": "h100", "gpu": "h100"}), placed: selecting(keys{"pool": "h100", "gpu": "h100", namespacedJob: "ns_job"})},
		"gates of others stay":                      {pod: gated("example.com/mine", gate), want: gated(), placed: gated("example.com/mine")},
		"a gate that the admission has cannot come": {pod: gated(gate), want: gated("kueue.x-k8s.io/topology"), wantInErr: []string{"kueue.x-k8s.io/topology"}},
		"a gate that Kueue took off beside ours stays away": {pod: of("wl", keys{"host": "h"}, gate), made: new(of("wl", nil, gate, "kueue.x-k8s.io/topology")),
			want: of("wl", nil, "kueue.x-k8s.io/topology"), placed: of("wl", keys{"host": "h"})},
		"a gate of Kueue's that the pod still has stays": {pod: gated(gate, "kueue.x-k8s.io/topology"), want: gated("kueue.x-k8s.io/topology"), placed: gated("kueue.x-k8s.io/topology")},
		"a gate that the pod lacks, of no admission by name": {pod: gated(gate), made: new(gated(gate, "kueue.x-k8s.io/topology")), want: gated("kueue.x-k8s.io/topology"),
			wantInErr: []string{"kueue.x-k8s.io/topology"}},
		"a gate of others that they took off stays away": {pod: gated(gate), want: gated("example.com/wait"), placed: gated()},
		"a gate that came into the template after the pod": {pod: gated(gate), made: new(of("wl", nil, gate, "kueue.x-k8s.io/topology")),
			want: of("wl", nil, "kueue.x-k8s.io/topology"), wantInErr: []string{"kueue.x-k8s.io/topology"}},
		"a gate of another admission": {pod: of("old", nil, gate), made: new(of("wl", nil, gate, "kueue.x-k8s.io/topology")),
			want: of("wl", nil, "kueue.x-k8s.io/topology"), wantInErr: []string{"kueue.x-k8s.io/topology"}},
		"a gate that the template does not have": {pod: of("wl", nil, gate), made: new(of("wl", nil, gate)), want: of("wl", nil, "kueue.x-k8s.io/topology"),
			wantInErr: []string{"kueue.x-k8s.io/topology"}},
		"node selector keys that pod admission added stay": {pod: selecting(keys{"zone": "z1"}, gate), made: &corev1.PodTemplateSpec{},
			want: selecting(keys{"pool": "h100"}), placed: selecting(keys{"zone": "z1", "pool": "h100"})},
		"a gate of an earlier admission goes":    {pod: gated(gate, "kueue.x-k8s.io/topology"), placed: gated()},
		"another value for a key":                {pod: selecting(keys{"pool": "a100"}, gate), want: placement, wantInErr: []string{"pool=a100"}},
		"a key that the admission does not have": {pod: selecting(keys{"zone": "z1"}, gate), want: placement, wantInErr: []string{"zone=z1"}},
	}, func(t *testing.T, tc row) {
		pod := &corev1.Pod{ObjectMeta: tc.pod.ObjectMeta, Spec: tc.pod.Spec}
		before := pod.DeepCopy()
		err := PlacePod(pod, cmp.Or(tc.made, tc.pod.DeepCopy()), &tc.want)
		if len(tc.wantInErr) > 0 {
			expect.ErrorWith(t, err, tc.wantInErr...)
			expect.Same(t, "The refused pod changed", before, pod)
			return
		}
		expect.NoError(t, err)
		want := &corev1.Pod{ObjectMeta: tc.placed.ObjectMeta, Spec: tc.placed.Spec}
		expect.Same(t, "Unexpected pod", want, pod)
	})
}

func FuzzPlaceTemplate(f *testing.F) {
	for _, seed := range [][2]string{
		{`{}`, `{}`},
		{`{"metadata":{"labels":{"kueue.x-k8s.io/a":"1","/":"","kueue.x-k8s.io":"x"}}}`, `{"metadata":{"annotations":{"":""}}}`},
		{`{"spec":{"nodeSelector":{"a":"1"},"tolerations":[{}],"schedulingGates":[{"name":""}]}}`, `{"spec":{"nodeSelector":{"a":"2"},"tolerations":[{"key":"alpha.jobset.sigs.k8s.io/no-schedule"},{"tolerationSeconds":0}]}}`},
		{`{"spec":{"nodeSelector":{"alpha.jobset.sigs.k8s.io/namespaced-job":"x"}}}`, `{"spec":{"nodeSelector":null,"schedulingGates":[{"name":"g"},{"name":"g"}]}}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, childJSON, wantJSON []byte) {
		var child, want corev1.PodTemplateSpec
		if json.Unmarshal(childJSON, &child) != nil || json.Unmarshal(wantJSON, &want) != nil {
			return
		}
		pod := &corev1.Pod{ObjectMeta: *child.ObjectMeta.DeepCopy(), Spec: *child.Spec.DeepCopy()}
		PlaceTemplate(&child, &want)
		once := child.DeepCopy()
		PlaceTemplate(&child, &want)
		expect.Same(t, "The second time changes it", *once, child, cmpopts.EquateEmpty())
		for key, value := range want.Spec.NodeSelector {
			expect.That(t, child.Spec.NodeSelector[key] == value, "Node selector %q is %q, want %q", key, child.Spec.NodeSelector[key], value)
		}
		err := PlacePod(pod, &corev1.PodTemplateSpec{Spec: pod.Spec}, &want)
		expect.That(t, err != nil || len(pod.Spec.NodeSelector) >= len(want.Spec.NodeSelector),
			"The placed pod selects by %v, want %v", pod.Spec.NodeSelector, want.Spec.NodeSelector)
	})
}

func FuzzPlace(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"name":"node","template":{"spec":{"nodeSelector":{"a":"1"}}}}`, `{"name":"node","nodeSelector":{"a":"1","b":""}}`},
		{`{"name":"node","template":{"metadata":{"labels":{"":""}},"spec":{"tolerations":[{},{}]}}}`, `{"name":"node","labels":{"":"1"},"tolerations":[{"operator":"Equal"}]}`},
		{`{}`, `{"name":"\u0000"}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, podSetJSON, infoJSON []byte) {
		var ps kueue.PodSet
		var info kueuelib.PodSetInfo
		if json.Unmarshal(podSetJSON, &ps) != nil || json.Unmarshal(infoJSON, &info) != nil {
			return
		}
		placements, err := Place([]kueue.PodSet{ps}, []kueuelib.PodSetInfo{info})
		if err != nil {
			expect.That(t, kueuelib.IsPermanent(err), "Error %q is not permanent", err)
			return
		}
		// A placement that was once made does not contradict itself.
		ps.Template.Labels, ps.Template.Annotations = placements[0].Labels, placements[0].Annotations
		ps.Template.Spec.NodeSelector, ps.Template.Spec.Tolerations = placements[0].NodeSelector, placements[0].Tolerations
		expect.Same(t, "Placing what is placed changes it", placements, expect.Must(Place([]kueue.PodSet{ps}, []kueuelib.PodSetInfo{info}))(t))
	})
}

// jobSetOf is a JobSet of a replicated job with each template.
func jobSetOf(templates ...corev1.PodTemplateSpec) *jobsetapi.JobSet {
	return jobSet(expect.Each(templates, func(template corev1.PodTemplateSpec) *jobBuilder {
		b := makeJob("")
		b.Template.Spec.Template = template
		return b
	})...)
}

func TestFieldOf(t *testing.T) {
	type keys = map[string]string
	of := func(labels, annotations keys) *jobsetapi.JobSet {
		return jobSetOf(corev1.PodTemplateSpec{}, template(labels, annotations, nil, corev1.PodSpec{}))
	}
	expect.Answers(t, FieldOf, map[string]expect.Row[*jobsetapi.JobSet, patch.Field]{
		"the gate":             {In: of(keys{patch.GatedLabel: "true"}, nil), Want: patch.Of(trainjob.Trainer22)},
		"a placement":          {In: of(keys{"kueue.x-k8s.io/podset": "node"}, nil), Want: patch.Of(trainjob.Trainer22)},
		"an override":          {In: of(keys{patch.GatedLabel: "true"}, keys{patch.ManagerAnnotation: patch.Manager}), Want: patch.Of(trainjob.Trainer21)},
		"nothing of all these": {In: of(nil, keys{patch.ManagerAnnotation: "someone"})},
	})
}

func TestPlaced(t *testing.T) {
	placed := func(gateNames ...string) corev1.PodTemplateSpec {
		return template(map[string]string{"kueue.x-k8s.io/podset": "node"}, nil, nil, corev1.PodSpec{SchedulingGates: gates(gateNames...)})
	}
	gated := template(map[string]string{gatedLabel: "true"}, nil, nil, corev1.PodSpec{SchedulingGates: gates(gate)})
	expect.Answers(t, Placed, map[string]expect.Row[*jobsetapi.JobSet, bool]{
		"all replicated jobs are":           {In: jobSetOf(placed(), placed()), Want: true},
		"one of them is not":                {In: jobSetOf(placed(), corev1.PodTemplateSpec{})},
		"one of them is placed and gated":   {In: jobSetOf(placed(), placed(gate))},
		"it is gated":                       {In: jobSetOf(gated)},
		"somebody else's gate says nothing": {In: jobSetOf(placed("example.com/theirs")), Want: true},
	})
}

// Kubernetes before 1.36 takes another template of a suspended Job only while nothing says that it ever ran.
func TestAJobThatRanIsPlacedAgain(t *testing.T) {
	type row struct {
		older bool
		want  []string
	}
	expect.Rows(t, map[string]row{
		"Kubernetes 1.36":       {want: []string{"patch"}},
		"an older one needs to": {older: true, want: []string{"patch", "patch status", "patch"}},
	}, func(t *testing.T, tc row) {
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "js-node-0"}, Status: batchv1.JobStatus{StartTime: new(metav1.Now()), Failed: 1}}
		var writes []string
		stored := kit.Fake(kit.Scheme(), child).WithStatusSubresource(child).Build()
		c := kit.Writes(stored, func(w kit.Write) error {
			writes = append(writes, strings.TrimSpace(w.Verb+" "+w.SubResource))
			now := child.DeepCopy()
			expect.NoError(t, stored.Get(t.Context(), client.ObjectKeyFromObject(now), now))
			if tc.older && w.SubResource == "" && now.Status.StartTime != nil {
				return apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, child.Name, nil)
			}
			return nil
		})
		placed := child.DeepCopy()
		placed.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "a100"}
		expect.NoError(t, WriteTemplate(t.Context(), c, child, placed))
		expect.Same(t, "Unexpected writes", tc.want, writes)
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(child), child))
		expect.Same(t, "Unexpected node selector", map[string]string{"pool": "a100"}, child.Spec.Template.Spec.NodeSelector)
		expect.Same(t, "Unexpected failures in the status", int32(1), child.Status.Failed)
	})
}
