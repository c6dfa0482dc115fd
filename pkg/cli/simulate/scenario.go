// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Scenario is what is different in the second play. A file has it, and flags add to it.
type Scenario struct {
	// SetQuota are CLUSTERQUEUE/FLAVOR/RESOURCE=QUANTITY.
	SetQuota []string `json:"setQuota,omitempty"`
	// SetBorrowingLimit are the same; "none" takes the limit away.
	SetBorrowingLimit []string `json:"setBorrowingLimit,omitempty"`
	// AddNodes are FLAVOR=COUNT: so many more nodes like one that the flavor has.
	AddNodes []string `json:"addNodes,omitempty"`
	// Drain are nodes that go.
	Drain []string `json:"drain,omitempty"`
	// Priorities are NAMESPACE/JOB=PRIORITY.
	Priorities []string `json:"priorities,omitempty"`
	// Preemption is that of ClusterQueues, by their names.
	Preemption map[string]kueue.ClusterQueuePreemption `json:"preemption,omitempty"`
	// FairSharing is that of Kueue's configuration; nil leaves it as it is.
	FairSharing *configapi.FairSharing `json:"fairSharing,omitempty"`
	// Jobs are FILE@+2h: Workloads that come after a time.
	Jobs []string `json:"jobs,omitempty"`
}

