// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

type view struct {
	job *trainjob.TrainJob
	// workload is nil without one, and where the user may not see it: unseen.
	workload *kueue.Workload
	unseen   bool
}

// change is what is written; the zero value is for nothing.
type change struct {
	// queue is the new value of the job's label.
	queue string
	// suspend stops the job in the same request: a running job changes its queue no other way.
	suspend bool
	// activate sets spec.active of the Workload.
	activate bool
	// await is for a job that has to give back its quota before anything is written.
	await bool
}

// unchanged is why there is nothing to do; it is no failure.
type unchanged string

func (u unchanged) Error() string { return string(u) }

func (v *view) key() string { return v.job.Namespace + " " + v.job.Name }

func (v *view) queue() string { return v.job.Labels[kueueconstants.QueueLabel] }

// started reports whether the job has quota: what it gives up is given back.
func (v *view) started() bool { return !v.job.Suspended() || v.hasQuota() }

func (v *view) hasQuota() bool {
	return v.workload != nil && kueuelib.HasQuotaReservation(v.workload)
}

// inactive reports whether somebody, or Kueue, took the job out of its queue by its Workload.
func (v *view) inactive() bool { return v.workload != nil && !kueuelib.IsActive(v.workload) }

// byKueue reports whether it is Kueue that took the job out of its queue, or is about to.
func (v *view) byKueue() bool {
	return v.workload != nil && (kueuelib.IsDeactivatedByKueue(v.workload) || deactivation.ByKueue(v.workload) || kueuelib.IsLeftBehind(v.workload))
}

// deactivated reports whether somebody, or Kueue, took the job out of its queue, or is about to.
func (v *view) deactivated() bool {
	return v.inactive() || v.workload != nil && deactivation.Pending(v.workload)
}

func (v *view) errByKueue() error {
	return fmt.Errorf("Kueue itself deactivated TrainJob %s, and does not queue its Workload again (kubectl trainjob explain -n %s tells why): "+
		"put that right and create the job again, or have somebody with Kueue's role batch-admin delete the Workload, and it queues with another: kubectl -n %s delete workload %s",
		v.job.Name, v.key(), v.workload.Namespace, v.workload.Name)
}

// held reports whether the job is kept out of its queue, or about to be.
func (v *view) held() bool {
	_, is := trainjob.HeldFrom(v.queue())
	return is
}

// movable returns an error for jobs whose queue does not decide about them.
func (v *view) movable() error {
	switch {
	case !v.job.DeletionTimestamp.IsZero():
		return fmt.Errorf("TrainJob %s is being deleted", v.job.Name)
	case v.job.Finished():
		return fmt.Errorf("TrainJob %s has ended: to run it again, delete it and create it again", v.job.Name)
	case v.queue() == "":
		return fmt.Errorf("TrainJob %s names no queue (label %s), so Kueue does not run it: set spec.suspend yourself", v.job.Name, kueueconstants.QueueLabel)
	// Anybody may label a TrainJob, and nobody a Workload.
	case v.job.Labels[kueue.MultiKueueOriginLabel] != "" && (v.workload == nil || placeholder.IsCopy(v.workload)):
		return fmt.Errorf("TrainJob %s was sent here by MultiKueue: go to the cluster that it was made in", v.job.Name)
	case jobframework.PrebuiltWorkloadNameFor(v.job) != "":
		return fmt.Errorf("TrainJob %s has the prebuilt Workload %s, which alone decides: set spec.active of that", v.job.Name, jobframework.PrebuiltWorkloadNameFor(v.job))
	case v.job.ManagedExternally():
		return fmt.Errorf("TrainJob %s runs on another cluster (spec.managedBy): set spec.active of its Workload", v.job.Name)
	}
	return nil
}

// away is the change that keeps the job out of its queue.
func (v *view) away() (change, error) {
	name := v.queue()
	if !v.held() {
		name = trainjob.HeldQueue(name)
	}
	if errs := validation.IsValidLabelValue(name); len(errs) > 0 {
		return change{}, fmt.Errorf("the name of queue %s is too long to be held out of: %s", v.queue(), errs[0])
	}
	return change{queue: name, suspend: v.started()}, nil
}

func (v *view) hold() (change, error) {
	switch {
	case v.held() && !v.started():
		return change{}, unchanged("is held already")
	case v.held() && v.job.Suspended():
		return change{}, unchanged("is being stopped, and held then")
	case v.started():
		return change{}, fmt.Errorf("TrainJob %s does not wait, it has its quota: kubectl trainjob stop -n %s takes it from it, and stops its pods", v.job.Name, v.key())
	}
	return v.away()
}

func (v *view) stop() (change, error) {
	if v.held() && v.job.Suspended() {
		return change{}, unchanged("is stopped already")
	}
	return v.away()
}

func (v *view) resume() (change, error) {
	queue, is := trainjob.HeldFrom(v.queue())
	switch {
	case v.byKueue() && !is:
		return change{}, v.errByKueue()
	case is && !v.job.Suspended():
		return change{}, fmt.Errorf("TrainJob %s is held and runs all the same, and one that runs changes no queue: kubectl trainjob stop -n %s stops it, then resume it", v.job.Name, v.key())
	case v.hasQuota() && (is || v.deactivated()):
		// Its label back while its pods end, it would start again on this quota, before
		// those that wait.
		return change{await: true}, nil
	case is:
		return change{queue: queue, activate: v.inactive() && !v.byKueue()}, nil
	case v.inactive():
		return change{activate: true}, nil
	case v.started():
		return change{}, unchanged("is not held, it has its quota")
	}
	return change{}, unchanged("is not held, it waits in its queue")
}

func (v *view) requeue() (change, error) {
	switch {
	case v.held() && v.job.Suspended():
		return change{}, fmt.Errorf("TrainJob %s is held: kubectl trainjob resume -n %s queues it", v.job.Name, v.key())
	case v.byKueue():
		return change{}, v.errByKueue()
	case v.deactivated():
		// Its label alone would not bring it back.
		return change{}, fmt.Errorf("TrainJob %s is deactivated, or about to be: kubectl trainjob resume -n %s queues it, for users who may change Workloads", v.job.Name, v.key())
	case !v.started():
		return change{}, fmt.Errorf("TrainJob %s waits in its queue already: kubectl trainjob explain -n %s tells for what", v.job.Name, v.key())
	case v.workload == nil:
		return change{}, fmt.Errorf("the Workload of TrainJob %s cannot be seen, so nobody could tell when it has given its quota back: "+
			"ask an admin for the permission to list Workloads, or use stop and later resume", v.job.Name)
	}
	return v.away()
}
