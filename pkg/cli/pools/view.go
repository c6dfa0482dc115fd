// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// View is what the command shows, and its form in JSON and YAML. Amounts are Kubernetes
// quantities; one that is not there could not be seen.
type View struct {
	// Pools, one per ResourceFlavor and resource, sorted; the nodes of no flavor come last.
	Pools []Pool `json:"pools"`
	// Unseen are the kinds that the user may not list.
	Unseen []string `json:"unseen,omitempty"`
}

// Pool is one resource on the nodes of one ResourceFlavor.
type Pool struct {
	// Flavor is empty for nodes in no flavor.
	Flavor   string `json:"flavor,omitempty"`
	Resource string `json:"resource"`
	// Product and Memory of a GPU, as the nodes' labels have them; empty where they differ.
	Product string `json:"product,omitempty"`
	Memory  string `json:"memory,omitempty"`

	Nodes *Nodes `json:"nodes,omitempty"`
	// Allocatable is what ready nodes have.
	Allocatable *resource.Quantity `json:"allocatable,omitempty"`
	// Quota is the sum of all ClusterQueues' and Cohorts' nominal quotas, Reserved what
	// Workloads hold of it, Borrowed the part of Reserved above nominal quotas.
	Quota    *resource.Quantity `json:"quota,omitempty"`
	Reserved *resource.Quantity `json:"reserved,omitempty"`
	Borrowed *resource.Quantity `json:"borrowed,omitempty"`
	// Running is what pods hold on the nodes, whoever they belong to.
	Running *resource.Quantity `json:"running,omitempty"`
	// Pending is what Workloads wait for that could get it here; one that could go to
	// several pools counts in each.
	Pending *resource.Quantity `json:"pending,omitempty"`
	// Free could still be given out: quota that nobody reserved, as far as ready nodes have
	// the resource.
	Free *resource.Quantity `json:"free,omitempty"`

	ClusterQueues []ClusterQueue `json:"clusterQueues,omitempty"`
}

// Nodes counts nodes.
type Nodes struct {
	Ready int      `json:"ready"`
	Total int      `json:"total"`
	Names []string `json:"names"`
}

// ClusterQueue is what one ClusterQueue has of a pool.
type ClusterQueue struct {
	inventory.Quota
	// Stopped is why it admits nothing, empty when it does.
	Stopped string `json:"stopped,omitempty"`
	// Users hold what is reserved, the largest first; nothing where Workloads could not be seen.
	Users []User `json:"users,omitempty"`
}

// newView makes the view of an inventory. users are those of TrainJobs by their UIDs, counts is of Kueue's configuration, or nil.
func newView(ctx context.Context, i *inventory.Inventory, users map[types.UID]string, counts *configapi.Resources) (*View, error) {
	quotas, err := i.Quotas(ctx)
	if err != nil {
		return nil, err
	}
	v := &viewer{Inventory: i, quotas: quotas, users: users, counts: counts}
	view := &View{Pools: []Pool{}, Unseen: i.Unseen}
	for n := range i.Flavors {
		flavor := &i.Flavors[n]
		nodes := i.NodesOf(flavor)
		for _, name := range v.resources(flavor, nodes) {
			view.Pools = append(view.Pools, v.pool(flavor, nodes, name))
		}
	}
	if i.Saw(inventory.Flavors) {
		view.Pools = append(view.Pools, v.unflavored()...)
	}
	return view, nil
}

type viewer struct {
	*inventory.Inventory
	quotas []inventory.Quota
	users  map[types.UID]string
	counts *configapi.Resources
}

// resources returns what a flavor is about: GPUs; where these are none or have no quota, other
// devices that have one, as Kueue may count GPUs; where there are none either, CPUs.
func (v *viewer) resources(flavor *kueue.ResourceFlavor, nodes []*corev1.Node) []corev1.ResourceName {
	counted, gpus, devices := false, sets.New(gpu.Allocatable(nodes...)...), sets.New[corev1.ResourceName]()
	for _, quota := range v.quotas {
		if string(quota.Flavor) != flavor.Name || quota.Nominal.IsZero() && quota.Reserved.IsZero() {
			continue
		}
		if gpu.IsResource(quota.Resource) {
			counted = true
			gpus.Insert(quota.Resource)
		} else if metrics.IsDevice(string(quota.Resource)) {
			devices.Insert(quota.Resource)
		}
	}
	if !counted {
		gpus = gpus.Union(devices)
	}
	if len(gpus) == 0 {
		return []corev1.ResourceName{corev1.ResourceCPU}
	}
	return sets.List(gpus)
}

