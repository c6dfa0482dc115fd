// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kueue-trainer/kueue-trainer/pkg/awaited"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// newEnvironmentOn returns the environment on a cluster with one runtime, "torch".
func newEnvironmentOn(tb testing.TB) *environment {
	tb.Helper()
	c := inttest.ByOwner(fake.NewClientBuilder().WithScheme(inttest.Scheme(tb)).
		WithObjects(inttest.Runtime(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})).Build()
	settings := kueueconfig.Fixed(kueueconfig.Settings{ManagedJobsNamespaceSelector: &metav1.LabelSelector{}})
	return &environment{
		Describer: inttest.Describer(tb, c), client: c, state: state.FromCache(c),
		inTree: inttest.InTreeOff(tb), trainer: inttest.Served(tb, trainjob.Trainer23),
		expectations: inttest.LedSince(time.Time{}), memory: &memory{waitForJobSet: awaited.JobSet}, starts: newStarts(time.Hour), backoff: jobclient.NewBackoff(clock.RealClock{}),
		kueue: settings, queues: queues.New(c, c, settings), metrics: inttest.Metrics(),
	}
}
