// SPDX-License-Identifier: Apache-2.0

// Package uninstall is the command that makes a cluster ready to be without the manager.
package uninstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/handback"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

const (
	// goneWithin is how long pods may take to end.
	goneWithin = 2 * time.Minute
	// heardWithin is how long the API server may go on asking webhooks that are deleted.
	heardWithin = 30 * time.Second
)

const uninstallLong = `Make the cluster ready to be without kueue-trainer.

It stops the manager, deletes its webhooks and policies, which nobody would answer, and leaves
no TrainJob behind that needs them:

  waiting TrainJobs   stay suspended, without the admission gate and the nodes of their last
                      admission, and leave the queue
  running TrainJobs   run on and keep their quota until they are deleted
  Workloads           lose the finalizer that only the manager takes off; those of TrainJobs
                      that have ended, and those that keep quota for pods which MultiKueue
                      left in a worker, are deleted

Where Kueue's in-tree integration is on already, Workloads are left to it, and every TrainJob
keeps its place.

Afterwards remove the rest with kubectl delete -k config/default. The chart runs this by itself
before helm uninstall. It can be run again.`

const uninstallExample = `  # Everything that kueue-trainer keeps, and then its manifests
  kubectl trainjob uninstall
  kubectl delete -k config/default`

// NewCommand returns the command. The manager's binary brings it as well, without kubectl's flags.
func NewCommand(connect func() (client.WithWatch, error), streams genericiooptions.IOStreams) *cobra.Command {
	u := &uninstall{out: streams.Out}
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Stop kueue-trainer and free every TrainJob and Workload of it, before its manifests are removed",
		Long: uninstallLong, Example: uninstallExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := connect()
			if err != nil {
				return err
			}
			u.impatient = c
			u.client = interceptor.NewClient(c, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					return insist(ctx, func(ctx context.Context) error { return c.Patch(ctx, obj, patch, opts...) })
				},
			})
			return u.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&u.namespace, "manager-namespace", config.Namespace, "where the manager runs")
	cmd.Flags().StringVar(&u.kueueConfig.Namespace, "kueue-namespace", kueueconfig.Default.Namespace, "where Kueue runs")
	cmd.Flags().StringVar(&u.kueueConfig.Name, "kueue-configmap", kueueconfig.Default.Name, "ConfigMap with Kueue's configuration")
	cmd.Flags().StringVar(&u.kueueConfig.Key, "kueue-configmap-key", kueueconfig.Default.Key, "key of the configuration in that")
	return cmd
}

type uninstall struct {
	// client insists on its patches, and impatient does not.
	client, impatient client.Client
	out               io.Writer
	// namespace is the manager's.
	namespace string
	// kueueConfig is where Kueue's own configuration is.
	kueueConfig kueueconfig.ConfigMap
}

// run looks at everything first and changes nothing where it would not come to an end.
func (u *uninstall) run(ctx context.Context) error {
	inTree, err := u.look(ctx)
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	if err := u.free(ctx, inTree); err != nil {
		return fmt.Errorf("%w; the manager is stopped: run this again, or install it again "+
			"(helm uninstall --no-hooks and helm install, or kubectl apply -k config/default)", err)
	}
	return nil
}

func (u *uninstall) free(ctx context.Context, inTree bool) error {
	if err := u.stopManager(ctx); err != nil {
		return err
	}
	if err := deleteAdmission(ctx, u.client); err != nil {
		return err
	}
	fmt.Fprintln(u.out, "webhooks and policies: deleted")
	// Whoever has the TrainJobs now.
	released := errors.Join(handback.ReleaseWorkloads(ctx, u.client, u.out, metav1.NamespaceAll, inTree), u.deleteRemainders(ctx))
	if _, err := installed.Generation(ctx, u.client); errors.Is(err, installed.ErrNoTrainer) {
		return errors.Join(released, u.freeWorkloads(ctx))
	}
	suspends, err := u.suspendsQueued(ctx)
	if err != nil {
		return errors.Join(released, err)
	}
	inTree = inTree || suspends
	if !inTree {
		err = u.freeWorkloads(ctx)
	}
	return errors.Join(released, err, handback.Free(ctx, u.client, u.out, !inTree))
}

// look reports whether Kueue's configuration has its in-tree integration on.
func (u *uninstall) look(ctx context.Context) (inTree bool, err error) {
	if err := u.installedHere(ctx); err != nil {
		return false, err
	}
	if err := deleteAdmission(ctx, client.NewDryRunClient(u.client)); err != nil {
		return false, err
	}
	if _, err := installed.Generation(ctx, u.client); err != nil {
		if errors.Is(err, installed.ErrNoTrainer) {
			return false, nil
		}
		return false, err
	}
	if err := u.client.List(ctx, &kueue.WorkloadList{}, client.Limit(1)); meta.IsNoMatchError(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("listing Workloads: %w", err)
	}
	if inTree, err = u.inTreeConfigured(ctx); err != nil {
		return false, err
	}
	// The manager may be down, which is no reason to keep it.
	if _, err := trainjob.DryRun(ctx, u.client, u.namespace, trainjob.ProbeQueue); err != nil && !errors.Is(err, trainjob.ErrNoRuntime) && !unanswered(err) {
		return false, fmt.Errorf("asking the API server what becomes of a queued TrainJob: %w", err)
	}
	if err := handback.Try(ctx, u.impatient, !inTree); err != nil && !unanswered(err) {
		return false, err
	}
	return inTree, nil
}

