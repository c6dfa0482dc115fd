// SPDX-License-Identifier: Apache-2.0

// Package handback is the command that hands waiting TrainJobs to Kueue's in-tree
// integration.
package handback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const handBackLong = `Take the admission gate of kueue-trainer off TrainJobs that wait in a queue.

Kueue's in-tree integration frees no pod of that gate: a TrainJob that waited under
kueue-trainer would be admitted by it and never get a running pod. Run this when the
in-tree integration is switched on and before kueue-trainer is uninstalled; meanwhile
kueue-trainer stands aside and still frees pods that were faster.
In a manager cluster of MultiKueue, TrainJobs that wait for another cluster get the empty
patch entry that the in-tree integration starts none without. In a worker cluster, Workloads
lose the finalizer that only kueue-trainer takes off. Those that somebody deactivated while
their pods run on are deactivated now.
With --dry-run it changes nothing, and works while kueue-trainer is active: it fails where the
in-tree integration could not start or stop a TrainJob.
Running TrainJobs are left alone, and running it again changes nothing. It fails where the
in-tree integration could not stop one, or would keep the quota of one that it stops, or was
faster and started one with the gate in its Jobs.`

const handBackExample = `  # Before the switch: whom could the in-tree integration neither start nor stop?
  kubectl trainjob hand-back --all-namespaces --dry-run

  # Every namespace
  kubectl trainjob hand-back --all-namespaces

  # One team
  kubectl trainjob hand-back -n team-a`

// NewCommand returns the command. What connects it is that of kubectl's flags, which uninstall does without: it takes
// this package, too.
func NewCommand(clientIn func(allNamespaces bool) (client.WithWatch, string, error), streams genericiooptions.IOStreams) *cobra.Command {
	allNamespaces, dryRun := false, false
	cmd := &cobra.Command{
		Use: "hand-back", Short: "Take kueue-trainer's gate off waiting TrainJobs, before Kueue's in-tree integration takes over",
		Long: handBackLong, Example: handBackExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, namespace, err := clientIn(allNamespaces)
			if err != nil {
				return err
			}
			if dryRun {
				return foretell(cmd.Context(), c, streams.Out, namespace)
			}
			return run(cmd.Context(), c, streams.Out, namespace)
		},
	}
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "the TrainJobs of every namespace")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say which TrainJobs the in-tree integration could neither start nor stop")
	return cmd
}

// run frees what it can, unless the manager is active.
func run(ctx context.Context, c client.Client, out io.Writer, namespace string) error {
	h, err := load(ctx, c, namespace, false)
	if err != nil {
		return err
	}
	if err := h.managerIdle(ctx); err != nil {
		return err
	}
	return errors.Join(h.freeAll(ctx, out), h.entryless(out), h.gatedRuns(ctx, namespace), ReleaseWorkloads(ctx, c, out, namespace, true))
}

// foretell reports what the in-tree integration could neither start nor stop, and writes nothing.
func foretell(ctx context.Context, c client.Client, out io.Writer, namespace string) error {
	h, err := load(ctx, c, namespace, false)
	if err != nil {
		return err
	}
	if h.served < trainjob.Trainer22 {
		return errors.New("the in-tree integration does not serve Trainer 2.1")
	}
	var failures error
	for _, job := range h.jobs {
		err := h.unwritable(job, false)
		if err != nil && job.Suspended() {
			// Created again now, it would keep its spelling; the in-tree integration's webhook changes that.
			err = fmt.Errorf("TrainJob %s/%s waits, and would never start: hand-back says after the switch how to create it again: %s", job.Namespace, job.Name, h.respelt[job.UID])
		}
		failures = errors.Join(failures, err)
	}
	failures = errors.Join(failures, h.entryless(out))
	if failures == nil {
		fmt.Fprintf(out, "nothing stands in the way of %d TrainJobs that are not over\n", len(h.jobs))
	}
	return failures
}

// Free takes the gate off all waiting TrainJobs, and tells out which these are. It reports
// everything that it could not free. A manager that is active would put the gate back. With placed, those are freed as well
// that wait with the placement of their last admission, where nobody will write another one.
func Free(ctx context.Context, c client.Client, out io.Writer, placed bool) error {
	h, err := load(ctx, c, metav1.NamespaceAll, placed)
	if err != nil {
		return err
	}
	return errors.Join(h.freeAll(ctx, out), h.gatedRuns(ctx, metav1.NamespaceAll))
}

// Try asks the API server whether it takes a change of the TrainJobs that Free would write, and writes nothing. It
// reports the first that it does not take, and those whose pods nobody would free.
func Try(ctx context.Context, c client.Client, placed bool) error {
	h, err := load(ctx, client.NewDryRunClient(c), metav1.NamespaceAll, placed)
	if err != nil {
		return err
	}
	for _, job := range h.jobs {
		if !job.Suspended() || !h.frees(job) {
			continue
		}
		err := h.dropEntry(ctx, job)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("TrainJob %s/%s cannot be changed: %w; fix that, or delete the TrainJob", job.Namespace, job.Name, err)
		}
	}
	return h.gatedRuns(ctx, metav1.NamespaceAll)
}

