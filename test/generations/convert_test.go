// SPDX-License-Identifier: Apache-2.0

package generations

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var (
	seed      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random manifests")
	manifests = flag.Int("manifests", 10_000, "how many to convert in each direction")
)

// pods are what Trainer makes of a TrainJob, as far as a patch can tell.
type pods struct {
	Metadata struct {
		Labels, Annotations map[string]string
	}
	Spec struct {
		ReplicatedJobs []struct {
			Name     string
			Template struct {
				Spec struct {
					Template map[string]any
				}
			}
		}
	}
}

func jobSet[T any](t *testing.T, a answer) T {
	t.Helper()
	expect.Need(t, a.Failure == "", "Trainer failed: %s", a.Failure)
	return expect.FromJSON[T](t, string(a.JobSet))
}

// podsOf reads a JobSet. Lists that are read by key come sorted, and containers too when their order is not known.
func podsOf(t *testing.T, a answer, anyOrder bool) pods {
	t.Helper()
	p := jobSet[pods](t, a)
	for i := range p.Spec.ReplicatedJobs {
		template := &p.Spec.ReplicatedJobs[i].Template.Spec.Template
		*template = plain("", *template, anyOrder).(map[string]any)
	}
	return p
}

// plain leaves out nulls and the empty parts that API versions differ in.
func plain(key string, value any, anyOrder bool) any {
	switch value := value.(type) {
	case map[string]any:
		for k, v := range value {
			if value[k] = plain(k, v, anyOrder); value[k] == nil {
				delete(value, k)
			}
		}
	case []any:
		for i := range value {
			value[i] = plain("", value[i], anyOrder)
		}
		byKey := map[string]string{"env": "name", "volumes": "name", "volumeMounts": "mountPath", "schedulingGates": "name", "imagePullSecrets": "name"}
		if anyOrder {
			byKey["containers"], byKey["initContainers"] = "name", "name"
		}
		if mergeKey, ok := byKey[key]; ok {
			slices.SortFunc(value, func(a, b any) int {
				return cmp.Compare(fmt.Sprint(a.(map[string]any)[mergeKey]), fmt.Sprint(b.(map[string]any)[mergeKey]))
			})
		}
	}
	return value
}

// converted is a manifest before and after. Others is the original without our part, which conversions leave out.
type converted struct {
	runtime, original, others, result json.RawMessage
	anyOrder                          bool
}

func (c converted) String() string {
	return fmt.Sprintf("runtime:   %s\noriginal:  %s\nconverted: %s", c.runtime, c.original, c.result)
}

// batch bounds how many manifests are in memory at a time.
const batch = 1000

// direction is a conversion and the releases on its two sides. Nobody serves the originals of a proposal.
type direction struct {
	proposal bool
	newJob   func(random.Source) random.Object
	convert  func([]byte) ([]byte, []string, field.ErrorList)
	from, to trainjob.TrainerVersion
	count    int
}

// prove converts random manifests, has the CRDs check them, and compares the pods that the releases make of them.
func (d direction) prove(t *testing.T) {
	t.Helper()
	s, exact := random.New(*seed).Taken(), 0
	from, to := crd(t, d.from), crd(t, d.to)
	for start := 0; start < d.count; start += batch {
		all := d.convertAll(t, s, min(batch, d.count-start))
		for i, c := range all {
			found := refusals(t, from, c.original)
			expect.Need(t, len(found) == 0 || d.proposal, "Manifest %d (-seed %d) is nothing for %s: %q\n%s", start+i, *seed, d.from, found, c)
			found = refusals(t, to, c.result)
			expect.Need(t, len(found) == 0, "Manifest %d (-seed %d) is refused by %s: %q\n%s", start+i, *seed, d.to, found, c)
		}
		before := ask(t, d.from, questions(all, func(c converted) json.RawMessage { return c.others }))
		after := ask(t, d.to, questions(all, func(c converted) json.RawMessage { return c.result }))
		for i, c := range all {
			diff := gocmp.Diff(podsOf(t, before[i], c.anyOrder), podsOf(t, after[i], c.anyOrder))
			expect.Need(t, diff == "", "Manifest %d (-seed %d) gives other pods with %s than with %s (-%[4]s,+%[3]s):\n%[5]s\n%[6]s", start+i, *seed, d.to, d.from, diff, c)
			if !c.anyOrder {
				exact++
			}
		}
	}
	t.Logf("%d manifests, in %d of them the order of containers compared too (-seed %d)", d.count, exact, *seed)
}

func (d direction) convertAll(t *testing.T, s random.Source, count int) []converted {
	t.Helper()
	all := make([]converted, 0, count)
	for range count {
		c := converted{runtime: encode(t, s.Runtime()), original: encode(t, d.newJob(s))}
		result, warnings, errs := d.convert(c.original)
		expect.Need(t, len(errs) == 0, "Converting %s (-seed %d): %v", c.original, *seed, errs)
		c.others, c.result = withoutOurs(t, c.original), result
		c.anyOrder = slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "order may differ") })
		all = append(all, c)
	}
	return all
}

