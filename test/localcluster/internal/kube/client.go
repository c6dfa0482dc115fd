// SPDX-License-Identifier: Apache-2.0

// Package kube puts objects into the cluster and waits for what becomes of them.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

// pollInterval is long enough that listing hundreds of nodes is not what takes the time.
const pollInterval = 200 * time.Millisecond

// Client is a connection to the local cluster as its admin.
type Client struct {
	client.Client
}

// NewClient connects with the current context of a kubeconfig file.
func NewClient(kubeconfig string) *Client {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	attempt.Succeed(err, "kubeconfig %s", kubeconfig)
	config.QPS = -1 // the API server has its own limits
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	attempt.Succeed(errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)))
	return &Client{attempt.Must(client.New(config, client.Options{Scheme: scheme}))}
}

// WaitFor takes steps again and again until none fails. What failed last is told when it takes too long.
func WaitFor(ctx context.Context, limit time.Duration, what string, take func(context.Context)) {
	var missing error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		missing = attempt.To(func() { take(ctx) })
		return missing == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		attempt.Fail("waited %s for %s: %w", limit, what, missing)
	}
	attempt.Succeed(err)
}

// Install applies objects: first what others need to exist, CustomResourceDefinitions until they are served.
func (c *Client) Install(ctx context.Context, objects []*unstructured.Unstructured) {
	first, rest := manifests.Partition(objects, manifests.CRD, manifests.Namespace)
	c.ApplyAll(ctx, first)
	crds, _ := manifests.Partition(first, manifests.CRD)
	WaitFor(ctx, 2*time.Minute, "CustomResourceDefinitions", func(ctx context.Context) {
		for _, obj := range crds {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			attempt.Succeed(c.Get(ctx, client.ObjectKeyFromObject(obj), crd))
			if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
				attempt.Fail("%s is not established", crd.Name)
			}
		}
	})
	c.ApplyAll(ctx, rest)
}

// fieldOwner makes a second up change what the first one applied.
const fieldOwner = client.FieldOwner("localcluster")

// manifestAnnotation has the hash of the manifest that an object was applied from.
const manifestAnnotation = "localcluster/manifest"

// ApplyAll applies all objects at the same time, but for those that are as applying them would
// leave them: to find that out costs the API server a tenth of applying a CRD.
func (c *Client) ApplyAll(ctx context.Context, objects []*unstructured.Unstructured) {
	attempt.ForEach(ctx, objects, func(ctx context.Context, obj *unstructured.Unstructured) {
		key := client.ObjectKeyFromObject(obj)
		wanted, live := annotated(obj), &unstructured.Unstructured{}
		live.SetGroupVersionKind(wanted.GroupVersionKind())
		err := c.Get(ctx, key, live)
		if err == nil && live.GetDeletionTimestamp() == nil && has(live.Object, wanted.Object) {
			return
		}
		// Whatever the API server says of an object that it has not got is said by apply, too.
		err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldOwner, client.ForceOwnership)
		attempt.Succeed(err, "failed to apply %s %s", obj.GetKind(), key)
	})
}

// annotated returns the object with its hash: a field that a former manifest had, which only applying takes away, differs so.
func annotated(obj *unstructured.Unstructured) *unstructured.Unstructured {
	content := attempt.Must(json.Marshal(obj.Object))
	// Read back, so that numbers are what the API server's are.
	obj = &unstructured.Unstructured{}
	attempt.Succeed(obj.UnmarshalJSON(content))
	hash := fmt.Sprintf("%.8x", sha256.Sum256(content))
	attempt.Succeed(unstructured.SetNestedField(obj.Object, hash, "metadata", "annotations", manifestAnnotation))
	return obj
}

// has reports whether live has every field of wanted, and lists of the same length.
func has(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		fields, ok := live.(map[string]any)
		if !ok {
			return len(wanted) == 0 && live == nil
		}
		for name, value := range wanted {
			if !has(fields[name], value) {
				return false
			}
		}
		return true
	case []any:
		items, ok := live.([]any)
		return (ok || live == nil) && slices.EqualFunc(items, wanted, has)
	}
	return reflect.DeepEqual(live, wanted)
}
