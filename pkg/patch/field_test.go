// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// side is what others say in one generation, and how a placement reads there.
type side struct {
	served trainjob.TrainerVersion
	spec   func(items ...string) string
	// first and second are parts of others; each says something that no Go type holds.
	first, second string
	// placed is our part for placed below.
	placed string
}

var sides = map[string]side{
	"runtimePatches": {served: trainjob.Trainer23, spec: func(items ...string) string { return `{"runtimePatches":[` + strings.Join(items, ",") + `]}` },
		first:  `{"manager":"z.io/first","future":{"zero":0,"amount":"1024Mi"}}`,
		second: `{"manager":"a.io/second","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node"}]}}}}`,
		placed: `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"metadata":{"labels":{"kueue.x-k8s.io/podset":"node"}},"spec":{"nodeSelector":{"pool":"h100"},"tolerations":[{"key":"spot","operator":"Exists"}]}}}}}]}}}}`},
	"podTemplateOverrides": {served: trainjob.Trainer21,
		spec:   func(items ...string) string { return `{"podTemplateOverrides":[` + strings.Join(items, ",") + `]}` },
		first:  `{"targetJobs":[{"name":"node"}],"future":{"zero":0,"no":false}}`,
		second: `{"targetJobs":[{"name":"node"},{"name":"launcher"}],"metadata":{"annotations":{"kueue-trainer.dev/manager":"someone"}}}`,
		placed: `{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"kueue.x-k8s.io/podset":"node"},"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}},"spec":{"nodeSelector":{"pool":"h100"},"tolerations":[{"key":"spot","operator":"Exists"}]}}`},
}

var placed = []Placement{{
	Name:         "node",
	Labels:       map[string]string{"kueue.x-k8s.io/podset": "node"},
	NodeSelector: map[string]string{"pool": "h100"},
	Tolerations:  []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}},
}}

func specOf(t *testing.T, data string) *trainjob.Spec {
	t.Helper()
	return expect.FromJSON[*trainjob.Spec](t, data)
}

// one takes a list of one entry.
func one(t *testing.T) func([]trainjob.RuntimePatch, error) trainjob.RuntimePatch {
	return func(patches []trainjob.RuntimePatch, err error) trainjob.RuntimePatch {
		t.Helper()
		expect.Need(t, err == nil && len(patches) == 1, "There are %v, %v", patches, err)
		return patches[0]
	}
}

// eachField runs a test on both fields.
func eachField(t *testing.T, test func(t *testing.T, f Field, s side)) {
	expect.Rows(t, sides, func(t *testing.T, s side) { test(t, Of(s.served), s) })
}

func TestFieldSetsOursLastAndTouchesNobodyElse(t *testing.T) {
	eachField(t, func(t *testing.T, f Field, s side) {
		spec := specOf(t, s.spec(s.first, s.second))
		expect.That(t, !f.Has(spec) && !f.Last(spec) && !f.HoldsGate(spec), "Nothing of it is ours")
		expect.Same(t, "Nothing changes", true, f.Set(spec, []Placement{Gated("node"), Gated("launcher")}))
		expect.That(t, f.Has(spec) && f.Last(spec) && f.HoldsGate(spec), "It must be at the gate: %s", expect.JSON(t, spec))
		expect.That(t, f.Gates(spec, "launcher") && !f.Gates(spec, "other"), "Others are at the gate: %s", expect.JSON(t, spec))
		expect.Same(t, "Unexpected jobs", []string{"node", "launcher"}, expect.Must(f.Jobs(spec))(t))
		f.Set(spec, placed)
		expect.Same(t, "Placed after the gate", s.spec(s.first, s.second, s.placed), expect.JSON(t, spec))
		expect.That(t, !f.HoldsGate(spec) && !f.Gates(spec, "node"), "It is at the gate still: %s", expect.JSON(t, spec))
		f.Drop(spec)
		expect.Same(t, "Without ours", s.spec(s.first, s.second), expect.JSON(t, spec))
	})
}

func TestFieldSetChangesNothingTwice(t *testing.T) {
	eachField(t, func(t *testing.T, f Field, s side) {
		spec := specOf(t, s.spec(s.first, s.placed))
		expect.Same(t, "What is there already changes", false, f.Set(spec, placed))
		spec = specOf(t, s.spec(s.placed, s.first))
		expect.Same(t, "What is not last does not change", true, f.Set(spec, placed))
		expect.Same(t, "It is not last", s.spec(s.first, s.placed), expect.JSON(t, spec))
	})
}

// Trainer's webhook stamps entries, and only those of Trainer 2.2 and newer have a time.
func TestFieldSetChangesNothingForTheTimeThatTrainerStamps(t *testing.T) {
	s := sides["runtimePatches"]
	stamped := strings.Replace(s.placed, `{"manager"`, `{"time":"2026-01-01T00:00:00Z","manager"`, 1)
	spec := specOf(t, s.spec(s.first, stamped))
	before := expect.JSON(t, spec)
	expect.Same(t, "Only the time differs, and it changes", false, Of(s.served).Set(spec, placed))
	expect.Same(t, "The entry is another", before, expect.JSON(t, spec))
}

