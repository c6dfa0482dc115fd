// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

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
