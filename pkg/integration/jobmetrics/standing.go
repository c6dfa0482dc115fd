// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/matchconditions"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// Standing is what this replica goes by.
type Standing struct {
	Trainer *peers.Trainer
	InTree  *peers.InTree
	Kueue   *kueueconfig.Follower
	Scope   *matchconditions.Scope
}

// Tell tells metrics.TrainerInfo, InTree, KueueConfigurationRead, SettingDiffers and WebhooksEveryTrainJob.
func (s *Standing) Tell(tell metrics.Tell) {
	if version, err := s.Trainer.Served(); err == nil {
		tell(metrics.TrainerInfo, 1, version.String())
	}
	holds := s.InTree.State()
	for _, state := range []string{metrics.InTreeActive, metrics.InTreeOff, metrics.InTreeUnknown} {
		tell(metrics.InTree, metrics.OneIf(state == holds), state)
	}
	tell(metrics.KueueConfigurationRead, metrics.OneIf(s.Kueue.Readable()))
	for _, differs := range s.Kueue.Differ() {
		tell(metrics.SettingDiffers, 1, differs.Setting)
	}
	if all, known := s.Scope.All(); known {
		tell(metrics.WebhooksEveryTrainJob, metrics.OneIf(all))
	}
}

// Facts says for people what Tell tells, a line for each.
func (s *Standing) Facts() []string {
	trainer, asked, kueue := "unknown", "known to the leader alone", "cannot be read; what was read last holds, or Kueue's defaults"
	if version, err := s.Trainer.Served(); err == nil {
		trainer = version.String()
	}
	if all, known := s.Scope.All(); known && all {
		asked = "every TrainJob"
	} else if known {
		asked = "TrainJobs with a queue"
	}
	if s.Kueue.Readable() {
		kueue = "read, as of resourceVersion " + s.Kueue.Version()
	}
	for _, differs := range s.Kueue.Differ() {
		kueue += "; overridden: " + differs.Setting
	}
	return []string{
		"Trainer: " + trainer,
		"in-tree integration: " + s.InTree.State(),
		"Kueue's configuration: " + kueue,
		"webhooks are asked about: " + asked,
	}
}
