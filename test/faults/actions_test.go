// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
)

const (
	// holdFor is how long watches and webhooks stay disturbed: some times what the scenario's steps take.
	holdFor = 3 * time.Second
	// managerDelay is how late the writes of a slow manager arrive.
	managerDelay = 200 * time.Millisecond
	// actionTimeout ends what an action does in the background.
	actionTimeout = 60 * time.Second
)

// harnessFault is what a plan could not do; the run says nothing then.
const harnessFault history.Invariant = "harness"

// action is what is done to a write, and how the exchange ends.
type action struct {
	do  func(context.Context, *run, *apiproxy.Exchange) error
	end func(*apiproxy.Exchange)
}

var (
	pass, lose = (*apiproxy.Exchange).Pass, (*apiproxy.Exchange).Lose

	crashBeforeSend = action{do: crash, end: lose}
	loseResponse    = action{do: forward, end: lose}

	crashAfterCommit = action{end: lose, do: func(_ context.Context, r *run, e *apiproxy.Exchange) error {
		defer r.child.crash()
		return e.Forward()
	}}
)

func crash(_ context.Context, r *run, _ *apiproxy.Exchange) error {
	r.child.crash()
	return nil
}

func forward(_ context.Context, _ *run, e *apiproxy.Exchange) error { return e.Forward() }

// arriveLate lets the manager die with the write under way, and the write arrive when
// the next process has written something, or has had nothing to write.
func arriveLate(_ context.Context, r *run, e *apiproxy.Exchange) error {
	before := len(r.writes())
	r.child.crash()
	r.inBackground(func() error {
		_ = wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, holdFor, true, func(context.Context) (bool, error) {
			return len(r.writes()) > before, nil
		})
		return e.Forward()
	})
	return nil
}

// inBackground does something beside the run, which does not end before.
func (r *run) inBackground(do func() error) {
	r.background.Go(func() {
		if err := do(); err != nil {
			r.fail(harnessFault, "%v", err)
		}
	})
}

func (r *run) later(do func() error) {
	r.inBackground(func() error {
		// The delay is the fault.
		time.Sleep(holdFor)
		return do()
	})
}

var (
	something      schema.GroupResource
	notNow         = &metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "not now"}
	errTerminating = errors.New("unable to create new content because the namespace is being terminated")
)

// apiAnswers are errors in the place of an answer.
var apiAnswers = []plan{
	{name: "409", action: reply(apierrors.NewConflict(something, "", errors.New("the object has been modified")))},
	{name: "429", action: reply(apierrors.NewTooManyRequests("too many requests", 1))},
	{name: "500", action: reply(apierrors.NewInternalError(errors.New("etcdserver: request timed out")))},
	{name: "403", action: reply(apierrors.NewForbidden(something, "", errors.New("not allowed")))},
	{name: "webhook refusal", action: reply(webhookerrors.ToStatusErr("policy.example.com", notNow))},
	{name: "namespace terminating", action: reply(because(corev1.NamespaceTerminatingCause, apierrors.NewForbidden(something, "", errTerminating)))},
	{name: "time-out after commit", action: action{
		do:  forward,
		end: reply(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)).end,
	}},
}

func because(cause metav1.CauseType, err *apierrors.StatusError) *apierrors.StatusError {
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause, Message: "the namespace is being terminated"}}
	return err
}

func reply(status *apierrors.StatusError) action {
	return action{do: func(context.Context, *run, *apiproxy.Exchange) error { return nil }, end: func(e *apiproxy.Exchange) { e.Reply(status) }}
}

// editFirst lets a user change the TrainJob while our write is on its way.
func editFirst(edit hook) action {
	return action{end: pass, do: func(ctx context.Context, r *run, _ *apiproxy.Exchange) error { return edit(ctx, r) }}
}

// disturbWebhooks makes webhooks down or slow from just before the write on.
func disturbWebhooks(owner webhookOwner, fault webhookFault) action {
	return action{end: pass, do: func(ctx context.Context, r *run, _ *apiproxy.Exchange) error {
		restore, err := r.webhooks.disturb(ctx, owner, fault)
		if err != nil {
			return err
		}
		defer r.later(restore)
		return r.probe(ctx, owner)
	}}
}

// probe waits until a request of the kind that the webhooks are about reaches them.
func (r *run) probe(ctx context.Context, owner webhookOwner) error {
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		var obj client.Object = r.Job(low).Obj()
		if owner == jobSetsWebhooks {
			obj = r.jobSet()
		}
		// What comes of it does not matter.
		_ = r.merge(ctx, obj, `{"metadata":{"annotations":{"example.com/probe":"yes"}}}`, client.DryRunAll)
		return r.webhooks.calls.Load() > 0, nil
	})
}

func hold(view string) hook {
	return func(_ context.Context, r *run) error {
		r.proxy.Hold(view)
		return nil
	}
}

func releaseLater(view string) hook {
	return func(_ context.Context, r *run) error {
		r.later(func() error {
			r.proxy.Release(view)
			return nil
		})
		return nil
	}
}

func both(first, second hook) hook {
	return func(ctx context.Context, r *run) error {
		if err := first(ctx, r); err != nil {
			return err
		}
		return second(ctx, r)
	}
}

// restartWithOldList starts the manager again after a step, and tells it of one resource what was so before.
func restartWithOldList(view string) hooks {
	var list []byte
	return hooks{
		before: func(ctx context.Context, r *run) (err error) {
			list, err = r.proxy.List(ctx, view)
			return err
		},
		after: func(ctx context.Context, r *run) error {
			r.proxy.ServeOld(view, list)
			r.child.crash()
			defer r.background.Wait()
			return errors.Join(r.child.serves(ctx), releaseLater(view)(ctx, r))
		},
	}
}

// unobserved cuts the watch of a view while something changes and changes back.
func unobserved(view string, there, back hook) hooks {
	return hooks{after: func(ctx context.Context, r *run) error {
		r.proxy.Cut(view)
		defer r.proxy.Release(view)
		return both(there, back)(ctx, r)
	}}
}

func secondManager(firstDelay, secondDelay time.Duration) hook {
	return func(ctx context.Context, r *run) error {
		proxy, err := apiproxy.New(r.cluster.Config)
		if err != nil {
			return err
		}
		second, err := newChild(r.cluster, r.launch, proxy, true)
		if err != nil {
			return err
		}
		second.start()
		r.t.Cleanup(func() {
			second.kill()
			proxy.Close()
		})
		r.second = proxy
		proxy.Intercept(r.Namespace, delayed(secondDelay))
		r.proxy.Intercept(r.Namespace, delayed(firstDelay))
		return second.serves(ctx)
	}
}

func delayed(by time.Duration) apiproxy.Interceptor {
	return func(e *apiproxy.Exchange) {
		time.Sleep(by)
		e.Pass()
	}
}

func (r *run) jobSet() *jobsetapi.JobSet {
	return &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: low}}
}