func (v *viewer) pool(flavor *kueue.ResourceFlavor, nodes []*corev1.Node, name corev1.ResourceName) Pool {
	pool := v.onNodes(nodes, name)
	pool.Flavor = flavor.Name
	if v.Saw(inventory.ClusterQueues) {
		v.addQuota(&pool)
	}
	if v.Saw(inventory.Workloads) && v.Saw(inventory.ClusterQueues) {
		pool.Pending = new(v.Demand(flavor, name, v.counts))
	}
	pool.Free = free(&pool, v.UsedOn(ready(nodes), name, anyPod), v.UsedOn(nodes, name, podOfJob))
	return pool
}

func (v *viewer) onNodes(nodes []*corev1.Node, name corev1.ResourceName) Pool {
	pool := Pool{Resource: string(name)}
	if !v.Saw(inventory.Nodes) {
		return pool
	}
	usable := ready(nodes)
	pool.Nodes = &Nodes{Ready: len(usable), Total: len(nodes), Names: inventory.Names(nodes)}
	pool.Allocatable = new(inventory.Allocatable(usable, name))
	if v.Saw(inventory.Pods) {
		pool.Running = new(v.UsedOn(nodes, name, anyPod))
	}
	if gpu.IsResource(name) {
		pool.Product = gpu.Common(nodes, gpu.Product)
		mib := gpu.Common(nodes, gpu.Label(gpu.MemoryLabel))
		if memory, err := resource.ParseQuantity(mib + "Mi"); err == nil && mib != "" {
			pool.Memory = memory.String()
		}
	}
	return pool
}

func ready(nodes []*corev1.Node) []*corev1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { return !inventory.Ready(node) })
}

func anyPod(*corev1.Pod) bool { return true }

// podOfJob reports whether a pod may have a reservation: it has Kueue's label of a started job, or is of a JobSet.
func podOfJob(pod *corev1.Pod) bool {
	return pod.Labels[kueueconstants.PodSetLabel] != "" || pod.Labels[jobsetapi.JobSetNameKey] != ""
}

func (v *viewer) addQuota(pool *Pool) {
	flavor, name := kueue.ResourceFlavorReference(pool.Flavor), corev1.ResourceName(pool.Resource)
	pool.Quota, pool.Reserved, pool.Borrowed = &resource.Quantity{}, &resource.Quantity{}, &resource.Quantity{}
	// Cohorts have some beside their ClusterQueues.
	for n := range v.Cohorts {
		if quota := inventory.QuotaOf(v.Cohorts[n].Spec.ResourceGroups, flavor, name); quota != nil {
			pool.Quota.Add(quota.NominalQuota)
		}
	}
	for _, quota := range v.quotas {
		if quota.Flavor != flavor || quota.Resource != name {
			continue
		}
		pool.Quota.Add(quota.Nominal)
		pool.Reserved.Add(quota.Reserved)
		pool.Borrowed.Add(quota.Borrowed)
		pool.ClusterQueues = append(pool.ClusterQueues, ClusterQueue{Quota: quota, Stopped: v.stopped(quota), Users: usersOf(v.Inventory, quota, v.users)})
	}
}

// stopped tells why the ClusterQueue of a quota admits nothing, in Kueue's own words where it has any; empty: it does.
func (v *viewer) stopped(quota inventory.Quota) string {
	if quota.Active {
		return ""
	}
	cq := v.ClusterQueue(quota.ClusterQueue)
	if policy := ptr.Deref(cq.Spec.StopPolicy, kueue.None); policy != kueue.None {
		return fmt.Sprintf("stopPolicy is %s", policy)
	}
	if condition := inventory.Inactive(cq); condition != nil {
		return condition.Message
	}
	return "it refers to something that does not exist"
}

