// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const workerFlag = "worker-context"

// Workers finds the clusters that MultiKueue runs TrainJobs in: by the contexts that the user
// gives or, without, by the context that is named like the cluster.
type Workers struct {
	flags Flags
	given []string

	known map[string]*Worker
}

// Worker is a cluster that MultiKueue runs TrainJobs in.
type Worker struct {
	// Cluster is the name of the MultiKueueCluster.
	Cluster string
	// Context of the kubeconfig that leads there.
	Context string
	Flags

	// connected is set by Enter.
	connected client.WithWatch
}

// NewWorkers makes Workers of the kubeconfig that the flags name.
func NewWorkers(flags Flags) *Workers { return &Workers{flags: flags, known: map[string]*Worker{}} }

// AddTo adds the flag to a command.
func (w *Workers) AddTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&w.given, workerFlag, nil,
		"CLUSTER=CONTEXT: the context of a worker cluster of MultiKueue; without it, the context with the cluster's name is taken")
	_ = cmd.RegisterFlagCompletionFunc(workerFlag, w.complete)
}

// complete offers contexts, behind a cluster that is named already.
func (w *Workers) complete(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	contexts, directive := w.flags.CompleteContexts(cmd, args, toComplete)
	if name, _, named := strings.Cut(toComplete, "="); named {
		for i := range contexts {
			contexts[i] = name + "=" + contexts[i]
		}
	}
	return contexts, directive
}

// Of returns the worker of a MultiKueueCluster. The error says which flag to give where no context
// is known to lead there.
func (w *Workers) Of(name string) (*Worker, error) {
	if w.known[name] != nil {
		return w.known[name], nil
	}
	config, err := w.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, err
	}
	at, err := workerContext(name, w.given, config.Contexts)
	if err != nil {
		return nil, err
	}
	w.known[name] = &Worker{Cluster: name, Context: at, Flags: w.flags.inContext(at)}
	return w.known[name], nil
}

// Enter connects to the worker of a MultiKueueCluster, once. The Worker is there as well where that fails, with no
// Context where none is known.
func (w *Workers) Enter(name string) (*Worker, client.WithWatch, error) {
	at, err := w.Of(name)
	if err != nil {
		return &Worker{Cluster: name}, nil, err
	}
	if at.connected == nil {
		if at.connected, err = at.Client(); err != nil {
			err = at.Problem(err)
		}
	}
	return at, at.connected, err
}

// workerContext picks the context of a worker: what is given, CLUSTER=CONTEXT or one word that is
// both, goes before a context with the cluster's name.
func workerContext(name string, given []string, contexts map[string]*clientcmdapi.Context) (string, error) {
	at := ""
	for _, g := range given {
		worker, its, both := strings.Cut(g, "=")
		if !both {
			its = worker
		}
		if worker == "" || its == "" {
			return "", fmt.Errorf("--%s %s: give CLUSTER=CONTEXT, or a context that is named like the cluster", workerFlag, g)
		}
		if contexts[its] == nil {
			return "", fmt.Errorf("--%s %s: the kubeconfig has no context %s: kubectl config get-contexts lists those that there are", workerFlag, g, its)
		}
		if worker == name {
			at = its
		}
	}
	switch {
	case at != "":
		return at, nil
	case contexts[name] != nil:
		return name, nil
	}
	return "", fmt.Errorf("no context of the kubeconfig is known to lead there: give --%s %s=CONTEXT", workerFlag, name)
}

// inContext are the flags of the same user, as far as flags say who that is, in another cluster:
// server and credentials that are given are those of this one.
func (f Flags) inContext(name string) Flags {
	other := genericclioptions.NewConfigFlags(true)
	other.KubeConfig, other.Context = f.KubeConfig, &name
	other.CacheDir, other.Timeout = f.CacheDir, f.Timeout
	other.Impersonate, other.ImpersonateUID, other.ImpersonateGroup = f.Impersonate, f.ImpersonateUID, f.ImpersonateGroup
	return Flags{other}
}

