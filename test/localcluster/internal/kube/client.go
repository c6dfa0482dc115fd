// SPDX-License-Identifier: Apache-2.0

// Package kube puts objects into the cluster and waits for what becomes of them.
package kube

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"
)

// fieldOwner makes a second up change what the first one applied.
const fieldOwner = client.FieldOwner("localcluster")

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
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &Client{Client: c}, nil
}

// ApplyAll applies all objects at the same time.
func (c *Client) ApplyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, obj := range objects {
		group.Go(func() error { return c.apply(ctx, obj) })
	}
	return group.Wait()
}

func (c *Client) apply(ctx context.Context, obj *unstructured.Unstructured) error {
	configuration := client.ApplyConfigurationFromUnstructured(obj.DeepCopy())
	if err := c.Client.Apply(ctx, configuration, fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("failed to apply %s %s: %w", obj.GetKind(), client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

// Create creates all objects at the same time and leaves those alone that exist.
func Create[T client.Object](ctx context.Context, c *Client, objects []T) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, obj := range objects {
		group.Go(func() error {
			if err := c.Client.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("failed to create %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// WaitFor polls until done says so. What done returns as pending is told when it
// takes too long.
func WaitFor(ctx context.Context, limit time.Duration, what string, done func(context.Context) (pending string, err error)) error {
	var pending string
	var lastErr error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		pending, lastErr = done(ctx)
		return pending == "" && lastErr == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case lastErr != nil:
		return fmt.Errorf("waited %s for %s: %w", limit, what, lastErr)
	default:
		return fmt.Errorf("waited %s for %s: %s", limit, what, pending)
	}
}

// WaitEstablished waits until the API server serves the resources of the CRDs.
func (c *Client) WaitEstablished(ctx context.Context, names []string) error {
	return WaitFor(ctx, 2*time.Minute, "CustomResourceDefinitions", func(ctx context.Context) (string, error) {
		for _, name := range names {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
				return "", err
			}
			if !established(crd) {
				return name + " is not established", nil
			}
		}
		return "", nil
	})
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
