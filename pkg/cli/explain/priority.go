// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

var errNoClass = errors.New("its priority class does not exist")

// classMissing tells of a WorkloadPriorityClass that the job names and that is not there; nil where the
// user may not know. One that the Workload has already is not looked for again, as Kueue has it.
func (f *Facts) classMissing() *State {
	name := f.Job.Labels[kueueconstants.WorkloadPriorityClassLabel]
	charged := f.Workload != nil && kueuelib.HasWorkloadPriorityClass(f.Workload) && f.Workload.Spec.PriorityClassRef.Name == name
	if name == "" || charged || f.Classes == nil || f.class(name) != nil {
		return nil
	}
	return &State{Reason: jobevents.ReasonNoPriority, Stuck: true, Cause: name,
		Message: fmt.Sprintf("it names WorkloadPriorityClass %s, which does not exist", name),
		Remedy:  "create it, or label the job with one that exists: " + f.otherClasses()}
}

// withPriority returns what the facts would be if a job that waits had another WorkloadPriorityClass.
func (f *Facts) withPriority(ctx context.Context, name string) (*Facts, error) {
	if f.Classes == nil {
		return nil, exit.With(exit.Unseen, errors.New("you may not list WorkloadPriorityClasses: ask an admin to run this command"))
	}
	class := f.class(name)
	if class == nil {
		return nil, fmt.Errorf("there is no WorkloadPriorityClass %s: name another: %s", name, f.otherClasses())
	}
	if s := StateOf(f); s.Phase != Waiting && s.Phase != Unqueued {
		return nil, fmt.Errorf("TrainJob %s/%s does not wait for quota (%s): --priority tells when one that does would get it", f.Job.Namespace, f.Job.Name, s.Phase)
	}
	other := *f
	other.Job = f.Job.DeepCopy()
	metav1.SetMetaDataLabel(&other.Job.ObjectMeta, kueueconstants.WorkloadPriorityClassLabel, name)
	other.Supposed, other.Priority, other.Visible = name, class.Value, nil
	i := *f.Cluster.Inventory
	if f.Workload != nil {
		other.Workload = f.Workload.DeepCopy()
		other.Workload.Spec.Priority, other.Workload.Spec.PriorityClassRef = &class.Value, kueue.NewWorkloadPriorityClassRef(name)
		i.Workloads = slices.Clone(i.Workloads)
		for n := range i.Workloads {
			if i.Workloads[n].UID == other.Workload.UID {
				i.Workloads[n] = *other.Workload
			}
		}
	}
	var err error
	other.Cluster, err = NewCluster(ctx, &i)
	return &other, err
}

// above says that a higher priority would bring the job past another one; empty where it has that already, and stands behind
// for another reason.
func (f *Facts) above(other *kueue.Workload, where string) string {
	if other != nil && kueuelib.Priority(other) < kueuelib.Priority(f.workload()) {
		return ""
	}
	return ", or give the job a higher priority than the one " + where
}

// raise says that a higher priority would help; empty where it would change nothing, since the ClusterQueue stops nobody
// for it and nobody waits in front.
func (f *Facts) raise() string {
	const label = ", or raise the job's priority (label " + kueueconstants.WorkloadPriorityClassLabel + ")"
	p := ptr.Deref(f.clusterQueue().Spec.Preemption, kueue.ClusterQueuePreemption{})
	stops := !slices.Contains([]kueue.PreemptionPolicy{"", kueue.PreemptionPolicyNever}, p.WithinClusterQueue) ||
		p.ReclaimWithinCohort == kueue.PreemptionPolicyLowerPriority ||
		ptr.Deref(p.BorrowWithinCohort, kueue.BorrowWithinCohort{}).Policy == kueue.BorrowWithinCohortPolicyLowerPriority
	switch {
	case stops:
		return label
	case f.outranked():
		return label + " above that of those in front"
	}
	return ""
}

// outranked reports whether others wait in front of the job, as far as that can be seen.
func (f *Facts) outranked() bool {
	if f.Workload != nil {
		p := f.Place()
		return p != nil && p.Place > 1
	}
	return slices.ContainsFunc(f.Cluster.Pending(), func(wl *kueue.Workload) bool {
		return f.Cluster.ClusterQueueOf(wl) == f.clusterQueueName() && f.Cluster.InQueue(wl, f.Now) && kueuelib.Priority(wl) >= f.Priority
	})
}

func (f *Facts) class(name string) *kueue.WorkloadPriorityClass {
	return inventory.Find(f.Classes.Items, "", name)
}

func (f *Facts) otherClasses() string {
	return cmp.Or(strings.Join(inventory.Names(inventory.Objects(f.Classes.Items)), ", "), "there is none")
}