func TestFieldCopy(t *testing.T) {
	eachField(t, func(t *testing.T, f Field, s side) {
		spec := specOf(t, s.spec(s.second))
		f.Copy(spec, specOf(t, s.spec(s.placed, s.first)))
		expect.Same(t, "Ours from another spec", s.spec(s.second, s.placed), expect.JSON(t, spec))
		spec = specOf(t, s.spec(s.placed, s.second))
		f.Copy(spec, spec)
		expect.Same(t, "Ours put last", s.spec(s.second, s.placed), expect.JSON(t, spec))
	})
}

func TestFieldSame(t *testing.T) {
	eachField(t, func(t *testing.T, f Field, s side) {
		spec := specOf(t, s.spec(s.first, s.placed))
		expect.That(t, f.Same(spec, specOf(t, s.spec(s.placed, s.second))), "Others do not count")
		another := specOf(t, s.spec(strings.ReplaceAll(s.placed, "h100", "a100")))
		expect.That(t, !f.Same(spec, another) && !f.Same(spec, specOf(t, s.spec(s.first))), "Another placement, and none, are not the same")
		expect.That(t, !f.Same(specOf(t, s.spec()), specOf(t, s.spec())), "Nothing is not the same as nothing")
	})
}

func TestFieldRestoresOthersInOwnWrites(t *testing.T) {
	eachField(t, func(t *testing.T, f Field, s side) {
		old := specOf(t, s.spec(s.first, s.second))
		spelled := strings.ReplaceAll(s.first, `"zero":0`, `"zero":1`)
		spec := specOf(t, s.spec(spelled, s.second, s.placed))
		f.Restore(spec, old, true)
		expect.Same(t, "A write of ours", s.spec(s.first, s.second, s.placed), expect.JSON(t, spec))
		spec = specOf(t, s.spec(spelled, s.second))
		f.Restore(spec, old, false)
		expect.Same(t, "A user's change", s.spec(spelled, s.second), expect.JSON(t, spec))
	})
}

func TestFieldForRendering(t *testing.T) {
	spec := specOf(t, sides["podTemplateOverrides"].spec(sides["podTemplateOverrides"].second, sides["podTemplateOverrides"].placed))
	f := Of(trainjob.Trainer21)
	others := one(t)(f.Others(spec))
	expect.Same(t, "Unexpected jobs of others", []patchedJob{{name: "node"}, {name: "launcher"}}, expect.Must(runtimePatches.jobsOf(others))(t), gocmp.AllowUnexported(patchedJob{}))
	all := one(t)(f.All(spec))
	expect.That(t, strings.Contains(expect.JSON(t, all), `"pool":"h100"`), "Ours is missing: %v", all)
	_, err := f.All(specOf(t, `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"spec":{"tolerations":"x"}}]}`))
	expect.That(t, errors.Is(err, ErrInvalidPatches) && strings.Contains(err.Error(), "tolerations"), "What cannot be rendered is %v", err)
}

func TestUnknownTargets(t *testing.T) {
	s := sides["podTemplateOverrides"]
	errs := Of(s.served).UnknownJobs(specOf(t, s.spec(s.placed, s.second)), []string{"other"})
	want := []string{
		"spec.podTemplateOverrides[1].targetJobs[0].name: FieldValueInvalid",
		"spec.podTemplateOverrides[1].targetJobs[1].name: FieldValueInvalid",
	}
	expect.Same(t, "Unexpected errors", want, expect.FieldsAndTypes(errs))
}

func TestWhatTrainerIgnoresIsNotRendered(t *testing.T) {
	f := Of(trainjob.Trainer21)
	const want = `{"manager":"trainer.kubeflow.org/kubeflow-sdk","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}}]}}}}`
	expect.Rows(t, map[string]string{
		"an override for no job":  `{"targetJobs":[],"spec":{"hostname":"a"}},{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"a":"b"}}}`,
		"a name and finalizers":   `{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"a":"b"},"name":"x","namespace":"y","finalizers":["z"]}}`,
		"metadata that is null":   `{"targetJobs":[{"name":"node"}],"metadata":null},{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"a":"b"}}}`,
		"targets that are none":   `{"targetJobs":null},{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"a":"b"}}}`,
		"a plain override, alone": `{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"a":"b"}}}`,
	}, func(t *testing.T, overrides string) {
		expect.Same(t, "It is rendered from something else", want, expect.JSON(t, one(t)(f.Others(specOf(t, `{"podTemplateOverrides":[`+overrides+`]}`)))))
	})
}