func questions(all []converted, job func(converted) json.RawMessage) []question {
	return expect.Each(all, func(c converted) question { return question{Runtime: c.runtime, Job: job(c)} })
}

func toRuntimePatches(data []byte) ([]byte, []string, field.ErrorList) {
	return convert.ManifestToRuntimePatches(data, "example.com/owner")
}

func overridesJob(s random.Source) random.Object {
	fields := random.Object{"podTemplateOverrides": s.PodTemplateOverrides()}
	maps.Copy(fields, s.Metadata())
	return s.Job(fields)
}

// queuedJob has overrides of ours as often as not.
func queuedJob(s random.Source) random.Object {
	job := overridesJob(s)
	spec := job["spec"].(random.Object)
	if s.IntN(2) == 0 {
		ours := random.Object{
			"targetJobs": []any{random.Object{"name": "node"}, random.Object{"name": "extra"}},
			"metadata":   random.Object{"annotations": random.Object{patch.ManagerAnnotation: patch.Manager}},
			"spec":       s.PodSpec(s.IntN(len(random.Jobs)), false),
		}
		overrides := spec["podTemplateOverrides"].([]any)
		spec["podTemplateOverrides"] = slices.Insert(overrides, s.IntN(len(overrides)+1), any(ours))
	}
	return job
}

// withoutOurs takes our overrides and our entry out of a TrainJob.
func withoutOurs(t *testing.T, original json.RawMessage) json.RawMessage {
	t.Helper()
	job := recoded[struct{ Spec trainjob.Spec }](t, original)
	patch.Of(trainjob.Trainer21).Drop(&job.Spec)
	patch.Of(trainjob.Trainer23).Drop(&job.Spec)
	fields := recoded[random.Object](t, original)
	spec := fields["spec"].(random.Object)
	spec["podTemplateOverrides"], spec["runtimePatches"] = job.Spec.PodTemplateOverrides, job.Spec.RuntimePatches
	return encode(t, fields)
}

func TestOverridesToPatches(t *testing.T) {
	direction{newJob: queuedJob, convert: toRuntimePatches, from: trainjob.Trainer21, to: trainjob.Trainer23, count: *manifests}.prove(t)
}

// The merges of 2.2 and 2.3 differ in nothing that a patch can say.
func TestOverridesToPatchesOf22(t *testing.T) {
	direction{newJob: queuedJob, convert: toRuntimePatches, from: trainjob.Trainer21, to: trainjob.Trainer22, count: *manifests / 10}.prove(t)
}

// TestProposalToPatches converts what the overrides would be in the shapes of the proposal, which no release serves.
func TestProposalToPatches(t *testing.T) {
	direction{
		proposal: true, newJob: overridesJob,
		convert: func(data []byte) ([]byte, []string, field.ErrorList) {
			return toRuntimePatches(encode(t, proposed(t, data)))
		},
		from: trainjob.Trainer21, to: trainjob.Trainer23, count: *manifests,
	}.prove(t)
}

// proposed hands the overrides of a TrainJob out to managers, in a shape that depends on how many there are.
func proposed(t *testing.T, data []byte) random.Object {
	t.Helper()
	job := recoded[random.Object](t, json.RawMessage(data))
	spec := job["spec"].(random.Object)
	overrides, _ := spec["podTemplateOverrides"].([]any)
	entries := []any{}
	var last random.Object
	for i, o := range overrides {
		o := o.(random.Object)
		o["time"] = fmt.Sprintf("2026-02-17T10:00:%02dZ", i)
		manager := random.Managers[i*len(random.Managers)/len(overrides)]
		if len(overrides)%2 == 1 {
			o["manager"] = manager
			entries = append(entries, o)
			continue
		}
		if last == nil || last["manager"] != manager {
			last = random.Object{"manager": manager, "pod": []any{}}
			entries = append(entries, last)
		}
		last["pod"] = append(last["pod"].([]any), o)
	}
	delete(spec, "podTemplateOverrides")
	spec["templateOverrides"] = entries
	if len(overrides) == 3 {
		delete(spec, "templateOverrides")
		spec["podTemplateOverrides"] = entries
	}
	return job
}

func TestPatchesToOverrides(t *testing.T) {
	direction{
		newJob: func(s random.Source) random.Object {
			return s.Job(random.Object{"runtimePatches": s.RuntimePatches(false)})
		},
		convert: convert.ManifestToPodTemplateOverrides,
		from:    trainjob.Trainer23, to: trainjob.Trainer21, count: *manifests,
	}.prove(t)
}
