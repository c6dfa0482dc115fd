// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// foresee says when the TrainJob starts, where that is asked for. The TrainJob is there already: what
// stands against a forecast is no error.
func (c *command) foresee(ctx context.Context, api client.Client, u *unstructured.Unstructured) {
	if !c.forecast {
		return
	}
	switch start, err := c.start(ctx, api, u); {
	case err != nil:
		fmt.Fprintln(c.streams.ErrOut, "note: there is no forecast:", err)
	case start != nil:
		fmt.Fprintln(c.streams.ErrOut, "forecast:", start)
	}
}

func (c *command) start(ctx context.Context, api client.Client, u *unstructured.Unstructured) (*outlook.Start, error) {
	data, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var job trainjob.TrainJob
	if err := json.Unmarshal(data, &job); err != nil {
		return nil, err
	}
	return explain.StartOf(ctx, api, &job, c.running.Told)
}