// What renders does not look at owners: an override behind ours wins, as it does in Trainer.
func TestAllOverridesAreOnePatch(t *testing.T) {
	spec := specOf(t, `{"podTemplateOverrides":[
		{"targetJobs":[{"name":"node"}],"spec":{"nodeSelector":{"pool":"first","zone":"first"}}},
		`+sides["podTemplateOverrides"].placed+`,
		{"targetJobs":[{"name":"node"}],"spec":{"nodeSelector":{"pool":"last"}}}]}`)
	entry := expect.Must(one(t)(Of(trainjob.Trainer21).All(spec)).Decode())(t)
	pod := trainjob.ReplicatedJobs(&entry)[0].Template.Spec.Template
	expect.Same(t, "Unexpected node selector", map[string]string{"pool": "last", "zone": "first"}, pod.Spec.NodeSelector)
	expect.Same(t, "Trainer gives the pods our mark, and what is rendered does not have it", Manager, pod.Metadata.Annotations[ManagerAnnotation])
}

func TestReservedByOthers(t *testing.T) {
	entry := func(manager, pod string) string {
		return `{"runtimePatches":[{"manager":"` + manager + `","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":` + pod + `}}}]}}}}]}`
	}
	const pod = "spec.runtimePatches[example.com/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template."
	type row struct {
		served trainjob.TrainerVersion
		spec   string
		want   []string
	}
	expect.Rows(t, map[string]row{
		"our gate in another entry": {spec: entry("example.com/me", `{"spec":{"schedulingGates":[{"name":"example.com/mine"},{"name":"kueue-trainer.dev/admission"}]}}`),
			want: []string{pod + "spec.schedulingGates[1].name"}},
		"a gate of Kueue's, and our label": {spec: entry("example.com/me", `{"metadata":{"labels":{"kueue-trainer.dev/gated":"false"}},"spec":{"schedulingGates":[{"name":"kueue.x-k8s.io/topology"}]}}`),
			want: []string{pod + "metadata.labels[kueue-trainer.dev/gated]", pod + "spec.schedulingGates[0].name"}},
		"our own entry":                 {spec: entry(Manager, `{"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`)},
		"gates of others":               {spec: entry("example.com/me", `{"spec":{"schedulingGates":[{"name":"example.com/kueue.x-k8s.io"}]}}`)},
		"the words elsewhere":           {spec: entry("example.com/me", `{"metadata":{"annotations":{"kueue-trainer.dev/gated":"true"}},"spec":{"volumes":[{"name":"kueue-trainer.dev/admission"}]}}`)},
		"entries that cannot be read":   {spec: `{"runtimePatches":[null,7,{"manager":7},{"trainingRuntimeSpec":{"template":null}}]}`},
		"nothing":                       {spec: `{}`},
		"overrides that cannot be read": {served: trainjob.Trainer21, spec: `{"podTemplateOverrides":[null,7,{"spec":{"schedulingGates":7},"metadata":{"labels":[]}}]}`},
		"our own override":              {served: trainjob.Trainer21, spec: `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"metadata":{"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}]}`},
		"our gate in an override, behind": {served: trainjob.Trainer21,
			spec: `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}]},{"targetJobs":[{"name":"node"}],"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}]}`,
			want: []string{"spec.podTemplateOverrides[1].spec.schedulingGates[0].name"}},
	}, func(t *testing.T, tc row) {
		places := Of(cmp.Or(tc.served, trainjob.Trainer23)).ReservedByOthers(specOf(t, tc.spec))
		expect.Same(t, "Unexpected places", tc.want, expect.Each(places, (*field.Path).String))
	})
}

func TestSurplus(t *testing.T) {
	const mark = `"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}`
	expect.Rows(t, map[string]expect.Row[string, []string]{
		"a placement as the manager writes it": {In: sides["podTemplateOverrides"].spec(sides["podTemplateOverrides"].placed)},
		"what a user adds to it": {In: `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}]},{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"a":"b"},"name":"n",` + mark + `},"spec":{"serviceAccountName":"mine","affinity":{"podAffinity":{"x":1}},"nodeSelector":{"a":"b"}}}]}`,
			Want: []string{
				"spec.podTemplateOverrides[1].metadata.name",
				"spec.podTemplateOverrides[1].spec.affinity.podAffinity.x",
				"spec.podTemplateOverrides[1].spec.serviceAccountName",
			}},
		"what says nothing": {In: `{"podTemplateOverrides":[{"targetJobs":[],"metadata":{` + mark + `},"spec":{"volumes":[],"affinity":{},"hostname":null}}]}`},
		"what cannot be read as a placement": {In: `{"podTemplateOverrides":[{"metadata":{` + mark + `},"spec":{"tolerations":7}}]}`,
			Want: []string{"spec.podTemplateOverrides[0]"}},
		"an override of somebody else": {In: `{"podTemplateOverrides":[{"spec":{"serviceAccountName":"mine"}}]}`},
		"entries have owners":          {In: `{"runtimePatches":[{"manager":"kueue.x-k8s.io/manager","future":1}]}`},
	}, func(t *testing.T, tc expect.Row[string, []string]) {
		spec := specOf(t, tc.In)
		warnings := append(Of(trainjob.Trainer21).Surplus(spec), Of(trainjob.Trainer23).Surplus(spec)...)
		expect.Same(t, "Unexpected fields", tc.Want, expect.Each(warnings, func(warning string) string { return strings.Fields(warning)[0] }))
	})
}
