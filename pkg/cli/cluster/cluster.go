// SPDX-License-Identifier: Apache-2.0

// Package cluster connects the plugin's commands to the cluster that kubectl's flags name.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
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

// Sentence says what to do in an error of a cluster that could not be reached, does not know the user or does not let
// them. What stands around it stays: it may be what was done before. Others are returned as they are.
func Sentence(err error) error {
	request := new(url.Error)
	isRequest := errors.As(err, &request)
	switch {
	case clientcmd.IsEmptyConfig(err), isRequest && server(request).Host == unconfigured:
		return errors.New("no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server")
	// It has no type of its own.
	case err != nil && strings.HasPrefix(err.Error(), "context ") && strings.HasSuffix(err.Error(), " does not exist"):
		return fmt.Errorf("%w: kubectl config get-contexts lists those that there are", err)
	case isRequest && errors.Is(request, context.Canceled):
		return &told{err, request, "interrupted"}
	case isRequest:
		at := server(request)
		return &told{err, request, fmt.Sprintf("the API server at %s://%s cannot be reached (%s): check that it runs, and that --context or --kubeconfig names the cluster that you mean",
			at.Scheme, at.Host, innermost(request))}
	case apierrors.IsUnauthorized(err):
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
			return &told{err, status, "the API server does not know you (Unauthorized): log in again, or name another user with --user or --context"}
		}
	}
	return forbidden(err)
}

// told is an error of which a part is said in other words.
type told struct {
	error
	part error
	as   string
}

func (t *told) Error() string { return strings.Replace(t.error.Error(), t.part.Error(), t.as, 1) }

func (t *told) Unwrap() error { return t.error }

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

func innermost(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// ErrNoTrainJob is why there is nothing to tell of a TrainJob.
var ErrNoTrainJob = errors.New("name another, or its namespace with -n")

// TrainJob reads one; the error is ErrNoTrainJob for one that is not there.
func TrainJob(ctx context.Context, c client.Reader, namespace, name string) (*trainjob.TrainJob, error) {
	var job trainjob.TrainJob
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &job)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no TrainJob %s in namespace %s: %w", name, namespace, ErrNoTrainJob)
	case err != nil:
		return nil, Unread("get", "TrainJobs", namespace, err)
	}
	return &job, nil
}

// TrainJobs lists those of a namespace, or of all where it is empty.
func TrainJobs(ctx context.Context, c client.Reader, namespace string, options ...client.ListOption) ([]trainjob.TrainJob, error) {
	var jobs trainjob.List
	if err := c.List(ctx, &jobs, append(options, client.InNamespace(namespace))...); err != nil {
		return nil, Unread("list", "TrainJobs", namespace, err)
	}
	return jobs.Items, nil
}

// VisibleTrainJobs returns all TrainJobs, or, to a user who may not list them, those of a namespace, as far as he may list these.
func VisibleTrainJobs(ctx context.Context, c client.Reader, namespace string) (jobs []trainjob.TrainJob, all bool, err error) {
	for _, in := range []string{"", namespace} {
		jobs, err = TrainJobs(ctx, c, in)
		if exit.Code(err) != exit.Unseen {
			return jobs, in == "", err
		}
	}
	return nil, false, nil
}

// Unread says what to do about objects of a kind that could not be read. That a user may not read
// them is an answer, with an exit code of its own.
func Unread(verb, kind, namespace string, err error) error {
	switch {
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("reading %s: %w", kind, err)
	case namespace == "":
		return exit.With(exit.Unseen, fmt.Errorf("you may not %s %s of all namespaces: name one with -n, or ask an admin for ClusterRole kueue-batch-admin-role", verb, kind))
	}
	return exit.With(exit.Unseen, fmt.Errorf("you may not %s %s in namespace %s: name another with -n, or ask an admin for ClusterRole kueue-trainer-user there", verb, kind, namespace))
}

var typed = regexp.MustCompile(`^(?i:trainjobs?(?:\.(?:v1alpha1\.)?trainer\.kubeflow\.org)?)/([^/]+)$`)

// TrainJobName reads the name of a TrainJob as kubectl does: NAME, or TYPE/NAME with any
// name of the type.
func TrainJobName(arg string) (string, error) {
	if !strings.Contains(arg, "/") {
		return arg, nil
	}
	if match := typed.FindStringSubmatch(arg); match != nil {
		return match[1], nil
	}
	return "", fmt.Errorf("%s names no TrainJob: give NAME or trainjob/NAME", arg)
}

// OneTrainJob takes the name of one TrainJob from the arguments of a command.
func OneTrainJob(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("give the name of one TrainJob")
	}
	return TrainJobName(args[0])
}

// CompleteContexts offers the contexts of the kubeconfig to the shell.
func (f Flags) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// Names lists those of a kind, sorted.
func Names(ctx context.Context, c client.Reader, list client.ObjectList, namespace string) ([]string, error) {
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var names []string
	err := meta.EachListItem(list, func(item runtime.Object) error {
		names = append(names, item.(client.Object).GetName())
		return nil
	})
	slices.Sort(names)
	return names, err
}

// Complete offers the names of the kind of a list to the shell: those of the namespace, or all.
func Complete(flags Flags, all bool, list client.ObjectList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, namespace, err := flags.ClientIn(all)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names, err := Names(cmd.Context(), c, list, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteTrainJobs offers the names of TrainJobs that are not given yet to the shell, as long as fewer than most are given.
func CompleteTrainJobs(flags Flags, most int) cobra.CompletionFunc {
	all := Complete(flags, false, &trainjob.List{})
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := all(cmd, args, toComplete)
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), directive
	}
}
