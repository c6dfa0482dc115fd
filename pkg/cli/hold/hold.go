// SPDX-License-Identifier: Apache-2.0

// Package hold has the commands that keep TrainJobs out of their queues and bring them back:
// hold, stop, resume and requeue.
package hold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const holdLong = `Keep TrainJobs that wait from being admitted, until they are resumed.

A held TrainJob keeps the time since which it waits: resumed, it stands where it would have
stood. Its label kueue.x-k8s.io/queue-name names the queue with ".held" behind it meanwhile.`

const holdExample = `  # Let others go first
  kubectl trainjob hold big -n team-a`

const stopLong = `Stop TrainJobs, until they are resumed.

Their pods are deleted, with their grace period: what they have not saved is lost. The quota
is free when the last pod is gone. Resumed, they queue again behind those that wait, and their
time limit (kueue.x-k8s.io/max-exec-time-seconds) and their retries count from the beginning.

Setting spec.suspend to true stops a TrainJob too, but Kueue starts it again at once.`

const stopExample = `  # Give the GPUs back
  kubectl trainjob stop llm -n team-a`

const resumeLong = `Queue TrainJobs again that were held or stopped.

That is for those of hold and stop and, for users who may change Workloads, for those that
were deactivated (spec.active: false of the Workload).

While the pods of a stopped TrainJob end, the command waits until its quota is given back, and
two seconds more, in which Kueue looks at those that wait: so it queues behind them. Interrupted before, it leaves the TrainJob stopped.`

const resumeExample = `  # After hold, and after stop
  kubectl trainjob resume llm -n team-a`

const requeueLong = `Stop TrainJobs and queue them again, behind those that wait.

Their pods are deleted, with their grace period, and the command waits until the quota is
given back. Interrupted before, it leaves the TrainJob stopped: resume queues it. Its time limit
and its retries count from the beginning, as after stop.`

const requeueExample = `  # Let those that wait go first
  kubectl trainjob requeue llm -n team-a`

type verb struct {
	use, short, long, example string
	// away keeps the job out of its queue; nil for one that is.
	away func(*view) (change, error)
	// back brings it back when its quota is free.
	back bool
}

var verbs = []verb{
	{use: "hold", short: "Keep TrainJobs that wait from being admitted", long: holdLong, example: holdExample, away: (*view).hold},
	{use: "stop", short: "Stop TrainJobs, and keep them stopped", long: stopLong, example: stopExample, away: (*view).stop},
	{use: "resume", short: "Queue TrainJobs again that were held or stopped", long: resumeLong, example: resumeExample, back: true},
	{use: "requeue", short: "Stop TrainJobs and queue them again", long: requeueLong, example: requeueExample, away: (*view).requeue, back: true},
}

// NewCommands returns the commands.
func NewCommands(flags cluster.Flags, streams genericiooptions.IOStreams) []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range verbs {
		a := &actor{verb: v, out: streams.Out, errOut: streams.ErrOut}
		cmd := &cobra.Command{
			Use: v.use + " NAME...", Short: v.short,
			Long: v.long, Example: v.example, Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				var err error
				if a.client, a.namespace, err = flags.ClientIn(false); err != nil {
					return err
				}
				if err := a.managed(cmd.Context(), args[0]); err != nil {
					return err
				}
				return a.all(cmd.Context(), args)
			},
			ValidArgsFunction: cluster.CompleteTrainJobs(flags, math.MaxInt),
		}
		if v.back {
			cmd.Flags().DurationVar(&a.timeout, "timeout", 10*time.Minute, "how long to wait for the quota to be given back")
		}
		commands = append(commands, cmd)
	}
	return commands
}

// managed returns an error where a queued TrainJob of the namespace would start at once: nobody would bring back what is
// stopped, nor stop what is held. Kueue's in-tree integration starts again what is stopped while it is admitted. It asks
// with the runtime of the job of a name, which its user need not be able to read.
func (a *actor) managed(ctx context.Context, arg string) error {
	var known []trainer.RuntimeRef
	if name, err := cluster.TrainJobName(arg); err == nil {
		if job, err := cluster.TrainJob(ctx, a.client, a.namespace, name); err == nil {
			known = []trainer.RuntimeRef{job.Spec.RuntimeRef}
		}
	}
	namespace, use := a.namespace, a.verb.use
	job, err := trainjob.DryRun(ctx, a.client, namespace, trainjob.ProbeQueue, known...)
	switch {
	case err != nil:
		fmt.Fprintf(a.errOut, "note: whether kueue-trainer looks after TrainJobs in namespace %s could not be asked: %v\n", namespace, err)
		return nil
	case !job.Suspended():
		return fmt.Errorf("nobody looks after the queues of TrainJobs in namespace %s: Kueue leaves it out (managedJobsNamespaceSelector; "+
			"an admin can label it), or kueue-trainer is not installed; outside of all quotas, spec.suspend stops and starts it: "+
			"kubectl -n %s patch trainjob NAME --type=merge -p '{\"spec\":{\"suspend\":%t}}'", namespace, namespace, use != "resume")
	case (use == "stop" || use == "requeue") && !patch.HoldsGate(&job.Spec):
		return fmt.Errorf("Kueue's in-tree integration looks after TrainJobs in namespace %s, and would start them again at once: stop one by its Workload: "+
			"kubectl -n %s patch workload NAME --type=merge -p '{\"spec\":{\"active\":false}}'", namespace, namespace)
	}
	return nil
}

// all goes on with the others where one fails.
func (a *actor) all(ctx context.Context, args []string) error {
	var errs []error
	for _, arg := range args {
		name, err := cluster.TrainJobName(arg)
		if err == nil {
			err = a.act(ctx, name)
		}
		if why := unchanged(""); errors.As(err, &why) {
			a.say(name, string(why))
			continue
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if slices.ContainsFunc(errs, func(err error) bool { return exit.Code(err) == exit.Failed }) {
		return exit.With(exit.Failed, err)
	}
	return err
}

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
