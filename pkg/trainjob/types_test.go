// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var testScheme = kit.Scheme(AddToScheme)

func jobWithPatches(patches string) string {
	return `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob",` +
		`"metadata":{"name":"job","namespace":"ns"},` +
		`"spec":{"runtimeRef":{"name":"torch"},"runtimePatches":` + patches + `,"suspend":true}}`
}

func encodedPatches(t testing.TB, data []byte) string {
	t.Helper()
	job := expect.FromJSON[struct {
		Spec struct{ RuntimePatches json.RawMessage }
	}](t, string(data))
	return string(job.Spec.RuntimePatches)
}

func TestRuntimePatchesKeepTheirBytes(t *testing.T) {
	type row struct {
		// want is the same, and wantManagers only a.io/x, where they are left out.
		patches, want string
		wantManagers  []string
	}
	expect.Rows(t, map[string]row{
		"explicit zeros": {patches: `[{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"spec":` +
			`{"containers":[{"name":"node","env":[{"name":"E","value":""}],"volumeMounts":[{"name":"v","mountPath":"/v","readOnly":false}]}]}}}}}]}}}}]`},
		"fields that no type knows":                   {patches: `[{"manager":"a.io/x","future":{"deep":[1,2.50,null,true]},"trainingRuntimeSpec":{"unheardOf":0}}]`},
		"fields in an order that Go would not choose": {patches: `[{"trainingRuntimeSpec":{"template":{}},"time":"2026-01-01T00:00:00Z","manager":"a.io/x"}]`},
		"empty maps and lists":                        {patches: `[{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"metadata":{"labels":{}},"spec":{"replicatedJobs":[]}}}}]`},
		"numbers that a float cannot hold":            {patches: `[{"manager":"a.io/x","n":9007199254740993,"m":1e400}]`},
		"characters that the API server escapes":      {patches: `[{"manager":"a.io/x","v":"a\u003cb\u0026c\u003ed \u00e9"}]`},
		"white space is not kept, as the API server sends none": {patches: "[ {\n \"manager\" : \"a.io/x\" , \"v\" : \" a \" } ]",
			want: `[{"manager":"a.io/x","v":" a "}]`},
		"order and doubled managers": {patches: `[{"manager":"b.io/x"},{"manager":"a.io/x"},{"manager":"b.io/x","n":1}]`,
			wantManagers: []string{"b.io/x", "a.io/x", "b.io/x"}},
		"odd entries decode and keep their place": {patches: `[null,7,"text",true,[],{},{"manager":7,"v":1},{"manager":null},{"time":"not a time"},{"manager":"a.io/x"}]`,
			wantManagers: []string{"", "", "", "", "", "", "", "", "", "a.io/x"}},
		"the key in another case is another field": {patches: `[{"manager":"a.io/x","Manager":"b.io/x"},{"MANAGER":"b.io/x"}]`, wantManagers: []string{"a.io/x", ""}},
	}, func(t *testing.T, tc row) {
		want := cmp.Or(tc.want, tc.patches)
		if tc.wantManagers == nil {
			tc.wantManagers = []string{"a.io/x"}
		}
		codecs := serializer.NewCodecFactory(testScheme)
		obj := expect.Must(runtime.Decode(codecs.UniversalDeserializer(), []byte(jobWithPatches(tc.patches))))(t)
		original := obj.(*TrainJob)
		expect.Same(t, "Unexpected managers", tc.wantManagers, expect.Each(original.Spec.RuntimePatches, func(p RuntimePatch) string { return p.Manager }))
		copied := original.DeepCopyObject().(*TrainJob)

		asClient := expect.Must(runtime.Encode(codecs.LegacyCodec(trainer.GroupVersion), copied))(t)
		expect.Same(t, "Unexpected bytes from the client's codec", want, encodedPatches(t, asClient))
		expect.Same(t, "Unexpected bytes", want, encodedPatches(t, expect.Must(json.Marshal(copied))(t)))
	})
}

