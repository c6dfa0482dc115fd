// SPDX-License-Identifier: Apache-2.0

// Package integration makes TrainJobs a kind that Kueue manages: the adapter for Kueue's
// jobframework (job.go), the reconciler around it (reconciler.go, and a file for each thing that
// it ensures), what both go by (environment.go; observe.go reads it for a reconcile), what they ask the API server itself (live.go),
// and the set-up of these and of the packages below (setup.go; watches.go maps events to
// TrainJobs, enqueue.go says how soon each is looked at). docs/architecture.md says what is where.
package integration

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// environment is what adapter and reconciler go by. What works on a part of it is made from it
// where it is used: so it has the Trainer, and the view of a TrainJob, that this has.
type environment struct {
	// Describer is for the Trainer that is served; see now.
	*podsets.Describer

	client client.Client
	// live asks the API server itself.
	live client.Reader

	// waitForJobSet is how long a TrainJob waits for its JobSet, before it queues without, startTimeout how long
	// an admitted one may be without what it needs to run.
	waitForJobSet, startTimeout time.Duration

	// refusals are what other controllers say about what they could not make.
	refusals *jobevents.Refusals

	// What is remembered of TrainJobs from one reconcile to the next.
	expectations *jobclient.Expectations
	records      *records
	backoff      *jobclient.Backoff

	// Whether to act, and for which Trainer. all looks at every TrainJob when that changes.
	inTree  *serving.InTree
	trainer *serving.Trainer
	all     *serving.TrainJobs

	metrics *metrics.Recorder

	// kueue has the settings that are Kueue's, labels are those of its metrics.
	kueue  *kueueconfig.Follower
	labels *kueuelib.CustomLabels
	queues *queues.Queues

	// webhooks are the configurations of ours.
	webhooks webhookconfig.Names

	// ledger keeps account of what TrainJobs hold; nil: nobody does.
	ledger *ledger.Ledger
}

// now returns the environment of the generation of Trainer that the cluster serves now, or
// an error where that is unknown. One reconcile uses one environment, so that
// it sees the same generation from its beginning to its end.
func (e *environment) now() (*environment, error) {
	served, err := e.trainer.Served()
	if err != nil {
		return nil, err
	}
	env := *e
	env.Describer = e.Describer.For(served)
	return &env, nil
}