// Assigned is the worker that has a TrainJob of a manager cluster, by its Workload there; empty
// while none has. It stays the one that had it when the TrainJob has ended.
func Assigned(wl *kueue.Workload) string {
	if wl == nil {
		return ""
	}
	return ptr.Deref(wl.Status.ClusterName, "")
}

// WorkloadOf finds the Workload of a TrainJob, of several one that is not finished; nil while there is none.
func WorkloadOf(ctx context.Context, c client.Reader, job *trainjob.TrainJob) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace(job.Namespace)); err != nil {
		return nil, Unread("list", "Workloads", job.Namespace, err)
	}
	var found *kueue.Workload
	for i := range list.Items {
		if wl := &list.Items[i]; state.IsControlledBy(wl, job) && (found == nil || !kueuelib.IsFinished(wl)) {
			found = wl
		}
	}
	return found, nil
}

// What may be wrong with the copy of a TrainJob.
var (
	// ErrNoCopy: there is none, which may be as it should.
	ErrNoCopy = errors.New("there is no copy")
	// ErrNotTheCopy: there is another TrainJob in its place.
	ErrNotTheCopy = errors.New("not the copy")
)

// Copy reads the TrainJob that MultiKueue made of one of the manager cluster, whose Workload has
// this name. A worker that is reached by the wrong context has another one, or none.
func (w *Worker) Copy(ctx context.Context, c client.Reader, namespace, name, workload string) (*trainjob.TrainJob, error) {
	copied, err := TrainJob(ctx, c, namespace, name)
	switch {
	case errors.Is(err, ErrNoTrainJob):
		return nil, w.NoCopy(namespace, name)
	case err != nil:
		return nil, w.Problem(err)
	}
	return copied, w.Check(copied, workload)
}

// NoCopy is ErrNoCopy of a TrainJob of the manager cluster.
func (w *Worker) NoCopy(namespace, name string) error {
	return fmt.Errorf("%w of TrainJob %s in namespace %s of %s: if that context leads to another cluster, give the right one with --%s %s=CONTEXT",
		ErrNoCopy, name, namespace, w, workerFlag, w.Cluster)
}

// Check returns an error for a TrainJob that MultiKueue did not make of the one whose Workload, in
// the manager cluster, has this name: that name has a hash of the TrainJob's UID.
func (w *Worker) Check(job *trainjob.TrainJob, workload string) error {
	prebuilt := []string{job.Labels[kueueconstants.PrebuiltWorkloadLabel], job.Annotations[kueueconstants.PrebuiltWorkloadAnnotation]}
	why := ""
	switch {
	case job.Labels[kueue.MultiKueueOriginLabel] == "":
		why = fmt.Sprintf("it has no label %s", kueue.MultiKueueOriginLabel)
	case !slices.Contains(prebuilt, workload):
		why = fmt.Sprintf("it does not name Workload %s", workload)
	default:
		return nil
	}
	return fmt.Errorf("TrainJob %s in namespace %s of context %s is %w of this one (%s): the context leads to another cluster than %s, or somebody else made that TrainJob there; give the right one with --%s %s=CONTEXT",
		job.Name, job.Namespace, w.Context, ErrNotTheCopy, why, w.Cluster, workerFlag, w.Cluster)
}

// Problem says of an error that it is one of the worker.
func (w *Worker) Problem(err error) error {
	told := fmt.Errorf("%s: %w", w, Sentence(err))
	if apimeta.IsNoMatchError(err) {
		told = fmt.Errorf("%s has not the kinds of a worker, so it may lead to another cluster: %w", w, err)
	}
	if apierrors.IsForbidden(err) {
		return exit.With(exit.Unseen, told)
	}
	return told
}

func (w *Worker) String() string { return fmt.Sprintf("cluster %s (context %s)", w.Cluster, w.Context) }
