// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// readCluster reads the cluster as it is. What Kueue's configuration says is left at its defaults where the user
// may not read it, which a warning says.
func readCluster(ctx context.Context, c client.Client, namespace string, warn func(string, ...any)) (*outlook.Outlook, error) {
	o := &outlook.Outlook{}
	var err error
	if o.Inventory, err = inventory.LoadForQuota(ctx, c); err != nil {
		return nil, err
	}
	if unseen := o.Unseen(); len(unseen) > 0 {
		return nil, exit.With(exit.Unseen, fmt.Errorf("you may not list %s: ask an admin for ClusterRole kueue-trainer-queues-viewer, or simulate what files say with -f", strings.Join(unseen, ", ")))
	}
	var all bool
	if o.TrainJobs, all, err = cluster.VisibleTrainJobs(ctx, c, namespace); err != nil {
		return nil, err
	}
	if !all {
		warn("what TrainJobs of other namespaces tell of their running times is not seen")
	}
	// Without it, jobs are not told apart by their users, and Kueue is where its manifests install it.
	o.Manager, _ = cluster.ManagerConfiguration(ctx, c)
	at := cluster.KueuePlace(o.Manager)
	if o.Kueue, err = cluster.KueueConfigurationAt(ctx, c, at); err != nil {
		warn("Kueue's configuration is not seen, its defaults are taken: %v", err)
	} else if o.Kueue == nil {
		warn("Kueue's configuration, ConfigMap %s in namespace %s, is not there or not read, its defaults are taken", at.Name, at.Namespace)
	}
	var deployment appsv1.Deployment
	if c.Get(ctx, client.ObjectKey{Namespace: at.Namespace, Name: cluster.Kueue.Deployment}, &deployment) == nil {
		release := cluster.Release(&deployment, nil)
		if release != "" && !strings.HasPrefix(strings.TrimPrefix(release, "v"), cluster.KueueMinor+".") {
			warn("the cluster has Kueue %s, and what is played is by the code of %s", release, cluster.KueueMinor)
		}
	}
	return o, nil
}

// readFiles reads what files have of a cluster: Kueue's objects and TrainJobs, in a namespace where they name none, and nodes.
func readFiles(files []manifest.File, namespace string) (*outlook.Outlook, error) {
	group := kueue.SchemeGroupVersion.Group
	i := &inventory.Inventory{}
	o := &outlook.Outlook{Inventory: i}
	var all error
	for _, file := range files {
		all = errors.Join(all, file.Err())
		for n := range file.Documents {
			doc := &file.Documents[n]
			if doc.Err != nil {
				continue // Its file says it.
			}
			all = errors.Join(all,
				add(doc, corev1.GroupName, "Node", &i.Nodes, ""), add(doc, group, "ResourceFlavor", &i.Flavors, ""), add(doc, group, "Topology", &i.Topologies, ""),
				add(doc, group, "ClusterQueue", &i.ClusterQueues, ""), add(doc, group, "Cohort", &i.Cohorts, ""), add(doc, group, "LocalQueue", &i.LocalQueues, namespace),
				add(doc, group, "AdmissionCheck", &i.AdmissionChecks, ""), add(doc, group, "Workload", &i.Workloads, namespace),
				add(doc, trainjob.GVK.Group, trainjob.GVK.Kind, &o.TrainJobs, namespace))
		}
	}
	return o, all
}

// add takes the objects of a kind out of a document. Those that name no namespace are in the one given.
func add[T any, P interface {
	*T
	client.Object
}](doc *manifest.Document, group, kind string, to *[]T, namespace string) error {
	objects, err := doc.Objects(group, kind)
	if err != nil {
		return err
	}
	for n := range objects {
		var object T
		if err := objects[n].Into(P(&object), namespace); err != nil {
			return err
		}
		*to = append(*to, object)
	}
	return nil
}
