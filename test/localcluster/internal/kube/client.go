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
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
)

const (
	// parallel requests are what an API server on two cores answers without queueing.
	parallel = 16
	// pollInterval is long enough that listing hundreds of nodes is not what takes the time.
	pollInterval = 200 * time.Millisecond
)

// Client is a connection to the local cluster as its admin.
type Client struct {
	client.Client
}

// NewClient connects with the current context of a kubeconfig file.
func NewClient(kubeconfig string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1 // the API server has its own limits
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &Client{Client: c}, nil
}

// Create creates all objects at the same time and leaves those alone that exist.
func Create[T client.Object](ctx context.Context, c *Client, objects []T) error {
	return each(ctx, c, objects, "create", func(ctx context.Context, obj T) error { return client.IgnoreAlreadyExists(c.Create(ctx, obj)) })
}

func each[T client.Object](ctx context.Context, c *Client, objects []T, verb string, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, obj := range objects {
		group.Go(func() error {
			if err := do(ctx, obj); err != nil {
				gvk, _ := c.GroupVersionKindFor(obj)
				return fmt.Errorf("failed to %s %s %s: %w", verb, gvk.Kind, client.ObjectKeyFromObject(obj), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// WaitFor polls until done finds nothing that is missing. What it found last is told when it takes too long.
func WaitFor(ctx context.Context, limit time.Duration, what string, done func(context.Context) error) error {
	var missing error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		missing = done(ctx)
		return missing == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("waited %s for %s: %w", limit, what, missing)
	}
	return err
}

// Install applies objects: first what others need to exist, CustomResourceDefinitions until they are served.
func (c *Client) Install(ctx context.Context, objects []*unstructured.Unstructured) error {
	first, rest := manifests.Partition(objects, manifests.CRD, manifests.Namespace)
	if err := c.ApplyAll(ctx, first); err != nil {
		return err
	}
	if err := c.waitEstablished(ctx, manifests.NamesOf(first, manifests.CRD)); err != nil {
		return err
	}
	return c.ApplyAll(ctx, rest)
}

func (c *Client) waitEstablished(ctx context.Context, names []string) error {
	return WaitFor(ctx, 2*time.Minute, "CustomResourceDefinitions", func(ctx context.Context) error {
		for _, name := range names {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
				return err
			}
			if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
				return fmt.Errorf("%s is not established", name)
			}
		}
		return nil
	})
}

// fieldOwner makes a second up change what the first one applied.
const fieldOwner = client.FieldOwner("localcluster")

// manifestAnnotation has the hash of the manifest that an object was applied from.
const manifestAnnotation = "localcluster/manifest"

// ApplyAll applies all objects at the same time, but for those that are as applying them would
// leave them: to find that out costs the API server a tenth of applying a CRD.
func (c *Client) ApplyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	return each(ctx, c, objects, "apply", func(ctx context.Context, obj *unstructured.Unstructured) error {
		wanted, err := annotated(obj)
		if err != nil {
			return err
		}
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(wanted.GroupVersionKind())
		err = c.Get(ctx, client.ObjectKeyFromObject(wanted), live)
		if err == nil && live.GetDeletionTimestamp() == nil && has(live.Object, wanted.Object) {
			return nil
		}
		// Whatever the API server says of an object that it has not got is said by apply, too.
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldOwner, client.ForceOwnership)
	})
}

// annotated returns the object with the hash of it. A field that a former manifest had, and
// that only applying takes away, makes a difference that way.
func annotated(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	content, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, err
	}
	// Read back, so that numbers are what the API server's are.
	obj = &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(content); err != nil {
		return nil, err
	}
	hash := fmt.Sprintf("%.8x", sha256.Sum256(content))
	return obj, unstructured.SetNestedField(obj.Object, hash, "metadata", "annotations", manifestAnnotation)
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
		if !ok || len(items) != len(wanted) {
			return len(wanted) == 0 && live == nil
		}
		for i := range wanted {
			if !has(items[i], wanted[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(live, wanted)
}
