// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// noClass is the reason of a job whose priority class is not there, as of kueue-trainer's event.
const noClass = "PriorityClassMissing"

var errNoClass = errors.New("its priority class does not exist")

// readClasses lists the WorkloadPriorityClasses; nil where the user may not.
func readClasses(ctx context.Context, c client.Client) (*kueue.WorkloadPriorityClassList, error) {
	var list kueue.WorkloadPriorityClassList
	err := c.List(ctx, &list)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing WorkloadPriorityClasses: %w", err)
	}
	return &list, nil
}

// classMissing tells of a WorkloadPriorityClass that the job names and that is not there; nil where the
// user may not know. One that the Workload has already is not looked for again, as Kueue has it.
func (f *Facts) classMissing() *State {
	name := f.Job.Labels[kueueconstants.WorkloadPriorityClassLabel]
	charged := f.Workload != nil && kueuelib.HasWorkloadPriorityClass(f.Workload) && f.Workload.Spec.PriorityClassRef.Name == name
	if name == "" || charged || f.Classes == nil || f.class(name) != nil {
		return nil
	}
	return &State{Reason: noClass, Stuck: true, Cause: name,
		Message: fmt.Sprintf("names WorkloadPriorityClass %s, which does not exist", name),
		Remedy:  "create it, or label the job with one that exists: " + f.otherClasses()}
}

func (f *Facts) class(name string) *kueue.WorkloadPriorityClass {
	return find(f.Classes.Items, func(c *kueue.WorkloadPriorityClass) bool { return c.Name == name })
}

func (f *Facts) otherClasses() string {
	var names []string
	for i := range f.Classes.Items {
		names = append(names, f.Classes.Items[i].Name)
	}
	if len(names) == 0 {
		return "there is none"
	}
	return strings.Join(names, ", ")
}