func TestRuntimePatchKeepsItsOwnBytes(t *testing.T) {
	data := []byte(`{"manager":"a.io/x","v":1}`)
	var p RuntimePatch
	expect.NoError(t, p.UnmarshalJSON(data))
	// A decoder may use its buffer again.
	copy(data, bytes.Repeat([]byte("#"), len(data)))
	expect.Same(t, "Unexpected bytes", `{"manager":"a.io/x","v":1}`, string(expect.Must(p.MarshalJSON())(t)))
}

func TestZeroRuntimePatchEncodesAsNull(t *testing.T) {
	expect.Same(t, "Unexpected bytes", "[null]", expect.JSON(t, []RuntimePatch{{}}))
}

func TestMergePatch(t *testing.T) {
	others := `[{"time":"2026-01-01T00:00:00Z","manager":"a.io/x","future":0,"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[` +
		`{"name":"node","template":{"spec":{"template":{"spec":{"containers":[{"name":"node","env":[{"name":"E","value":""}],"volumeMounts":[{"name":"v","mountPath":"/v","readOnly":false}]}]}}}}}]}}}}]`
	resume := func(j *TrainJob) { j.Spec.Suspend = ptr.To(false) }
	type row struct {
		patches, want string
		change        func(*TrainJob)
	}
	expect.Rows(t, map[string]row{
		"only suspend changes":                    {patches: others, change: resume, want: `{"spec":{"suspend":false}}`},
		"only suspend changes beside odd entries": {patches: `[null,7,{"manager":7},{"manager":"a.io/x","n":9007199254740993}]`, change: resume, want: `{"spec":{"suspend":false}}`},
		"nothing changes":                         {patches: others, change: func(*TrainJob) {}, want: `{}`},
		"an entry is added: the list is written whole, with the zeros of others": {patches: `[{"manager":"a.io/x","v":{"readOnly":false,"value":"","n":0,"none":null,"big":9007199254740993}}]`,
			change: func(j *TrainJob) {
				j.Spec.RuntimePatches = append(j.Spec.RuntimePatches, RuntimePatch{Manager: "b.io/x", raw: []byte(`{"manager":"b.io/x"}`)})
			}, want: `{"spec":{"runtimePatches":[{"manager":"a.io/x","v":{"big":9007199254740993,"n":0,"none":null,"readOnly":false,"value":""}},{"manager":"b.io/x"}]}}`},
	}, func(t *testing.T, tc row) {
		before := expect.FromJSON[*TrainJob](t, jobWithPatches(tc.patches))
		after := before.DeepCopy()
		tc.change(after)
		expect.Same(t, "Unexpected merge patch", tc.want, string(expect.Must(client.MergeFrom(before).Data(after))(t)))
	})
}

// fullJob has every field of Spec set.
func fullJob() *TrainJob {
	return &TrainJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: trainer.GroupVersion.String(), Kind: "TrainJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid", Labels: map[string]string{"l": "v"}},
		Spec: Spec{
			RuntimeRef:            trainer.RuntimeRef{Name: "torch", APIGroup: ptr.To("trainer.kubeflow.org"), Kind: ptr.To("TrainingRuntime")},
			Initializer:           &trainer.Initializer{Dataset: &trainer.DatasetInitializer{StorageUri: ptr.To("hf://data")}},
			Trainer:               &trainer.Trainer{NumNodes: ptr.To[int32](2), Command: []string{"python"}, Env: []corev1.EnvVar{{Name: "E", Value: "v"}}},
			RuntimePatches:        []RuntimePatch{{Manager: "a.io/x", raw: []byte(`{"manager":"a.io/x"}`)}},
			PodTemplateOverrides:  []RuntimePatch{{TargetJobs: []string{"node"}, raw: []byte(`{"targetJobs":[{"name":"node"}]}`)}},
			Suspend:               ptr.To(true),
			ActiveDeadlineSeconds: 60,
			ManagedBy:             ptr.To(ControllerName),
		},
		Status: trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{{Name: "node", Ready: ptr.To[int32](1)}}},
	}
}

