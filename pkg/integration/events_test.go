// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestPlacedMessage(t *testing.T) {
	wl := &kueue.Workload{
		Spec: kueue.WorkloadSpec{QueueName: "team"},
		Status: kueue.WorkloadStatus{Admission: &kueue.Admission{
			ClusterQueue: "gpus",
			PodSetAssignments: []kueue.PodSetAssignment{
				{Name: "dataset-initializer", Count: ptr.To[int32](1)},
				{
					Name: "node", Count: ptr.To[int32](2),
					Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "cpus", "memory": "cpus", "nvidia.com/gpu": "h100"},
					ResourceUsage: corev1.ResourceList{
						"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("16"),
					},
				},
			},
		}},
	}
	want := "Admitted from queue team by ClusterQueue gpus: dataset-initializer 1 pod on no flavor, it requests nothing; " +
		"node 2 pods on flavor cpus (64Gi memory, 8 cpu), flavor h100 (16 nvidia.com/gpu)"
	if diff := cmp.Diff(want, placedMessage(wl)); diff != "" {
		t.Errorf("Unexpected message (-want,+got):\n%s", diff)
	}
}

func TestQuiet(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workloads"}, "wl", errors.New("changed"))
	cases := map[string]struct {
		err       error
		wantError bool
	}{
		"a conflict is retried and no error":     {err: conflict},
		"pods that are left are no error":        {err: errStillActive},
		"an answer that stays wrong is one":      {err: errors.New("forbidden"), wantError: true},
		"so is one that wraps no expected retry": {err: apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")), wantError: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := quiet(funcr.NewJSON(func(line string) { out.WriteString(line + "\n") }, funcr.Options{Verbosity: 2}))
			log.WithName("controller").WithValues("a", "b").Error(tc.err, "Reconciling")
			if got := !strings.Contains(out.String(), `"level":2`); got != tc.wantError {
				t.Errorf("Logged as an error: %t, want %t:\n%s", got, tc.wantError, out.String())
			}
			if !strings.Contains(out.String(), `"a":"b"`) {
				t.Errorf("The values are lost:\n%s", out.String())
			}
		})
	}
}

// Every reason is explained where users look for it.
func TestEveryReasonIsDocumented(t *testing.T) {
	source, err := os.ReadFile("events.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "trainjobs.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, events, _ := strings.Cut(string(docs), "\n## Events\n")
	reasons := regexp.MustCompile(`reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) < 20 {
		t.Fatalf("Only %d reasons are found in events.go", len(reasons))
	}
	for _, reason := range reasons {
		if !strings.Contains(events, "`"+reason[1]+"`") {
			t.Errorf("docs/trainjobs.md does not explain event %s", reason[1])
		}
	}
}
