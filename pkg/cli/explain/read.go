// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// reading reads what there is of TrainJobs: those of a namespace, of all where that is empty, or the one of a name.
type reading struct {
	*Snapshot
	client          client.Client
	namespace, name string
	inventory       inventory.Inventory // what Cluster is made of
	err             error               // the first that is not about permissions. It ends the reading.
}

func newReading(c client.Client, namespace, name string) *reading {
	return &reading{Snapshot: &Snapshot{}, client: c, namespace: namespace, name: name}
}

// ReadAll reads the facts of TrainJobs of one namespace, or of all where that is empty; options pick them. What it takes
// a rendering to know is left out: owners of fields, and the PodSets of a job without a Workload.
func ReadAll(ctx context.Context, c client.Client, namespace string, options ...client.ListOption) (*Snapshot, error) {
	s, err := newReading(c, namespace, "").of(ctx, func() ([]trainjob.TrainJob, error) {
		return cluster.TrainJobs(ctx, c, namespace, options...)
	})
	if err == nil && !s.Cluster.seesLines() {
		askPlaces(ctx, c, s.Facts...)
	}
	return s, err
}

// Read reads the facts of one TrainJob but what it takes a rendering to know.
func Read(ctx context.Context, c client.Client, job *trainjob.TrainJob) (*Facts, error) {
	s, err := newReading(c, job.Namespace, job.Name).of(ctx, func() ([]trainjob.TrainJob, error) {
		var now trainjob.TrainJob
		switch err := c.Get(ctx, client.ObjectKeyFromObject(job), &now); {
		case apierrors.IsNotFound(err) || err == nil && now.UID != job.UID:
			now = *job
		case err != nil:
			return nil, fmt.Errorf("reading TrainJob %s again: %w", client.ObjectKeyFromObject(job), err)
		}
		return []trainjob.TrainJob{now}, nil
	})
	if err != nil {
		return nil, err
	}
	return s.Facts[0], nil
}

// ReadMade reads what was made of the TrainJob of a name, and all events of its namespace.
func ReadMade(ctx context.Context, c client.Client, namespace, name string) (*Snapshot, error) {
	r := newReading(c, namespace, name)
	r.Now = time.Now()
	list(ctx, r, inventory.Workloads, &r.Workloads)
	r.children(ctx)
	list(ctx, r, "events", &r.Events)
	return r.Snapshot, r.err
}

// of reads the facts of TrainJobs. What was made of jobs is read before the jobs, and Workloads after them: pods of a job
// that is suspended are left of a run before then, and not those of its start in between, and a job that was resumed has
// a Workload.
func (r *reading) of(ctx context.Context, jobs func() ([]trainjob.TrainJob, error)) (*Snapshot, error) {
	r.children(ctx)
	found, err := jobs()
	if err != nil {
		return nil, err
	}
	r.around(ctx)
	r.queues(ctx)
	r.events(ctx)
	r.namespaces(ctx)
	r.compete(ctx)
	if r.err != nil {
		return nil, r.err
	}
	r.Facts = r.OfAll(found)
	return r.Snapshot, nil
}

// denied reports whether the user may not see something. Any other error ends the reading.
func (r *reading) denied(err error) bool {
	if apierrors.IsForbidden(err) {
		return true
	}
	r.err = cmp.Or(r.err, err)
	return false
}

// around reads what all TrainJobs have around them, up to what Cluster is made of.
func (r *reading) around(ctx context.Context) {
	if r.err != nil {
		return
	}
	r.Now = time.Now()
	i, err := inventory.LoadForQuota(ctx, r.client)
	if err != nil {
		r.err = err
		return
	}
	r.inventory = *i
	if r.served, err = cluster.Generation(ctx, r.client); r.denied(err) {
		r.served = trainjob.Trainer23 // The newest is the best guess.
		r.inventory.Unseen = append(r.inventory.Unseen, "customresourcedefinitions.apiextensions.k8s.io")
	}
	r.Field = patch.Of(r.served)
	r.Manager, err = cluster.ManagerConfiguration(ctx, r.client)
	r.ManagerUnseen = r.denied(err)
	r.kueue(ctx)
	r.Classes = &kueue.WorkloadPriorityClassList{}
	if r.denied(r.client.List(ctx, r.Classes)) {
		r.Classes = nil
	}
}

// noConfiguration begins what is not known, and is no kind that the user may not list.
const noConfiguration = "the configuration of Kueue: "

