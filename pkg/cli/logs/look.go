// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// place is a cluster that pods are read in.
type place struct {
	client client.WithWatch
	open   opener
	// worker is nil for the cluster that the user named.
	worker *cluster.Worker
}

func newPlace(flags cluster.Flags) (*place, error) {
	c, err := flags.Client()
	if err != nil {
		return nil, err
	}
	logs, err := clientset(flags)
	if err != nil {
		return nil, err
	}
	return &place{client: c, open: openerOf(logs)}, nil
}

// clientset is what logs are read with, which are a subresource of their own kind.
func clientset(flags cluster.Flags) (*kubernetes.Clientset, error) {
	config, err := flags.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

type looker struct {
	here      *place
	workers   *cluster.Workers
	key       client.ObjectKey
	selection selection
	// there is the worker that has the job; nil for a job of this cluster, and while none has it.
	there *place
	// uid is that of the job which was there first.
	uid string
	// watching is nil unless the logs are followed.
	watching *follow.Watching
}

func (l *looker) look(ctx context.Context) (sight, error) {
	job, err := cluster.TrainJob(ctx, l.here.client, l.key.Namespace, l.key.Name)
	if l.uid != "" && (errors.Is(err, cluster.ErrNoTrainJob) || err == nil && string(job.UID) != l.uid) {
		return sight{over: true}, nil
	}
	if err != nil {
		return sight{}, err
	}
	l.uid = string(job.UID)
	at, made, now := l.here, job, sight{over: job.Finished()}
	if job.ForMultiKueue() {
		if made, now.nothing, err = l.copyOf(ctx, job); made == nil || err != nil {
			return now, err
		}
		at = l.there
	}
	pods, err := l.podsOf(ctx, at, made)
	if err != nil {
		return now, err
	}
	now.targets = l.selection.targets(pods, at.open)
	switch {
	case len(now.targets) > 0:
	case len(pods) > 0:
		now.nothing = fmt.Errorf("TrainJob %s has pods, but none of those that --job, --index and --container name", job.Name)
	default:
		now.nothing = fmt.Errorf("TrainJob %s has no pods: kubectl trainjob explain -n %s %s tells why, and --follow waits for them", job.Name, job.Namespace, job.Name)
	}
	return now, nil
}

// copyOf finds the copy of a job that MultiKueue runs in another cluster, or says why there is none.
func (l *looker) copyOf(ctx context.Context, job *trainjob.TrainJob) (made *trainjob.TrainJob, none, err error) {
	wl, err := cluster.WorkloadOf(ctx, l.here.client, job)
	name := cluster.Assigned(wl)
	if err != nil || name == "" {
		return nil, fmt.Errorf("TrainJob %s is in no worker cluster: kubectl trainjob explain -n %s %s tells why, and --follow waits for one", job.Name, job.Namespace, job.Name), err
	}
	gone := fmt.Errorf("TrainJob %s is over, and its pods are gone: MultiKueue deletes its copy in worker cluster %s when it has ended", job.Name, name)
	if err := l.enter(name); err != nil {
		if job.Finished() {
			err = gone
		}
		return nil, nil, follow.Lasting(fmt.Errorf("the pods of TrainJob %s are in worker cluster %s: %w", job.Name, name, err))
	}
	made, err = l.there.worker.Copy(ctx, l.there.client, job.Namespace, job.Name, wl.Name)
	switch {
	case errors.Is(err, cluster.ErrNoCopy) && job.Finished():
		return nil, gone, nil
	case errors.Is(err, cluster.ErrNoCopy):
		return nil, err, nil
	case errors.Is(err, cluster.ErrNotTheCopy):
		err = follow.Lasting(err)
	}
	return made, nil, err
}

// enter connects to a worker, and has its pods watched.
func (l *looker) enter(name string) error {
	if l.there != nil && l.there.worker.Cluster == name {
		return nil
	}
	worker, err := l.workers.Of(name)
	if err != nil {
		return err
	}
	at, err := newPlace(worker.Flags)
	if err != nil {
		return worker.Problem(err)
	}
	at.worker = worker
	l.there = at
	if l.watching != nil {
		l.watching.Add(at.client, follow.Job(l.key)...)
	}
	return nil
}

func (l *looker) podsOf(ctx context.Context, at *place, job *trainjob.TrainJob) ([]corev1.Pod, error) {
	var js jobsetapi.JobSet
	of := client.MatchingLabels{jobsetapi.JobSetNameKey: l.key.Name}
	err := at.client.Get(ctx, l.key, &js)
	switch owner := metav1.GetControllerOf(&js); {
	case apierrors.IsNotFound(err):
		// Pods that are there yet are left of a former one.
		return nil, nil
	case err != nil:
	case state.IsControlledBy(&js, job):
		of[jobsetapi.JobSetUIDKey] = string(js.UID)
	case owner != nil && owner.Kind == trainjob.GVK.Kind && owner.Name == job.Name:
		// It is left of a former TrainJob of this name.
		return nil, nil
	default:
		return nil, fmt.Errorf("JobSet %s is not of TrainJob %s: delete one of them", js.Name, job.Name)
	}
	var pods corev1.PodList
	err = at.client.List(ctx, &pods, client.InNamespace(l.key.Namespace), of)
	if apierrors.IsForbidden(err) {
		where := "in namespace " + l.key.Namespace
		if at.worker != nil {
			where += fmt.Sprintf(" of %s", at.worker)
		}
		return nil, exit.With(exit.Unseen, fmt.Errorf("you may not list pods %s: ask an admin for the permission to list pods and to get pods/log", where))
	}
	return pods.Items, err
}

// watch tells of changes of the job and its pods, wherever they are.
func (l *looker) watch(ctx context.Context) *follow.Watching {
	l.watching = follow.Watch(ctx, calm).Add(l.here.client, follow.Job(l.key)...)
	if l.there != nil {
		l.watching.Add(l.there.client, follow.Job(l.key)...)
	}
	return l.watching
}

type selection struct {
	// job is a replicated job; empty for all.
	job string
	// index is that of a pod in its Job; negative for all.
	index int
	// container is empty for all but init containers.
	container string
}

type target struct {
	pod *corev1.Pod
	// open opens logs of the pod's cluster.
	open      opener
	container string
	// prefix names replicated job, replica and index: node-0-1; and the container where the
	// pod has several that are wanted.
	prefix string
	// started is set where there is a log.
	started bool
	// ended is set where nothing will be written any more.
	ended bool
	// waits is why there is none yet.
	waits string
	// restarts counts the runs before.
	restarts int32
}

// log tells containers apart, whichever run of theirs.
func (t *target) log() string { return fmt.Sprintf("%s/%s", t.pod.UID, t.container) }

// targets returns the containers of pods of one cluster, in order of replicated job, replica and
// index.
func (s selection) targets(pods []corev1.Pod, open opener) []target {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(a.Labels[jobsetapi.ReplicatedJobNameKey], b.Labels[jobsetapi.ReplicatedJobNameKey]),
			cmp.Compare(number(a.Labels[jobsetapi.JobIndexKey]), number(b.Labels[jobsetapi.JobIndexKey])),
			cmp.Compare(number(a.Labels[batchv1.JobCompletionIndexAnnotation]), number(b.Labels[batchv1.JobCompletionIndexAnnotation])),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	var out []target
	for i := range pods {
		ofJob := s.job == "" || pods[i].Labels[jobsetapi.ReplicatedJobNameKey] == s.job
		if ofJob && (s.index < 0 || number(pods[i].Labels[batchv1.JobCompletionIndexAnnotation]) == s.index) {
			out = append(out, s.containersOf(&pods[i], open)...)
		}
	}
	return out
}

// number is that of an index; pods without one, of Jobs that are not indexed, have 0.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func (s selection) containersOf(pod *corev1.Pod, open opener) []target {
	wanted := pod.Spec.Containers
	if s.container != "" {
		wanted = slices.DeleteFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool { return c.Name != s.container })
	}
	name := fmt.Sprintf("%s-%d-%d", cmp.Or(pod.Labels[jobsetapi.ReplicatedJobNameKey], pod.Name),
		number(pod.Labels[jobsetapi.JobIndexKey]), number(pod.Labels[batchv1.JobCompletionIndexAnnotation]))
	var out []target
	for i := range wanted {
		t := target{pod: pod, open: open, container: wanted[i].Name, prefix: name}
		if len(wanted) > 1 {
			t.prefix += " " + t.container
		}
		t.state()
		out = append(out, t)
	}
	return out
}

// state tells whether the container has begun, and what it waits for.
func (t *target) state() {
	t.waits = string(t.pod.Status.Phase)
	t.ended = podset.PodEnded(t.pod)
	for _, status := range slices.Concat(t.pod.Status.InitContainerStatuses, t.pod.Status.ContainerStatuses) {
		if status.Name != t.container {
			continue
		}
		t.restarts = status.RestartCount
		t.started = status.State.Running != nil || status.State.Terminated != nil
		t.ended = t.ended || status.State.Terminated != nil && t.pod.Spec.RestartPolicy == corev1.RestartPolicyNever
		if w := status.State.Waiting; w != nil {
			t.waits = w.Reason
			// What it ran before is there, such as that of one in CrashLoopBackOff.
			t.started = status.LastTerminationState.Terminated != nil
		}
	}
	for _, c := range t.pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			t.waits = c.Reason
		}
	}
}
