// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const fieldOwner = client.FieldOwner(trainjob.HoldFieldOwner)

type actor struct {
	client    client.Client
	verb      verb
	namespace string
	out       io.Writer
	errOut    io.Writer
	timeout   time.Duration
}

func (a *actor) act(ctx context.Context, name string) error {
	var stopped types.UID
	if a.verb.away != nil {
		before, done, err := a.write(ctx, name, "", a.verb.away)
		if err != nil {
			return err
		}
		a.say(name, toldAway(before, done))
		stopped = before.job.UID
	}
	if a.verb.back {
		return a.back(ctx, name, stopped)
	}
	return nil
}

// staysStopped says of an error that came between the writes of a command how to go on.
func (a *actor) staysStopped(name string, err error) error {
	return fmt.Errorf("TrainJob %s stays stopped (%w): kubectl trainjob resume -n %s %s queues it", name, err, a.namespace, name)
}

// errAnother is why nothing is done about a job that was deleted meanwhile.
var errAnother = errors.New("it was deleted, and another TrainJob has its name now")

// back queues a job again, once it has given back the quota that it had: the one of the UID, if there is one.
func (a *actor) back(ctx context.Context, name string, uid types.UID) error {
	for {
		before, done, err := a.write(ctx, name, uid, (*view).resume)
		if err != nil {
			return err
		}
		uid = before.job.UID
		switch {
		case done.await:
		case before.byKueue():
			return before.errByKueue() // It has its queue back, and Kueue does not look at it.
		default:
			a.say(name, toldBack(before, done))
			return nil
		}
		if a.verb.away == nil {
			a.say(name, "still has its quota: waiting for the end of its last pod, to queue it then")
		}
		if err := a.awaitQuota(ctx, before); err != nil {
			return a.staysStopped(name, err)
		}
	}
}

func (a *actor) say(name, what string) {
	fmt.Fprintf(a.out, "trainjob.%s/%s %s\n", trainjob.GVK.Group, name, what)
}

// write does what plan says of the job as it is, again where somebody else was faster. One with a UID was stopped before.
func (a *actor) write(ctx context.Context, name string, uid types.UID, plan func(*view) (change, error)) (v *view, c change, err error) {
	stopped := uid != ""
	failed := func(err error) error {
		if stopped && exit.Code(err) == exit.Failed && !errors.Is(err, cluster.ErrNoTrainJob) {
			return a.staysStopped(name, err)
		}
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if v, err = a.look(ctx, name); err != nil {
			return failed(err)
		}
		if uid != "" && v.job.UID != uid {
			return fmt.Errorf("TrainJob %s: %w", name, errAnother)
		}
		uid = v.job.UID
		if err := v.movable(); err != nil {
			return err
		}
		if c, err = plan(v); err != nil {
			return err
		}
		return failed(a.apply(ctx, v, c))
	})
	return v, c, err
}

func (a *actor) look(ctx context.Context, name string) (*view, error) {
	job, err := cluster.TrainJob(ctx, a.client, a.namespace, name)
	if err != nil {
		return nil, err
	}
	wl, err := cluster.WorkloadOf(ctx, a.client, job)
	if wl != nil && kueuelib.IsFinished(wl) {
		wl = nil
	}
	unseen := exit.Code(err) == exit.Unseen
	if unseen {
		err = nil
	}
	return &view{job: job, workload: wl, unseen: unseen}, err
}

// apply writes the label first: a job that its user may not activate is deactivated, and not held by its user besides.
func (a *actor) apply(ctx context.Context, v *view, c change) error {
	if c.queue != "" {
		if err := a.relabel(ctx, v, c); err != nil {
			return err
		}
	}
	if c.activate {
		return a.activate(ctx, v.workload)
	}
	return nil
}