func TestDeepCopy(t *testing.T) {
	job := fullJob()
	spec := reflect.ValueOf(job.Spec)
	for i := range spec.NumField() {
		expect.Need(t, !spec.Field(i).IsZero(), "This test does not set spec field %s", spec.Type().Field(i).Name)
	}
	list := &List{Items: []TrainJob{*job}}
	expect.Rows(t, map[string]*TrainJob{
		"of a TrainJob": job.DeepCopyObject().(*TrainJob),
		"of a list":     &list.DeepCopyObject().(*List).Items[0],
	}, func(t *testing.T, copied *TrainJob) {
		expect.Same(t, "The copy differs", fullJob(), copied)
		copied.Labels["l"] = "changed"
		*copied.Spec.RuntimeRef.Kind = "changed"
		*copied.Spec.Initializer.Dataset.StorageUri = "changed"
		copied.Spec.Trainer.Command[0] = "changed"
		copied.Spec.Trainer.Env[0].Value = "changed"
		copied.Spec.RuntimePatches[0] = RuntimePatch{Manager: "changed"}
		*copied.Spec.Suspend = false
		*copied.Spec.ManagedBy = "changed"
		*copied.Status.JobsStatus[0].Ready = 7
		expect.Same(t, "Changing the copy changed the original", fullJob(), job)
	})
	expect.Same(t, "Unexpected copy of the zero TrainJob", &TrainJob{}, (&TrainJob{}).DeepCopy())
	expect.Same(t, "Unexpected copy of the zero list", &List{}, (&List{}).DeepCopyObject().(*List))
}

func TestTyped(t *testing.T) {
	job := fullJob()
	patch := RuntimePatch{Manager: "b.io/x", raw: []byte(`{"manager":"b.io/x","trainingRuntimeSpec":{"template":{"metadata":{"labels":{"k":"v"}}}}}`)}
	got := expect.Must(job.typed([]RuntimePatch{patch}))(t)
	want := &trainer.TrainJob{
		TypeMeta:   job.TypeMeta,
		ObjectMeta: job.ObjectMeta,
		Spec: trainer.TrainJobSpec{
			RuntimeRef: job.Spec.RuntimeRef, Initializer: job.Spec.Initializer, Trainer: job.Spec.Trainer,
			RuntimePatches: []trainer.RuntimePatch{{
				Manager: "b.io/x",
				TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{
					Metadata: &metav1.ObjectMeta{Labels: map[string]string{"k": "v"}},
				}},
			}},
			Suspend: ptr.To(true), ActiveDeadlineSeconds: 60, ManagedBy: ptr.To(ControllerName),
		},
		Status: job.Status,
	}
	expect.Same(t, "Unexpected TrainJob", want, got)
}

func TestDecodeReadsWhatNewRuntimePatchWrites(t *testing.T) {
	entry := trainer.RuntimePatch{Manager: "a.io/x", Time: &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)}, TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
		Template: &trainer.JobSetTemplatePatch{Metadata: &metav1.ObjectMeta{Annotations: map[string]string{"k": "<v>"}}},
	}}
	p := NewRuntimePatch(&entry)
	expect.Same(t, "Unexpected manager", entry.Manager, p.Manager)
	expect.Same(t, "Unexpected entry", entry, expect.Must(p.Decode())(t))
}

func TestSuspended(t *testing.T) {
	expect.Answers(t, func(in *bool) bool { return (&TrainJob{Spec: Spec{Suspend: in}}).Suspended() }, map[string]expect.Row[*bool, bool]{
		"absent means running": {}, "false": {In: ptr.To(false)}, "true": {In: ptr.To(true), Want: true},
	})
}

