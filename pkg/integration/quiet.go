// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
)

// errStillActive keeps jobframework from releasing what belongs to pods that are left.
var errStillActive = errors.New("pods of the stopped run are still there")

// errOutdated keeps jobframework from starting or stopping a job by a view of the past.
var errOutdated = errors.New("the admission of the job is another one than the cache has heard of")

// errOldView ends a reconcile whose view of a Workload is known to be an old one.
var errOldView = errors.New("a newer version of the Workload is on its way")

// expectedRetry reports whether err only says that the world moved while we looked:
// the next try is all there is to do, and nobody has to know.
func expectedRetry(err error) bool {
	return awaitsEvent(err) || classMissing(err) || jobclient.BackoffOf(err) > 0 || apierrors.IsConflict(err) || gone(err) || terminating(err) ||
		errors.Is(err, jobframework.ErrNoMatchingWorkloads) || errors.Is(err, jobframework.ErrExtraWorkloads)
}

// gone reports whether err is of a write to a TrainJob or Workload that was deleted meanwhile. Where
// their CRD is missing, the answer names a cause.
func gone(err error) bool {
	what := notFound(err)
	return what != nil && what.Name != "" && len(what.Causes) == 0 && slices.Contains([]string{"workloads", "trainjobs"}, what.Kind)
}

// classMissing reports whether err is of a priority class that is not there: it may come yet.
func classMissing(err error) bool {
	what := notFound(err)
	return what != nil && slices.Contains([]string{"WorkloadPriorityClass", "PriorityClass"}, what.Kind)
}

// notFound returns what was not found, nil where err is another answer. Caches name the kind, the API
// server names the resource.
func notFound(err error) *metav1.StatusDetails {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return nil
	}
	return status.Status().Details
}

// terminating reports whether err is of a write into a namespace that is being deleted, and the job with it.
func terminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// awaitsEvent reports whether something has to happen before the next try is of use.
func awaitsEvent(err error) bool {
	return errors.Is(err, errStillActive) || errors.Is(err, errOutdated) || errors.Is(err, serving.ErrRollingOut) ||
		errors.Is(err, jobframework.ErrPrebuiltWorkloadNotFound) ||
		apierrors.IsAlreadyExists(err) || jobclient.TrainerLags(err)
}

const (
	// retrySoon is how long a reconcile waits that was overtaken by another writer;
	// mostly the event of that write is faster.
	retrySoon = 300 * time.Millisecond

	// retrySlowly is how long a reconcile waits for an event that has to come: of its own
	// Workload, of an admission, of the last pod. Asking more often brings nothing.
	retrySlowly = 2 * time.Second

	// retryTerminating is how long a reconcile waits for the end of a namespace.
	retryTerminating = 5 * time.Second

	// retryClass is how long a reconcile waits for a priority class that somebody may yet create.
	retryClass = 10 * time.Second
)

// retryIn returns when to try again after an expected retry.
func retryIn(err error) time.Duration {
	if terminating(err) {
		return retryTerminating
	}
	if classMissing(err) {
		return retryClass
	}
	if errors.Is(err, jobframework.ErrPrebuiltWorkloadNotFound) {
		return retryPrebuilt
	}
	if awaitsEvent(err) {
		return retrySlowly
	}
	return retrySoon
}

// quietSink makes jobframework's error lines about expected retries verbose ones.
type quietSink struct {
	logr.LogSink
}

// quiet wraps a logger. Call depths stay right because the sink adds no frame that counts.
func quiet(log logr.Logger) logr.Logger {
	return log.WithSink(quietSink{log.GetSink()})
}

// Error implements logr.LogSink.
func (s quietSink) Error(err error, msg string, keysAndValues ...any) {
	if !expectedRetry(err) {
		s.LogSink.Error(err, msg, keysAndValues...)
		return
	}
	const level = 2
	if s.Enabled(level) {
		s.LogSink.Info(level, msg, append(keysAndValues, "error", err.Error())...)
	}
}

// WithValues implements logr.LogSink.
func (s quietSink) WithValues(keysAndValues ...any) logr.LogSink {
	return quietSink{s.LogSink.WithValues(keysAndValues...)}
}

// WithName implements logr.LogSink.
func (s quietSink) WithName(name string) logr.LogSink {
	return quietSink{s.LogSink.WithName(name)}
}