func (a *actor) relabel(ctx context.Context, v *view, c change) error {
	if err := a.unused(ctx, c.queue); err != nil {
		return err
	}
	job := v.job.DeepCopy()
	job.Labels[kueueconstants.QueueLabel] = c.queue
	if c.suspend {
		job.Spec.Suspend = ptr.To(true)
	}
	// What was decided was decided of this version.
	err := a.client.Patch(ctx, job, client.MergeFromWithOptions(v.job, client.MergeFromWithOptimisticLock{}), fieldOwner)
	if cluster.ForRights(err) {
		return exit.With(exit.Unseen, fmt.Errorf("you may not change TrainJobs in namespace %s: ask an admin for ClusterRole kueue-trainer-user there (%w)", job.Namespace, err))
	}
	return err
}

// unused makes sure that nobody admits what is to be held.
func (a *actor) unused(ctx context.Context, queue string) error {
	if _, is := trainjob.HeldFrom(queue); !is {
		return nil
	}
	err := a.client.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: queue}, &kueue.LocalQueue{})
	switch {
	case err == nil:
		return fmt.Errorf("there is a LocalQueue %s, which would admit what is to be held: delete it", queue)
	case apierrors.IsForbidden(err):
		return nil
	}
	return client.IgnoreNotFound(err)
}

func (a *actor) activate(ctx context.Context, wl *kueue.Workload) error {
	err := a.client.Patch(ctx, wl.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"active":true}}`)), fieldOwner)
	if apierrors.IsForbidden(err) {
		return exit.With(exit.Unseen, fmt.Errorf("the TrainJob was deactivated, and that stands in its Workload, which you may not change: "+
			"somebody with Kueue's role batch-admin can, by kubectl -n %s patch workload %s --type=merge -p '{\"spec\":{\"active\":true}}' (%w)", wl.Namespace, wl.Name, err))
	}
	return err
}

// settle is how long freed quota is left to those that wait. Kueue looks at them a second after it
// was given back (requeueBatchPeriod in its pkg/cache/queue); what queues before that comes first.
const settle = 2 * time.Second

// awaitQuota waits until the quota that a job had is given back, and those that wait were looked at.
func (a *actor) awaitQuota(ctx context.Context, before *view) error {
	const holds = "it still has its quota"
	why := holds
	err := wait.PollUntilContextTimeout(ctx, time.Second, a.timeout, true, func(ctx context.Context) (bool, error) {
		var wl kueue.Workload
		err := a.client.Get(ctx, client.ObjectKeyFromObject(before.workload), &wl)
		switch {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil && !follow.Passes(err):
			return false, cluster.Unread("get", "Workloads", a.namespace, err)
		case err != nil && ctx.Err() == nil:
			why = fmt.Sprintf("whether %s is not known: %s", holds, err)
		case err == nil:
			why = holds
		}
		return err == nil && (wl.UID != before.workload.UID || kueuelib.IsFinished(&wl) || !kueuelib.HasQuotaReservation(&wl)), nil
	})
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return fmt.Errorf("%s: %w", why, cause)
	case wait.Interrupted(err):
		return fmt.Errorf("%s: %w", why, err)
	case err != nil:
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settle):
		return nil
	}
}

func toldAway(v *view, c change) string {
	queue, _ := trainjob.HeldFrom(c.queue)
	switch {
	case !c.suspend && v.workload == nil:
		return "held out of queue " + queue
	case !c.suspend:
		return fmt.Sprintf("held out of queue %s; it keeps its place, of one that waits since %s", queue, v.workload.CreationTimestamp.UTC().Format(time.RFC3339))
	case v.workload == nil:
		return "stopped"
	}
	pods := int32(0)
	for _, ps := range v.workload.Spec.PodSets {
		pods += ps.Count
	}
	return fmt.Sprintf("stopped: %s end with their grace period, and their quota is free when the last one is gone", show.Count(pods, "pod"))
}

func toldBack(v *view, c change) string {
	if c.queue == "" {
		return "activated"
	}
	text := "queued again in " + c.queue
	if v.unseen {
		text += "; you may not see its Workload: while pods of it end, it may start again on the quota that it had, before those that wait"
	}
	return text
}
