// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
)

// Part is a value of the effective placement with its owner.
type Part struct {
	ReplicatedJob string          `json:"replicatedJob,omitempty"` // empty for what is said of the TrainJob itself
	Field         string          `json:"field"`                   // a path from the pod template: nodeSelector[pool], labels[team]
	Value         json.RawMessage `json:"value"`
	SetBy         string          `json:"setBy"`
	// Overrode are the values that it took the place of, the strongest first.
	Overrode []Overridden `json:"overrode,omitempty"`
}

// Overridden is a value that did not come into effect.
type Overridden struct {
	Value json.RawMessage `json:"value"`
	SetBy string          `json:"setBy"`
}

// jobLabels are the labels of a TrainJob that Kueue goes by.
var jobLabels = []string{kueueconstants.QueueLabel, kueueconstants.WorkloadPriorityClassLabel}

// Placement returns what decides where the pods go, and everything that a patch set.
func Placement(f *Facts) []Part {
	var parts []Part
	for _, label := range jobLabels {
		if value, ok := f.Job.Labels[label]; ok {
			data, _ := json.Marshal(value) // A text can be encoded.
			parts = append(parts, Part{Field: "metadata.labels[" + label + "]", Value: data, SetBy: string(provenance.TrainJob)})
		}
	}
	for _, field := range f.Fields {
		if path, ok := placementPath(field); ok {
			p := Part{ReplicatedJob: field.Job, Field: path, Value: field.Value, SetBy: owner(f, field.Source)}
			for _, o := range field.Overrode {
				p.Overrode = append(p.Overrode, Overridden{Value: o.Value, SetBy: owner(f, o.Source)})
			}
			parts = append(parts, p)
		}
	}
	return parts
}

// selecting are the fields of a pod that decide on its node.
var selecting = []string{"nodeSelector[", "tolerations", "schedulingGates[", "affinity", "topologySpreadConstraints",
	"priorityClassName", "runtimeClassName", "schedulerName", "nodeName"}

// placementPath returns the short path of a field of the placement.
func placementPath(field provenance.Field) (string, bool) {
	metadata, isMetadata := strings.CutPrefix(field.Path, "spec.template.metadata.")
	spec, isSpec := strings.CutPrefix(field.Path, "spec.template.spec.")
	patched := field.Kind == provenance.Patch
	switch {
	case isMetadata:
		return metadata, patched || strings.Contains(metadata, "kueue.x-k8s.io/")
	case isSpec:
		return spec, patched || slices.ContainsFunc(selecting, func(prefix string) bool { return strings.HasPrefix(spec, prefix) })
	}
	return field.Path, patched
}

// owner names a source: a runtime by its name, our overrides of Trainer 2.1 like our entry.
func owner(f *Facts, source provenance.Source) string {
	switch source.Kind {
	case provenance.Runtime:
		return "runtime " + f.Job.Spec.RuntimeRef.Name
	case provenance.TrainJob:
		return "TrainJob spec.trainer"
	}
	if overrides := f.Job.Spec.PodTemplateOverrides; source.Manager == "" && source.Kind == provenance.Patch &&
		source.Index < len(overrides) && overrides[source.Index].Ours() {
		return patch.Manager
	}
	return source.String()
}

// valueText is a value for eyes: texts without quotes, tolerations as kubectl writes taints, other things as JSON.
func valueText(part string, value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var named struct{ Name string }
	if strings.HasPrefix(part, "schedulingGates[") && json.Unmarshal(value, &named) == nil {
		return named.Name
	}
	var tolerations []corev1.Toleration
	if part == "tolerations" && json.Unmarshal(value, &tolerations) == nil {
		texts := make([]string, 0, len(tolerations))
		for i := range tolerations {
			taint := corev1.Taint{Key: cmp.Or(tolerations[i].Key, "*"), Value: tolerations[i].Value, Effect: tolerations[i].Effect}
			texts = append(texts, strings.TrimSuffix(taint.ToString(), ":"))
		}
		return strings.Join(texts, ", ")
	}
	return string(value)
}

// valueShown is how much of a value is shown unless -o wide.
const valueShown = 60

func (p *printer) placement(e *Explanation) {
	if e.Undescribed != "" && e.State.Phase != NotCreated && e.State.Reason != "RuntimeMissing" {
		p.say("\n%s %s\n", p.paint.Bold("Placement unknown:"), e.Undescribed)
	}
	if len(e.Placement) == 0 {
		return
	}
	table := show.NewTable("REPLICATED JOB", "PLACEMENT", "VALUE", "SET BY", "INSTEAD OF")
	for _, part := range e.Placement {
		var instead []string
		for _, o := range part.Overrode {
			instead = append(instead, fmt.Sprintf("%s (%s)", p.value(part.Field, o.Value), o.SetBy))
		}
		table.Row(cmp.Or(part.ReplicatedJob, "-"), part.Field, p.value(part.Field, part.Value), p.paint.Cyan(part.SetBy), strings.Join(instead, ", "))
	}
	p.say("\n")
	p.show(table)
}

func (p *printer) value(field string, value []byte) string {
	text := valueText(field, value)
	if runes := []rune(text); !p.wide && len(runes) > valueShown {
		return string(runes[:valueShown]) + "…"
	}
	return text
}