// free is the lesser of what quota and what ready nodes, on which pods hold some, have
// left; a reservation beyond what pods of jobs hold, whose pods do not run yet, takes from both.
func free(pool *Pool, held, byJobs resource.Quantity) *resource.Quantity {
	if pool.Quota == nil || pool.Allocatable == nil || pool.Running == nil {
		return nil
	}
	quota := pool.Quota.DeepCopy()
	quota.Sub(*pool.Reserved)
	there := pool.Allocatable.DeepCopy()
	there.Sub(held)
	if pool.Reserved.Cmp(byJobs) > 0 {
		there.Sub(*pool.Reserved)
		there.Add(byJobs)
	}
	if there.Cmp(quota) < 0 {
		quota = there
	}
	if quota.Sign() < 0 {
		quota = resource.Quantity{}
	}
	return &quota
}

// unflavored returns the nodes that no flavor picks, those with GPUs by resource.
func (v *viewer) unflavored() []Pool {
	var pools []Pool
	nodes := v.NodesOfNoFlavor()
	for _, name := range gpu.Allocatable(nodes...) {
		pools = append(pools, v.onNodes(slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool {
			return !slices.Contains(gpu.Allocatable(node), name)
		}), name))
	}
	nodes = slices.DeleteFunc(nodes, func(node *corev1.Node) bool { return len(gpu.Allocatable(node)) > 0 })
	if len(nodes) > 0 {
		pools = append(pools, v.onNodes(nodes, corev1.ResourceCPU))
	}
	return pools
}

// User is who holds some of a pool.
type User struct {
	Namespace string `json:"namespace"`
	// Name is of the label that the manager's configuration names; empty where none tells.
	Name     string            `json:"name,omitempty"`
	Reserved resource.Quantity `json:"reserved"`
}

func (u User) String() string {
	return strings.TrimSuffix(u.Namespace+"/"+u.Name, "/") + " " + u.Reserved.String()
}

// readUsers returns whose each TrainJob is, by its UID; nothing where no label tells, and where the
// user may not read them.
func readUsers(ctx context.Context, c client.Client) (map[types.UID]string, error) {
	cfg, err := cluster.ManagerConfiguration(ctx, c)
	if apierrors.IsForbidden(err) || err == nil && (cfg == nil || cfg.Metrics.UserLabel == "") {
		return map[types.UID]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	jobs, err := cluster.TrainJobs(ctx, c, metav1.NamespaceAll)
	if err != nil && exit.Code(err) != exit.Unseen {
		return nil, err
	}
	users := map[types.UID]string{}
	for i := range jobs {
		users[jobs[i].UID] = jobs[i].Labels[cfg.Metrics.UserLabel]
	}
	return users, nil
}

// usersOf sums what is reserved of a quota by its holders, the largest first; without users nobody asks for that.
func usersOf(i *inventory.Inventory, quota inventory.Quota, users map[types.UID]string) []User {
	if users == nil {
		return nil
	}
	type holder struct{ namespace, name string }
	sums, of := map[holder]int64{}, kueuelib.FlavorResource{Flavor: quota.Flavor, Resource: quota.Resource}
	for n := range i.Workloads {
		wl := &i.Workloads[n]
		if wl.Status.Admission == nil || wl.Status.Admission.ClusterQueue != quota.ClusterQueue || !kueuelib.HasQuotaReservation(wl) || kueuelib.IsFinished(wl) {
			continue
		}
		if amount := kueuelib.Holds(wl)[of].Int64(); amount > 0 {
			h := holder{namespace: wl.Namespace}
			if owner := metav1.GetControllerOfNoCopy(wl); owner != nil {
				h.name = users[owner.UID]
			}
			sums[h] += amount
		}
	}
	var all []User
	format := kueuelib.NewResourceFormatter()
	for h, sum := range sums {
		all = append(all, User{Namespace: h.namespace, Name: h.name, Reserved: format.ResourceQuantity(quota.Resource, sum)})
	}
	slices.SortFunc(all, func(a, b User) int {
		return cmp.Or(b.Reserved.Cmp(a.Reserved), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func usersText(users []User) string {
	return cmp.Or(strings.Join(kueuelib.Map(users, (*User).String), ", "), show.None)
}
