// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPlacement(t *testing.T) {
	runtime := provenance.Source{Kind: provenance.Runtime}
	mine := provenance.Source{Kind: provenance.Patch, Manager: "example.com/me"}
	said := func(by provenance.Source, value string) provenance.Setting {
		return provenance.Setting{Source: by, Value: json.RawMessage(value)}
	}
	f := newScene(func(s *scene) {
		s.Fields = []provenance.Field{
			{Job: "node", Path: "spec.template.spec.nodeSelector[pool]", Setting: said(runtime, `"h100"`)},
			{Job: "node", Path: "spec.template.spec.tolerations", Setting: said(mine, `[{"key":"spot","operator":"Exists"}]`),
				Overrode: []provenance.Setting{said(runtime, `[]`)}},
			{Job: "node", Path: "spec.template.spec.volumes[data].emptyDir", Setting: said(mine, `{}`)},
			{Job: "node", Path: "spec.template.metadata.labels[kueue.x-k8s.io/podset]", Setting: said(runtime, `"node"`)},
			{Job: "node", Path: "metadata.labels[team]", Setting: said(mine, `"a"`)},
			// Nothing of these decides on a place, and no patch set them.
			{Job: "node", Path: "spec.template.spec.containers[node].image", Setting: said(runtime, `"torch"`)},
			{Job: "node", Path: "spec.parallelism", Setting: said(provenance.Source{Kind: provenance.Trainer}, `4`)},
		}
	}).facts(t)
	want := []Part{
		{Field: "metadata.labels[kueue.x-k8s.io/queue-name]", Value: json.RawMessage(`"gpus"`), SetBy: "TrainJob"},
		{ReplicatedJob: "node", Field: "nodeSelector[pool]", Value: json.RawMessage(`"h100"`), SetBy: "runtime torch"},
		{ReplicatedJob: "node", Field: "tolerations", Value: json.RawMessage(`[{"key":"spot","operator":"Exists"}]`), SetBy: "example.com/me",
			Overrode: []Overridden{{Value: json.RawMessage(`[]`), SetBy: "runtime torch"}}},
		{ReplicatedJob: "node", Field: "volumes[data].emptyDir", Value: json.RawMessage(`{}`), SetBy: "example.com/me"},
		{ReplicatedJob: "node", Field: "labels[kueue.x-k8s.io/podset]", Value: json.RawMessage(`"node"`), SetBy: "runtime torch"},
		{ReplicatedJob: "node", Field: "metadata.labels[team]", Value: json.RawMessage(`"a"`), SetBy: "example.com/me"},
	}
	expect.Same(t, "Unexpected placement", want, Placement(f))
}

func TestValueText(t *testing.T) {
	cases := map[string]struct{ field, value, want string }{
		"a text":      {"nodeSelector[pool]", `"h100"`, "h100"},
		"tolerations": {"tolerations", `[{"operator":"Exists"},{"key":"a","value":"b","effect":"NoSchedule"},{"key":"c","operator":"Exists"}]`, "*, a=b:NoSchedule, c"},
		"a gate":      {"schedulingGates[g]", `{"name":"g"}`, "g"},
		"other":       {"affinity.nodeAffinity", `{"a":[1]}`, `{"a":[1]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected text of a value", tc.want, valueText(tc.field, json.RawMessage(tc.value)))
		})
	}
}
