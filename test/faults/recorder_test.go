// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kueue-trainer/kueue-trainer/test/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// recorder watches the objects of one run as an outsider: past the proxy.
type recorder struct {
	*record.Recorder

	mu       sync.Mutex
	versions []record.Version
}

// startRecording watches the objects of a namespace, and those of the cluster whose name
// ends in suffix; the watches end with ctx.
func startRecording(ctx context.Context, api dynamic.Interface, namespace, suffix string) (*recorder, error) {
	r := &recorder{}
	kinds := ledger.Kinds(namespace)
	for i := range kinds {
		if kinds[i].Namespace == "" && kinds[i].Resource != "nodes" {
			kinds[i].Ours = func(obj *unstructured.Unstructured) bool { return strings.HasSuffix(obj.GetName(), suffix) }
		}
	}
	var err error
	r.Recorder, err = record.Start(ctx, api, kinds, r.take)
	return r, err
}

func (r *recorder) take(v record.Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions = append(r.versions, v)
}

// all returns what was recorded so far, in the order of the resource versions.
func (r *recorder) all() []record.Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return record.InOrder(slices.Clone(r.versions))
}