type handBack struct {
	client client.Client
	// jobs are the TrainJobs that are not over.
	jobs []*trainjob.TrainJob
	// served is the generation of Trainer that the cluster serves, field is its field.
	served trainjob.TrainerVersion
	field  patch.Field
	// placed has those freed that have a placement, see Free.
	placed bool
	// respelt are the TrainJobs that have to be created again, with the field why. They lose their entry, or the in-tree
	// integration adds another to their manifest, and the API server refuses that.
	respelt map[types.UID]string
	// late has a JobSet wait for Trainer no longer than a second.
	late bool
}

func load(ctx context.Context, c client.Client, namespace string, placed bool) (*handBack, error) {
	served, err := installed.Generation(ctx, c)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(trainjob.GVK)
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing TrainJobs: %w", err)
	}
	h := &handBack{client: c, served: served, field: patch.Of(served), placed: placed, respelt: map[types.UID]string{}}
	for i := range list.Items {
		job := &trainjob.TrainJob{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, job); err != nil {
			return nil, fmt.Errorf("TrainJob %s: %w", client.ObjectKeyFromObject(&list.Items[i]), err)
		}
		if !job.DeletionTimestamp.IsZero() || job.Finished() {
			continue
		}
		h.jobs = append(h.jobs, job)
		if !placed && served >= trainjob.Trainer22 {
			h.respelt[job.UID] = respeltField(list.Items[i].Object)
		}
	}
	return h, nil
}

// managerIdle refuses to work against a manager that would put the gate back: it must be
// uninstalled, or stand aside for the in-tree integration. It may act in some namespaces only, so those are asked about, too,
// where TrainJobs have the gate.
func (h *handBack) managerIdle(ctx context.Context) error {
	namespaces := []string{metav1.NamespaceDefault}
	for _, job := range h.jobs {
		if h.field.HoldsGate(&job.Spec) && !slices.Contains(namespaces, job.Namespace) {
			namespaces = append(namespaces, job.Namespace)
		}
	}
	answered := false
	for n := 0; n < len(namespaces); n++ {
		namespace := namespaces[n]
		job, err := trainjob.DryRun(ctx, h.client, namespace, trainjob.ProbeQueue)
		switch isDefault := namespace == metav1.NamespaceDefault; {
		case isDefault && errors.Is(err, trainjob.ErrNoRuntime):
			// Other namespaces may have runtimes of their own.
			for _, job := range h.jobs {
				if !slices.Contains(namespaces, job.Namespace) {
					namespaces = append(namespaces, job.Namespace)
				}
			}
			continue
		case !isDefault && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)):
			// A ResourceQuota that is used up, or a namespace that is being deleted.
			continue
		case err != nil:
			return fmt.Errorf("asking the API server what becomes of a queued TrainJob in namespace %s: %w", namespace, err)
		}
		answered = true
		if h.field.HoldsGate(&job.Spec) {
			return errors.New("kueue-trainer is active and would put the gate back: switch Kueue's in-tree integration on first, " +
				"see docs/in-tree.md, or uninstall kueue-trainer; --dry-run only says what to do before")
		}
	}
	if !answered {
		return errors.New("nothing tells whether kueue-trainer still has TrainJobs in its care: create a ClusterTrainingRuntime, and run this again")
	}
	return nil
}

// freeAll goes on with the others where one cannot be freed.
func (h *handBack) freeAll(ctx context.Context, out io.Writer) error {
	var failures error
	changed := 0
	for _, job := range h.jobs {
		what, err := h.handBack(ctx, job)
		if err == nil {
			err = h.unwritable(job, what != "")
		}
		failures = errors.Join(failures, err)
		if what != "" && err == nil {
			fmt.Fprintf(out, "trainjob %s/%s: %s\n", job.Namespace, job.Name, what)
			changed++
		}
	}
	fmt.Fprintf(out, "%d of %d TrainJobs that are not over changed\n", changed, len(h.jobs))
	return failures
}

// handBack makes of one TrainJob what others can start, and returns what it did: it takes the gate off its entry first,
// then off its JobSet, then off the child Jobs, which JobSet never takes anything from.
func (h *handBack) handBack(ctx context.Context, job *trainjob.TrainJob) (string, error) {
	freed, err := h.freeEntry(ctx, job)
	if err != nil {
		return "", err
	}
	if job.Suspended() {
		children, err := h.freeChildJobs(ctx, job)
		if err != nil {
			return "", err
		}
		freed = freed || children
	}
	// Also one that lost its entry to a run that was stopped, whose Jobs have had the gate until now.
	made, err := h.makeEntry(ctx, job, freed)
	switch {
	case err != nil:
		return "", err
	case freed:
		return "gate removed", nil
	case made:
		return "entry made", nil
	}
	return "", nil
}
