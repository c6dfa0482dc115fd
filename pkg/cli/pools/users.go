// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// User is who holds some of a pool.
type User struct {
	Namespace string `json:"namespace"`
	// Name is of the label that the manager's configuration names; empty where none tells.
	Name     string            `json:"name,omitempty"`
	Reserved resource.Quantity `json:"reserved"`
}

// String is "namespace/name", or the namespace alone.
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
	var texts []string
	for _, u := range users {
		texts = append(texts, fmt.Sprint(u))
	}
	return cmp.Or(strings.Join(texts, ", "), show.None)
}