func (r *reading) kueue(ctx context.Context) {
	at := cluster.WithDefaults(r.Manager).KueueConfigMap
	var err error
	r.Kueue, err = cluster.KueueConfigurationAt(ctx, r.client, at)
	denied := r.denied(err)
	if r.Kueue != nil || r.err != nil {
		return
	}
	r.KueueUnseen = fmt.Sprintf(noConfiguration+"namespace %s has no ConfigMap %s that can be read", at.Namespace, at.Name)
	if denied {
		r.KueueUnseen = "configmaps of namespace " + at.Namespace
	}
}

// list reads a kind in the namespaces of the jobs, and adds to what is known; a kind that may not be listed is noted.
func list[T any, P inventory.Object[T]](ctx context.Context, r *reading, kind string, into *[]T, options ...client.ListOption) {
	if r.err != nil || !r.Saw(kind) {
		return
	}
	found, err := inventory.List[T, P](ctx, r.client, append(options, client.InNamespace(r.namespace))...)
	switch {
	case apierrors.IsForbidden(err):
		r.Unseen = append(r.Unseen, kind)
	case err != nil:
		r.err = fmt.Errorf("listing %s: %w", kind, err)
	}
	*into = append(*into, found...)
}

// queues adds the Workloads and LocalQueues of the namespace for who may not list all; of others the Workloads stay unseen.
func (r *reading) queues(ctx context.Context) {
	r.Workloads = r.inventory.Workloads
	if !r.inventory.Saw(inventory.Workloads) {
		list(ctx, r, inventory.Workloads, &r.Workloads)
		for n := range r.Workloads {
			r.inventory.SetOverhead(r.Workloads[n].Spec.PodSets)
		}
	}
	r.localQueues(ctx)
}

func (r *reading) localQueues(ctx context.Context) {
	if r.inventory.Saw(inventory.LocalQueues) {
		return
	}
	if list(ctx, r, inventory.LocalQueues, &r.inventory.LocalQueues); r.Saw(inventory.LocalQueues) {
		r.inventory.Unseen = slices.DeleteFunc(slices.Clone(r.inventory.Unseen), func(kind string) bool { return kind == inventory.LocalQueues })
	}
}

func (r *reading) compete(ctx context.Context) {
	if r.err == nil {
		r.Cluster, r.err = NewCluster(ctx, &r.inventory)
	}
}

// children reads what Trainer and JobSet made: of one job by its label, never all pods of a cluster.
func (r *reading) children(ctx context.Context) {
	var of client.ListOption = client.HasLabels{jobsetapi.JobSetNameKey}
	var named []client.ListOption
	if r.name != "" {
		of, named = client.MatchingLabels{jobsetapi.JobSetNameKey: r.name}, []client.ListOption{client.MatchingFields{metav1.ObjectNameField: r.name}}
	}
	list(ctx, r, jobSets, &r.JobSets, named...)
	list(ctx, r, childJobs, &r.Jobs, of)
	list(ctx, r, inventory.Pods, &r.Pods, of)
	slices.SortFunc(r.Jobs, func(a, b batchv1.Job) int { return cmp.Compare(a.Name, b.Name) })
}

// events reads warnings, those about jobs alone where there are many, and, where pods are being made, what is said of pods.
func (r *reading) events(ctx context.Context) {
	const kind, of = "involvedObject.kind", "type"
	wanted := []client.MatchingFields{{of: corev1.EventTypeWarning}}
	if r.name == "" {
		wanted = []client.MatchingFields{{kind: trainjob.GVK.Kind, of: corev1.EventTypeWarning}}
	}
	if slices.ContainsFunc(r.Pods, unmadePod) {
		wanted = append(wanted, client.MatchingFields{kind: "Pod", "reason": ImagePulled})
		if r.name == "" {
			wanted = append(wanted, client.MatchingFields{kind: "Pod", of: corev1.EventTypeWarning})
		}
	}
	for _, fields := range wanted {
		list(ctx, r, "events", &r.Events, fields)
	}
}

// namespaces are read for their labels: of those that are not there, or not to be seen, nothing is said of selectors.
func (r *reading) namespaces(ctx context.Context) {
	if r.err != nil {
		return
	}
	var found corev1.NamespaceList
	var err error
	if r.namespace == "" {
		err = r.client.List(ctx, &found)
	} else {
		found.Items = make([]corev1.Namespace, 1)
		err = r.client.Get(ctx, client.ObjectKey{Name: r.namespace}, &found.Items[0])
	}
	switch {
	case err == nil:
		r.Namespaces = found.Items
	case !apierrors.IsNotFound(err):
		r.denied(err)
	}
}
