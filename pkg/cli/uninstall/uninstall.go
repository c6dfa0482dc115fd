// SPDX-License-Identifier: Apache-2.0

// Package uninstall is the command that makes a cluster ready to be without the manager.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/handback"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

const (
	// goneWithin is how long the manager's pods may take to end.
	goneWithin = time.Minute
	// heardWithin is how long the API server may go on asking webhooks that are deleted.
	heardWithin = 30 * time.Second
)

const uninstallLong = `Make the cluster ready to be without kueue-trainer.

It stops the manager, deletes its webhooks and policies, which nobody would answer, and leaves
no TrainJob behind that needs them:

  waiting TrainJobs   stay suspended, without the admission gate, and leave the queue
  running TrainJobs   run on and keep their quota until they are deleted
  Workloads           lose the finalizer that only the manager takes off

Where Kueue's in-tree integration is on already, Workloads are left to it, and every TrainJob
keeps its place.

Afterwards remove the rest with kubectl delete -k config/default. The chart runs this by itself
before helm uninstall. It can be run again.`

const uninstallExample = `  kubectl trainjob uninstall
  kubectl delete -k config/default`

// NewCommand gives the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	u := &uninstall{out: streams.Out}
	cmd := &cobra.Command{
		Use:     "uninstall",
		Short:   "Stop kueue-trainer and free every TrainJob and Workload of it, before its manifests are removed",
		Long:    uninstallLong,
		Example: uninstallExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if u.client, err = flags.Client(); err != nil {
				return err
			}
			return u.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&u.namespace, "manager-namespace", config.Namespace, "where the manager runs")
	return cmd
}

type uninstall struct {
	client client.Client
	out    io.Writer
	// namespace is the manager's.
	namespace string
}

func (u *uninstall) run(ctx context.Context) error {
	if err := u.stopManager(ctx); err != nil {
		return err
	}
	if err := u.deleteAdmission(ctx); err != nil {
		return err
	}
	inTree, err := u.inTreeActive(ctx)
	if err != nil {
		return err
	}
	if !inTree {
		err = u.freeWorkloads(ctx)
	}
	if err = errors.Join(err, handback.Free(ctx, u.client, u.out, corev1.NamespaceAll)); err != nil {
		return fmt.Errorf("%w; the manager is stopped: run this again, or start it with "+
			"kubectl -n %s scale deployment %s --replicas=2 and install its webhooks again", err, u.namespace, cluster.ManagerDeployment)
	}
	return nil
}

// stopManager scales the manager to nothing, since it would queue again what is freed, and
// waits until its last pod is gone.
func (u *uninstall) stopManager(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: u.namespace, Name: cluster.ManagerDeployment}
	err := u.client.Get(ctx, key, deployment)
	if apierrors.IsNotFound(err) {
		fmt.Fprintf(u.out, "deployment %s: not there\n", key)
		// Its namespace may be gone, too, and something has to be asked for in one.
		u.namespace = metav1.NamespaceDefault
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return fmt.Errorf("selector of Deployment %s: %w", key, err)
	}
	if err := u.client.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))); err != nil {
		return fmt.Errorf("stopping Deployment %s: %w", key, err)
	}
	if err := u.podsGone(ctx, selector); err != nil {
		return err
	}
	fmt.Fprintf(u.out, "deployment %s: stopped\n", key)
	return nil
}

func (u *uninstall) podsGone(ctx context.Context, selector labels.Selector) error {
	var pods corev1.PodList
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, goneWithin, true, func(ctx context.Context) (bool, error) {
		err := u.client.List(ctx, &pods, client.InNamespace(u.namespace), client.MatchingLabelsSelector{Selector: selector})
		return len(pods.Items) == 0, err
	})
	if wait.Interrupted(err) && len(pods.Items) > 0 {
		return fmt.Errorf("pod %s/%s of the manager does not end: look at it, and run this again", u.namespace, pods.Items[0].Name)
	}
	return err
}

// deleteAdmission deletes the webhooks and the policies.
func (u *uninstall) deleteAdmission(ctx context.Context) error {
	objects := []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Validating}},
	}
	for _, name := range policies.Names() {
		objects = append(objects,
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, obj := range objects {
		if err := client.IgnoreNotFound(u.client.Delete(ctx, obj)); err != nil {
			return fmt.Errorf("deleting %T %s: %w", obj, obj.GetName(), err)
		}
	}
	fmt.Fprintln(u.out, "webhooks and policies: deleted")
	return nil
}

// inTreeActive reports whether Kueue itself looks after TrainJobs: its webhook suspends the
// dry run of a queued one. Webhooks of ours that the API server still asks are waited for.
func (u *uninstall) inTreeActive(ctx context.Context) (bool, error) {
	var job *trainjob.TrainJob
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, heardWithin, true, func(ctx context.Context) (bool, error) {
		job, last = trainjob.DryRun(ctx, u.client, u.namespace)
		return last == nil || !apierrors.IsInternalError(last) && !apierrors.IsServiceUnavailable(last), nil
	})
	switch {
	case errors.Is(last, trainjob.ErrNoRuntime):
		// Nothing can be created, so nothing waits for the in-tree integration either.
		return false, nil
	case last != nil:
		return false, fmt.Errorf("asking the API server what becomes of a queued TrainJob: %w", last)
	case err != nil:
		return false, err
	}
	return job.Suspended(), nil
}