func readScenario(path string) (Scenario, error) {
	var s Scenario
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if all := manifest.Parse(path, data).Documents; len(all) > 1 {
		return s, fmt.Errorf("%s:%d: a scenario is one document, and here another begins", path, all[1].Line)
	}
	err = yaml.UnmarshalStrict(data, &s)
	if err := errors.Join(err, s.check()); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// check goes by the enums of Kueue's API, which no API server sees here.
func (s *Scenario) check() error {
	var all error
	for _, name := range slices.Sorted(maps.Keys(s.Preemption)) {
		policy, at := s.Preemption[name], fmt.Sprintf("preemption[%s].", name)
		all = errors.Join(all,
			oneOf(at+"withinClusterQueue", cmp.Or(policy.WithinClusterQueue, kueue.PreemptionPolicyNever), kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority),
			oneOf(at+"reclaimWithinCohort", cmp.Or(policy.ReclaimWithinCohort, kueue.PreemptionPolicyNever), kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny))
		if borrow := policy.BorrowWithinCohort; borrow != nil {
			all = errors.Join(all, oneOf(at+"borrowWithinCohort.policy", cmp.Or(borrow.Policy, kueue.BorrowWithinCohortPolicyNever), kueue.BorrowWithinCohortPolicyNever, kueue.BorrowWithinCohortPolicyLowerPriority))
			if cmp.Or(policy.ReclaimWithinCohort, kueue.PreemptionPolicyNever) == kueue.PreemptionPolicyNever && borrow.Policy == kueue.BorrowWithinCohortPolicyLowerPriority {
				all = errors.Join(all, fmt.Errorf("%sborrowWithinCohort.policy: Kueue takes LowerPriority with a reclaimWithinCohort that is not Never only", at))
			}
		}
	}
	if s.FairSharing != nil {
		for n, strategy := range s.FairSharing.PreemptionStrategies {
			all = errors.Join(all, oneOf(fmt.Sprintf("fairSharing.preemptionStrategies[%d]", n), strategy, configapi.LessThanOrEqualToFinalShare, configapi.LessThanInitialShare))
		}
	}
	return all
}

func oneOf[T ~string](field string, value T, enum ...T) error {
	if slices.Contains(enum, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is none of %v", field, value, enum)
}

// list is one of a scenario's lists of texts, which a flag adds to.
type list struct {
	field, flag, usage string
	texts              *[]string
	// apply is what a text of it changes.
	apply func(*changed, string) error
}

func (s *Scenario) lists() []list {
	return []list{
		{"setQuota", "set-quota", "CLUSTERQUEUE/FLAVOR/RESOURCE=QUANTITY", &s.SetQuota, pair(setQuota)},
		{"setBorrowingLimit", "set-borrowing-limit", "CLUSTERQUEUE/FLAVOR/RESOURCE=QUANTITY, or =none", &s.SetBorrowingLimit, pair(setBorrowingLimit)},
		{"addNodes", "add-nodes", "FLAVOR=COUNT more nodes below its topology; quota is not changed by that", &s.AddNodes, pair(addNodes)},
		{"priorities", "priority", "NAMESPACE/JOB=PRIORITY", &s.Priorities, pair(setPriority)},
		{"drain", "drain", "a node that goes", &s.Drain, drain},
		{"jobs", "job", "FILE@+2h: Workloads that come after a time", &s.Jobs, func(*changed, string) error { return nil }},
	}
}

// pair reads WHAT=VALUE.
func pair(apply func(c *changed, what, value string) error) func(*changed, string) error {
	return func(c *changed, text string) error {
		what, value, found := strings.Cut(text, "=")
		if !found {
			return errors.New("there is no = in it")
		}
		return apply(c, what, value)
	}
}

func (s *Scenario) none() bool {
	listed := slices.ContainsFunc(s.lists(), func(l list) bool { return len(*l.texts) > 0 })
	return !listed && len(s.Preemption) == 0 && s.FairSharing == nil
}

// changed is a cluster with its changes.
type changed struct {
	*outlook.Outlook
	// stops are the jobs on nodes that go, idle what changes nothing.
	stops sets.Set[string]
	idle  []string
}

func (s *Scenario) apply(before *outlook.Outlook) (*changed, error) {
	after, i := *before, *before.Inventory
	after.Inventory = &i
	i.Nodes, i.Workloads = slices.Clone(i.Nodes), slices.Clone(i.Workloads)
	i.ClusterQueues = kueuelib.Map(i.ClusterQueues, func(cq *kueue.ClusterQueue) kueue.ClusterQueue { return *cq.DeepCopy() })
	if s.FairSharing != nil {
		kueueConfig := ptr.Deref(before.Kueue, configapi.Configuration{})
		kueueConfig.FairSharing = s.FairSharing
		after.Kueue = &kueueConfig
	}
	c, failed := &changed{Outlook: &after, stops: sets.New[string]()}, preempt(&i, s.Preemption)
	for _, l := range s.lists() {
		for n, text := range *l.texts {
			if err := l.apply(c, text); err != nil {
				return nil, errors.Join(fmt.Errorf("%s[%d] %q: %w", l.field, n, text, err), failed)
			}
		}
	}
	return c, failed
}

// drain takes a node away, and evicts who has a place on it.
func drain(c *changed, name string) error {
	at := slices.IndexFunc(c.Nodes, func(node corev1.Node) bool { return node.Name == name })
	if at < 0 {
		return errors.New("there is no such node")
	}
	if !slices.ContainsFunc(c.Flavors, func(f kueue.ResourceFlavor) bool {
		return f.Spec.TopologyName != nil && inventory.Picks(&f, &c.Nodes[at])
	}) {
		c.idle = append(c.idle, "node "+name)
	}
	c.Nodes = slices.Delete(c.Nodes, at, at+1)
	for n := range c.Workloads {
		if wl := &c.Workloads[n]; scheduler.PlacedOn(wl, name) {
			c.stops.Insert(inventory.JobName(wl))
			*wl = *wl.DeepCopy()
			apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{
				Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: kueue.WorkloadEvictedDueToNodeFailures, Message: "Its node is drained",
			})
		}
	}
	return nil
}

// tellNodes tells what nodes that go or come do beside making room, or do not do.
func (c *changed) tellNodes(warn func(string, ...any)) {
	if len(c.stops) > 0 {
		warn("drained nodes have %s start over, %s among them", show.Count(len(c.stops), "job"), sets.List(c.stops)[0])
	}
	if len(c.idle) > 0 {
		warn("nothing changes by %s: nodes are room below a topology alone, and there is none", strings.Join(c.idle, " and "))
	}
}

func preempt(i *inventory.Inventory, policies map[string]kueue.ClusterQueuePreemption) error {
	for name, policy := range policies {
		cq := i.ClusterQueue(kueue.ClusterQueueReference(name))
		if cq == nil {
			return fmt.Errorf("preemption[%s]: there is no such ClusterQueue", name)
		}
		cq.Spec.Preemption = &policy
	}
	return nil
}

func setQuota(c *changed, what, value string) error {
	return changeQuota(c, what, value, func(quota *kueue.ResourceQuota, q *resource.Quantity) { quota.NominalQuota = *q })
}

func setBorrowingLimit(c *changed, what, value string) error {
	name, _, _ := strings.Cut(what, "/")
	if cq := c.ClusterQueue(kueue.ClusterQueueReference(name)); cq != nil && cq.Spec.CohortName == "" && value != "none" {
		return fmt.Errorf("ClusterQueue %s is in no cohort, and can borrow nothing", name)
	}
	if value == "none" {
		return changeQuota(c, what, "0", func(quota *kueue.ResourceQuota, _ *resource.Quantity) { quota.BorrowingLimit = nil })
	}
	return changeQuota(c, what, value, func(quota *kueue.ResourceQuota, q *resource.Quantity) { quota.BorrowingLimit = q })
}

func changeQuota(c *changed, what, value string, change func(*kueue.ResourceQuota, *resource.Quantity)) error {
	parts := strings.SplitN(what, "/", 3)
	if len(parts) != 3 {
		return errors.New("name CLUSTERQUEUE/FLAVOR/RESOURCE, such as team-a/h100/nvidia.com/gpu")
	}
	quantity, err := resource.ParseQuantity(value)
	if err != nil {
		return fmt.Errorf("%q is no quantity", value)
	}
	if quantity.Sign() < 0 {
		return fmt.Errorf("%q is negative", value)
	}
	cq := c.ClusterQueue(kueue.ClusterQueueReference(parts[0]))
	if cq == nil {
		return fmt.Errorf("there is no ClusterQueue %s", parts[0])
	}
	quota := inventory.QuotaOf(cq.Spec.ResourceGroups, kueue.ResourceFlavorReference(parts[1]), corev1.ResourceName(parts[2]))
	if quota == nil {
		return fmt.Errorf("ClusterQueue %s has no quota of %s in flavor %s", parts[0], parts[2], parts[1])
	}
	change(quota, &quantity)
	if lends := quota.LendingLimit; lends != nil && lends.Cmp(quota.NominalQuota) > 0 {
		return fmt.Errorf("ClusterQueue %s lends up to %s of it, and Kueue takes no quota below that", parts[0], lends)
	}
	return nil
}

func addNodes(c *changed, what, value string) error {
	count, err := strconv.Atoi(value)
	if err != nil || count < 1 {
		return fmt.Errorf("%q is no number of nodes", value)
	}
	flavor := c.Flavor(kueue.ResourceFlavorReference(what))
	if flavor == nil {
		return fmt.Errorf("there is no ResourceFlavor %s", what)
	}
	nodes := c.NodesOf(flavor)
	if len(nodes) == 0 {
		return fmt.Errorf("flavor %s has no node that more could be like", what)
	}
	ready := slices.IndexFunc(nodes, inventory.Ready)
	if ready < 0 {
		return fmt.Errorf("flavor %s has no node that is ready and not cordoned, for more to be like it", what)
	}
	if flavor.Spec.TopologyName == nil {
		c.idle = append(c.idle, "more nodes of flavor "+what)
	}
	for n := 0; count > 0; n++ {
		name := fmt.Sprintf("added-%s-%d", what, n)
		if inventory.Find(c.Nodes, "", name) != nil {
			continue // Of an earlier --add-nodes.
		}
		node := nodes[ready].DeepCopy()
		node.Name = name
		metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelHostname, name)
		c.Nodes = append(c.Nodes, *node)
		count--
	}
	return nil
}

func setPriority(c *changed, what, value string) error {
	priority, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is no priority", value)
	}
	for n := range c.Workloads {
		if wl := &c.Workloads[n]; inventory.JobName(wl) == what && !kueuelib.IsFinished(wl) {
			wl.Spec.Priority = ptr.To(int32(priority))
			return nil
		}
	}
	return fmt.Errorf("there is no Workload of a job %s that has not ended", what)
}

// later reads FILE@+2h.
func later(text string) (path string, after time.Duration, err error) {
	path, wait, found := strings.Cut(text, "@+")
	if !found {
		return text, 0, nil
	}
	if after, err = time.ParseDuration(wait); err != nil || after < 0 {
		return "", 0, fmt.Errorf("%q: %q is no time like 2h", text, wait)
	}
	return path, after, nil
}