// installedHere makes sure that the manager whose webhooks there are is the one that is stopped.
func (u *uninstall) installedHere(ctx context.Context) error {
	var webhooks admissionregistrationv1.MutatingWebhookConfiguration
	err := u.client.Get(ctx, client.ObjectKey{Name: webhookconfig.Installed.Mutating}, &webhooks)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the webhooks: %w", err)
	}
	for _, webhook := range webhooks.Webhooks {
		if service := webhook.ClientConfig.Service; service != nil && service.Namespace != u.namespace {
			return fmt.Errorf("the manager is in namespace %s: say so with --manager-namespace=%s", service.Namespace, service.Namespace)
		}
	}
	err = u.client.Get(ctx, client.ObjectKey{Name: u.namespace}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		// Something has to be asked for in one.
		u.namespace = metav1.NamespaceDefault
		return nil
	}
	return err
}

// inTreeConfigured asks Kueue's configuration: a dry run tells of one namespace, and Kueue's
// webhooks may be asked about others only.
func (u *uninstall) inTreeConfigured(ctx context.Context) (bool, error) {
	var found corev1.ConfigMap
	key := client.ObjectKey{Namespace: u.kueueConfig.Namespace, Name: u.kueueConfig.Name}
	err := u.client.Get(ctx, key, &found)
	if apierrors.IsNotFound(err) {
		if there, asked := u.kueueThere(ctx); asked != nil || !there {
			return false, asked
		}
	}
	if err != nil {
		return false, fmt.Errorf("reading Kueue's configuration, ConfigMap %s: %w; name another with --kueue-namespace and --kueue-configmap", key, err)
	}
	cfg, err := kueueconfig.Decode([]byte(found.Data[u.kueueConfig.Key]), u.kueueConfig.Namespace)
	if err != nil {
		return false, fmt.Errorf("Kueue's configuration, ConfigMap %s: %w", key, err)
	}
	return slices.Contains(cfg.Integrations.Frameworks, kueueconfig.InTreeFramework), nil
}

// kueueThere reports whether the API server asks a Kueue, wherever that runs. One that was removed
// leaves its kinds behind where an object of them cannot be deleted.
func (u *uninstall) kueueThere(ctx context.Context) (bool, error) {
	var all admissionregistrationv1.MutatingWebhookConfigurationList
	if err := u.client.List(ctx, &all); err != nil {
		return false, fmt.Errorf("listing the webhooks, to see whether Kueue is there: %w", err)
	}
	return slices.ContainsFunc(all.Items, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool {
		return slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
			return installed.Asked(w.Rules, schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "clusterqueues"})
		})
	}), nil
}

// stopManager scales the manager to nothing, since it would queue again what is freed, and
// waits until its last pod is gone.
func (u *uninstall) stopManager(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: u.namespace, Name: installed.ManagerDeployment}
	err := u.client.Get(ctx, key, deployment)
	if apierrors.IsNotFound(err) {
		fmt.Fprintf(u.out, "deployment %s: not there\n", key)
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
	err = podsGone(ctx, fmt.Sprintf("Deployment %s is stopped", key), time.Now().Add(goneWithin), func(ctx context.Context) ([]corev1.Pod, error) {
		var pods corev1.PodList
		err := u.client.List(ctx, &pods, client.InNamespace(u.namespace), client.MatchingLabelsSelector{Selector: selector})
		return pods.Items, err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(u.out, "deployment %s: stopped\n", key)
	return nil
}

// podsGone waits until all pods have ended that list returns after something was stopped, at the longest until a time. It looks
// once in any case. A pod that was evicted stays for people to look at.
func podsGone(ctx context.Context, stopped string, until time.Time, list func(context.Context) ([]corev1.Pod, error)) error {
	var left []corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, time.Until(until), true, func(context.Context) (bool, error) {
		pods, err := list(ctx)
		left = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return podset.PodEnded(&pod) })
		return len(left) == 0, err
	})
	if errors.Is(err, context.DeadlineExceeded) && len(left) > 0 {
		return fmt.Errorf("%s, and its pod %s does not end: look at it, and run this again", stopped, left[0].Name)
	}
	return err
}

func deleteAdmission(ctx context.Context, c client.Client) error {
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
		if err := client.IgnoreNotFound(c.Delete(ctx, obj)); err != nil {
			return fmt.Errorf("deleting %T %s: %w", obj, obj.GetName(), err)
		}
	}
	return nil
}

// suspendsQueued reports whether the dry run of a queued TrainJob comes back suspended, which
// only Kueue's in-tree webhook does now. Webhooks of ours that the API server still asks are
// waited for.
func (u *uninstall) suspendsQueued(ctx context.Context) (bool, error) {
	var job *trainjob.TrainJob
	err := insist(ctx, func(ctx context.Context) (err error) {
		job, err = trainjob.DryRun(ctx, u.client, u.namespace, trainjob.ProbeQueue)
		return err
	})
	switch {
	case errors.Is(err, trainjob.ErrNoRuntime):
		// Nobody can ask, and Kueue's configuration has the say.
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking the API server what becomes of a queued TrainJob: %w", err)
	}
	return job.Suspended(), nil
}

// unanswered reports whether a request failed because nobody answers behind a webhook.
func unanswered(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err)
}

// insist asks again while API servers call webhooks that are deleted already: each hears of that by itself.
func insist(ctx context.Context, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, heardWithin, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return !unanswered(last), nil
	})
	return cmp.Or(last, err)
}
