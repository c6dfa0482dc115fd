// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// errNoOtherCluster is of a TrainJob that only MultiKueue may run, in a queue without it.
var errNoOtherCluster = errors.New("nothing runs the TrainJob")

var managedByPath = field.NewPath("spec", "managedBy")

// route is where a LocalQueue leads.
type route struct {
	clusterQueue kueue.ClusterQueueReference
	// multiKueue: an admission check takes the jobs to other clusters.
	multiKueue bool
	// known: the LocalQueue, its ClusterQueue and the checks of that are all there.
	known bool
}

// route follows a LocalQueue to the admission checks of its ClusterQueue.
func (e *environment) route(ctx context.Context, namespace, queue string) (route, error) {
	var lq kueue.LocalQueue
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: queue}, &lq); err != nil {
		return route{}, client.IgnoreNotFound(err)
	}
	r := route{clusterQueue: lq.Spec.ClusterQueue, known: true}
	var cq kueue.ClusterQueue
	if err := e.client.Get(ctx, client.ObjectKey{Name: string(r.clusterQueue)}, &cq); err != nil {
		return route{}, client.IgnoreNotFound(err)
	}
	if cq.Spec.AdmissionChecksStrategy == nil {
		return r, nil
	}
	for _, rule := range cq.Spec.AdmissionChecksStrategy.AdmissionChecks {
		var check kueue.AdmissionCheck
		err := e.client.Get(ctx, client.ObjectKey{Name: string(rule.Name)}, &check)
		if client.IgnoreNotFound(err) != nil {
			return route{}, err
		}
		r.known = r.known && !apierrors.IsNotFound(err)
		r.multiKueue = r.multiKueue || check.Spec.ControllerName == kueue.MultiKueueControllerName
	}
	return r, nil
}

func (e *environment) queueIsMultiKueue(ctx context.Context, namespace, queue string) (bool, error) {
	r, err := e.route(ctx, namespace, queue)
	return r.multiKueue, err
}

// reachable returns errNoOtherCluster for a TrainJob that waits for MultiKueue in a queue
// that surely leads to no other cluster: quota there would be for nothing.
func (e *environment) reachable(ctx context.Context, t *trainjob.TrainJob) error {
	if ptr.Deref(t.Spec.ManagedBy, "") != kueue.MultiKueueControllerName {
		return nil
	}
	queue := string(jobframework.QueueNameForObject(t))
	r, err := e.route(ctx, t.Namespace, queue)
	if err != nil {
		return fmt.Errorf("reading where LocalQueue %s leads: %w", queue, err)
	}
	if !r.known || r.multiKueue {
		return nil
	}
	return fmt.Errorf("%w: spec.managedBy is %s, and LocalQueue %s leads to ClusterQueue %s, which has no MultiKueue admission check; create the TrainJob without spec.managedBy, or name a queue that has one",
		errNoOtherCluster, kueue.MultiKueueControllerName, queue, r.clusterQueue)
}

// validateManagedBy refuses a TrainJob that comes to a queue where nothing would run it.
func (v *validator) validateManagedBy(ctx context.Context, t, old *trainjob.TrainJob) (field.ErrorList, error) {
	if old != nil && jobframework.QueueNameForObject(t) == jobframework.QueueNameForObject(old) {
		return nil, nil
	}
	err := v.env.reachable(ctx, t)
	if errors.Is(err, errNoOtherCluster) {
		return field.ErrorList{field.Invalid(managedByPath, *t.Spec.ManagedBy, err.Error())}, nil
	}
	return nil, err
}
