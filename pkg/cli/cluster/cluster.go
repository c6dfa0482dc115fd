// SPDX-License-Identifier: Apache-2.0

// Package cluster connects the plugin's commands to the cluster that kubectl's flags name.
package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
)

// Flags are kubectl's usual ones: --kubeconfig, --context, --namespace and their like.
type Flags struct{ *genericclioptions.ConfigFlags }

// Config is what every client of a command connects with.
func (f Flags) Config() (*rest.Config, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return installed.Hurried(config), nil
}

// Client connects to the cluster. Nothing is cached.
func (f Flags) Client() (client.WithWatch, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	return installed.Connect(config)
}

// InNamespace is the namespace that a command works in: that of --namespace or of the
// kubeconfig's context, or every one.
func (f Flags) InNamespace(all bool) (string, error) {
	if all {
		return corev1.NamespaceAll, nil
	}
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// ClientIn connects to the cluster, and names the namespace that a command works in.
func (f Flags) ClientIn(all bool) (client.WithWatch, string, error) {
	namespace, err := f.InNamespace(all)
	if err != nil {
		return nil, "", err
	}
	c, err := f.Client()
	return c, namespace, err
}

// What is known of an installation without flags.
var (
	Scheme     = installed.Scheme
	Generation = installed.Generation
)

// unconfigured is where kubectl's flags lead when nothing names a server.
const unconfigured = "localhost:8080"

// Sentence returns one sentence, with what to do, for an error of a cluster that could not be
// reached, does not know the user or does not let them. Others are returned as they are.
func Sentence(err error) error {
	request := new(url.Error)
	isRequest := errors.As(err, &request)
	switch {
	case clientcmd.IsEmptyConfig(err), isRequest && server(request).Host == unconfigured:
		return errors.New("no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server")
	// It has no type of its own.
	case err != nil && strings.HasPrefix(err.Error(), "context ") && strings.HasSuffix(err.Error(), " does not exist"):
		return fmt.Errorf("%w: kubectl config get-contexts lists those that there are", err)
	case isRequest:
		at := server(request)
		return fmt.Errorf("the API server at %s://%s cannot be reached (%w): check that it runs, and that --context or --kubeconfig names the cluster that you mean",
			at.Scheme, at.Host, innermost(request))
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not know you (Unauthorized): log in again, or name another user with --user or --context")
	}
	return forbidden(err)
}

// unauthorized is how the API server says that a user has no right to something.
var unauthorized = regexp.MustCompile(`User "[^"]*" cannot (\w+) resource "([^"]+)" in API group "([^"]*)" (?:at the cluster scope|in the namespace "([^"]+)")`)

// ForRights reports whether an error is about a right that the user lacks. What webhooks, policies and quotas refuse is
// forbidden, too, whatever rights one has.
func ForRights(err error) bool {
	return apierrors.IsForbidden(err) && unauthorized.MatchString(err.Error())
}

// forbidden returns an error about a right that the user lacks with the exit code for that, unless it has one.
func forbidden(err error) error {
	if _, coded := errors.AsType[*exit.Error](err); coded || !ForRights(err) {
		return err
	}
	match := unauthorized.FindStringSubmatch(err.Error())
	where := "in the whole cluster"
	if namespace := match[4]; namespace != "" {
		where = "in namespace " + namespace
	}
	return exit.With(exit.Unseen, fmt.Errorf("you may not %s %s %s: ask an admin for that (%w)", match[1], strings.TrimSuffix(match[2]+"."+match[3], "."), where, err))
}

func server(request *url.Error) *url.URL {
	at, err := url.Parse(request.URL)
	if err != nil {
		return &url.URL{Host: request.URL}
	}
	return at
}

// innermost is the cause, without those who tell of it.
func innermost(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}
