// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var errOffline = errors.New("rendering must not use the API server")

// offlineClient is what Trainer's library gets to render with: an API server that
// holds nothing and takes nothing. The JobSet builder asks for the existing JobSet
// to decide whether to write; for us there is none.
type offlineClient struct {
	client.Client
	scheme *runtime.Scheme
	mapper meta.RESTMapper
}

func newOfflineClient(scheme *runtime.Scheme) *offlineClient {
	return &offlineClient{scheme: scheme, mapper: meta.NewDefaultRESTMapper(nil)}
}

func (c *offlineClient) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.String())
}

func (c *offlineClient) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errOffline
}

func (c *offlineClient) Scheme() *runtime.Scheme {
	return c.scheme
}

func (c *offlineClient) RESTMapper() meta.RESTMapper {
	return c.mapper
}

// noIndex takes the field indexes that Trainer's library wants and that rendering never uses.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
