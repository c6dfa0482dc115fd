// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

// unconfigured is where kubectl's flags lead when nothing names a server.
const unconfigured = "localhost:8080"

// Sentence returns one sentence, with what to do, for an error of a cluster that could not be
// reached or does not know the user. Others are returned as they are.
func Sentence(err error) error {
	request := new(url.Error)
	isRequest := errors.As(err, &request)
	switch {
	case clientcmd.IsEmptyConfig(err), isRequest && server(request).Host == unconfigured:
		return errors.New("no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server")
	case noSuchContext(err):
		return fmt.Errorf("%w: kubectl config get-contexts lists those that there are", err)
	case isRequest:
		at := server(request)
		return fmt.Errorf("the API server at %s://%s cannot be reached (%w): check that it runs, and that --context or --kubeconfig names the cluster that you mean",
			at.Scheme, at.Host, innermost(request))
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not know you (Unauthorized): log in again, or name another user with --user or --context")
	}
	return err
}

// noSuchContext is about an error that has no type of its own.
func noSuchContext(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "context ") && strings.HasSuffix(err.Error(), " does not exist")
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
