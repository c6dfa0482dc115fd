// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the cluster that the tests bring up, below the
// repository's root. A cluster of `make local-up` is left alone.
const localDir = ".local-faults"

// settleTimeout ends the wait for what a healthy control plane does in a second or
// two, on a machine that builds something beside it.
const settleTimeout = 45 * time.Second

// harness is the cluster with the manager under test behind a proxy.
type harness struct {
	cluster  *world.Cluster
	api      dynamic.Interface
	progress io.Writer
	launch   world.Process
	proxy    *apiproxy.Proxy
	child    *child
	webhooks *interposer
}

// newHarness puts the manager of the cluster of KUBECONFIG behind a proxy, or that of a
// local control plane which it brings up.
func newHarness(ctx context.Context, progress io.Writer) (*harness, error) {
	cluster, err := world.Open(ctx, localDir, progress)
	if err != nil {
		return nil, err
	}
	if !cluster.Local() {
		return nil, fmt.Errorf("%s is not that of a local control plane: these tests kill processes", cluster.Kubeconfig)
	}
	h := &harness{cluster: cluster, progress: progress}
	if err := h.setUp(ctx); err != nil {
		return nil, errors.Join(err, h.close(ctx))
	}
	return h, nil
}

func (h *harness) setUp(ctx context.Context) error {
	var err error
	if h.api, err = dynamic.NewForConfig(h.cluster.Config); err != nil {
		return err
	}
	if h.launch, err = h.cluster.Process(h.cluster.Manager()); err != nil {
		return err
	}
	h.webhooks = newInterposer(h)
	if err := h.cluster.ExtendCRD(ctx, true); err != nil {
		return err
	}
	if h.proxy, err = apiproxy.New(h.cluster.Config); err != nil {
		return err
	}
	if h.child, err = newChild(h.cluster, h.launch, h.proxy, false); err != nil {
		return err
	}
	if err := h.cluster.Control(ctx, "stop", h.cluster.Manager(), h.progress); err != nil {
		return err
	}
	h.child.start()
	if err := h.child.serves(ctx); err != nil {
		return err
	}
	return h.forgetInterrupted(ctx)
}

// forgetInterrupted deletes the TrainJobs of runs that somebody interrupted: their pods
// would keep the nodes.
func (h *harness) forgetInterrupted(ctx context.Context) error {
	var namespaces corev1.NamespaceList
	if err := h.cluster.Client.List(ctx, &namespaces); err != nil {
		return err
	}
	var err error
	for _, ns := range namespaces.Items {
		if strings.HasPrefix(ns.Name, "faults-") {
			err = errors.Join(err, h.cluster.Client.DeleteAllOf(ctx, &trainer.TrainJob{}, client.InNamespace(ns.Name)),
				client.IgnoreNotFound(h.cluster.Client.Delete(ctx, &ns)))
		}
	}
	return err
}

// close starts the cluster's own manager again, or takes down what was brought up.
func (h *harness) close(ctx context.Context) error {
	if h.child != nil && h.child.kill != nil {
		h.child.kill()
	}
	if h.webhooks != nil {
		h.webhooks.server.Close()
	}
	if h.proxy != nil {
		h.proxy.Close()
	}
	err := h.cluster.ExtendCRD(ctx, false)
	if os.Getenv("KUBECONFIG") != "" {
		return errors.Join(err, h.cluster.Control(ctx, "start", h.cluster.Manager(), h.progress))
	}
	return errors.Join(err, h.cluster.Stop(ctx, h.progress))
}
