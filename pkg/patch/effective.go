// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"maps"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// effective returns what Trainer 2.1 makes something of: overrides for some job, and of
// their metadata labels and annotations. Its CRD and its webhook take the rest as well, so
// a TrainJob that has it is there and has to be described; conversion, whose users can
// fix what they convert, refuses it.
func effective(overrides []trainjob.PodTemplateOverride) ([]trainjob.PodTemplateOverride, error) {
	out := make([]trainjob.PodTemplateOverride, 0, len(overrides))
	for _, o := range overrides {
		var fields map[string]json.RawMessage
		if err := o.Decode(&fields); err != nil {
			return nil, err
		}
		var metadata map[string]json.RawMessage
		if json.Unmarshal(fields["metadata"], &metadata) == nil {
			maps.DeleteFunc(metadata, func(key string, _ json.RawMessage) bool { return key != "labels" && key != "annotations" })
			fields["metadata"], _ = json.Marshal(metadata) // It was decoded just now.
		}
		if len(o.TargetJobs) == 0 {
			continue
		}
		kept, err := trainjob.NewPodTemplateOverride(fields)
		if err != nil {
			return nil, err
		}
		out = append(out, kept)
	}
	return out, nil
}