// Trainer 2.1 has "auto" where later ones have a number.
func TestSpecHasWhatItsTrainerAsksFor(t *testing.T) {
	for processes, want := range map[string]*int32{`"auto"`: nil, `8`: ptr.To[int32](8)} {
		spec := expect.FromJSON[Spec](t, `{"trainer":{"numNodes":2,"numProcPerNode":`+processes+`}}`)
		expect.Same(t, "Unexpected trainer", &trainer.Trainer{NumNodes: ptr.To[int32](2), NumProcPerNode: want}, spec.Trainer)
	}
}

func TestHeldFrom(t *testing.T) {
	for name, want := range map[string]string{HeldQueue("gpus"): "gpus", "a.b.held": "a.b", "gpus": "", ".held": "", "": ""} {
		queue, is := HeldFrom(name)
		expect.That(t, is == (want != "") && (!is || queue == want), "HeldFrom(%q) = %q, %t, want %q", name, queue, is, want)
	}
}

func TestManagedExternally(t *testing.T) {
	expect.Answers(t, func(in *string) bool { return (&TrainJob{Spec: Spec{ManagedBy: in}}).ManagedExternally() }, map[string]expect.Row[*string, bool]{
		"absent means Trainer": {}, "Trainer": {In: ptr.To(ControllerName)}, "another": {In: ptr.To("kueue.x-k8s.io/multikueue"), Want: true},
	})
}

func TestAddToSchemeKnowsKindsByTheirNamesInTheAPI(t *testing.T) {
	for kind, want := range map[string]string{
		"TrainJob": "*trainjob.TrainJob", "TrainJobList": "*trainjob.List",
		"TrainingRuntime": "*v1alpha1.TrainingRuntime", "ClusterTrainingRuntimeList": "*v1alpha1.ClusterTrainingRuntimeList",
	} {
		expect.Same(t, "Unexpected type of "+kind, want, fmt.Sprintf("%T", expect.Must(testScheme.New(trainer.GroupVersion.WithKind(kind)))(t)))
	}
}

func FuzzRuntimePatchJSON(f *testing.F) {
	for _, seed := range []string{
		`{"manager":"a.io/x","trainingRuntimeSpec":{"v":""}}`, `{"manager":7}`, `null`, ` [1, 2.50] `, `"<&>"`, `{"a":1,"a":2}`, `{"Manager":"x"}`, "\"\xff\"",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		// What json makes of bytes that it is to leave alone: no white space, HTML escaped.
		want := expect.Must(json.Marshal(json.RawMessage(data)))(t)
		patches := expect.FromJSON[[]RuntimePatch](t, fmt.Sprintf("[%s,%s]", data, data))
		expect.Same(t, "Unexpected bytes", fmt.Sprintf("[%s,%s]", want, want), string(expect.Must(json.Marshal(patches))(t)))
		same := patches[0].Equal(patches[1]) && patches[0].Manager == patches[1].Manager
		expect.That(t, same, "The same bytes give different entries: %+v", patches)
	})
}

func TestOurs(t *testing.T) {
	const marked = `"metadata": {"annotations": {"kueue-trainer.dev/manager": "kueue.x-k8s.io/manager"}}`
	expect.Rows(t, map[string]expect.Row[string, bool]{
		"our entry":                            {In: `{"manager": "kueue.x-k8s.io/manager"}`, Want: true},
		"another's":                            {In: `{"manager": "a.io/x"}`},
		"an override with our mark":            {In: `{"targetJobs": [{"name": "node"}], ` + marked + `}`, Want: true},
		"an override without it":               {In: `{"targetJobs": [{"name": "node"}]}`},
		"another's entry that copies our mark": {In: `{"manager": "a.io/x", ` + marked + `}`},
	}, func(t *testing.T, tc expect.Row[string, bool]) {
		expect.Same(t, "It is ours", tc.Want, NewRuntimePatch(json.RawMessage(tc.In)).Ours())
	})
}
