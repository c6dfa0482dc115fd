// SPDX-License-Identifier: Apache-2.0

package generations

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
)

var (
	seed  = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random manifests")
	count = flag.Int("count", 10_000, "how many manifests to convert in each direction")
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

// podsOf reads a JobSet. Lists that Kubernetes reads by key come sorted, and containers
// too when their order is not known.
func podsOf(t *testing.T, a answer, anyOrder bool) pods {
	t.Helper()
	if a.Failure != "" {
		t.Fatalf("Trainer failed: %s", a.Failure)
	}
	var p pods
	if err := json.Unmarshal(a.JobSet, &p); err != nil {
		t.Fatalf("Decoding a JobSet: %v", err)
	}
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

// converted is a manifest before and after.
type converted struct {
	runtime          any
	original, result json.RawMessage
	anyOrder         bool
}

func convertAll(t *testing.T, make func(random.Source) random.Object, way func([]byte) ([]byte, []string, field.ErrorList)) []converted {
	t.Helper()
	s := random.New(*seed)
	all := []converted{}
	for range *count {
		original, err := json.Marshal(make(s))
		if err != nil {
			t.Fatalf("Encoding: %v", err)
		}
		result, warnings, errs := way(original)
		if len(errs) > 0 {
			t.Fatalf("Converting %s (-seed %d): %v", original, *seed, errs.ToAggregate())
		}
		all = append(all, converted{
			runtime: s.Runtime(), original: original, result: result,
			anyOrder: slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "order may differ") }),
		})
	}
	return all
}

// expectSamePods compares what one release made of the originals with what another one
// makes of the results.
func expectSamePods(t *testing.T, all []converted, from string, before []answer, to string) {
	t.Helper()
	var results []question
	exact := 0
	for _, c := range all {
		results = append(results, question{Runtime: c.runtime, Job: c.result})
		if !c.anyOrder {
			exact++
		}
	}
	after := ask(t, to, results)
	for i, c := range all {
		want, got := podsOf(t, before[i], c.anyOrder), podsOf(t, after[i], c.anyOrder)
		if diff := gocmp.Diff(want, got); diff != "" {
			runtime, _ := json.Marshal(c.runtime)
			t.Fatalf("Manifest %d (-seed %d) gives other pods with %s than with %s (-%s,+%s):\n%s\nruntime:   %s\noriginal:  %s\nconverted: %s",
				i, *seed, to, from, from, to, diff, runtime, c.original, c.result)
		}
	}
	t.Logf("%d manifests, in %d of them the order of containers compared too (-seed %d)", len(all), exact, *seed)
}

func askOriginals(t *testing.T, all []converted, module string) []answer {
	t.Helper()
	questions := make([]question, 0, len(all))
	for _, c := range all {
		questions = append(questions, question{Runtime: c.runtime, Job: c.original})
	}
	return ask(t, module, questions)
}

func overridesJob(s random.Source) random.Object {
	fields := random.Object{"podTemplateOverrides": s.PodTemplateOverrides()}
	metadata := s.Metadata()
	for key, value := range metadata {
		fields[key] = value
	}
	return s.Job(fields)
}

func toRuntimePatches(data []byte) ([]byte, []string, field.ErrorList) {
	return convert.ManifestToRuntimePatches(data, "example.com/owner")
}

func TestOverridesToPatches(t *testing.T) {
	all := convertAll(t, overridesJob, toRuntimePatches)
	before := askOriginals(t, all, "trainer21")
	for _, to := range []string{"trainer22", "trainer23"} {
		t.Run(to, func(t *testing.T) { expectSamePods(t, all, "trainer21", before, to) })
	}
}

func TestPatchesToOverrides(t *testing.T) {
	all := convertAll(t, func(s random.Source) random.Object {
		return s.Job(random.Object{"runtimePatches": s.RuntimePatches(false)})
	}, convert.ManifestToPodTemplateOverrides)
	expectSamePods(t, all, "trainer23", askOriginals(t, all, "trainer23"), "trainer21")
}
