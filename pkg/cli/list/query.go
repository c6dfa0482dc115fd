// SPDX-License-Identifier: Apache-2.0

package list

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
)

type query struct {
	states             []string
	queue, user, order string
	// users has the user of each told.
	users bool
	// byCohort lists those that wait for quota, in the order of their turns.
	byCohort bool
}

// states are those that a TrainJob of the cluster can have.
var states = []string{
	string(explain.NotManaged), string(explain.Unqueued), string(explain.Waiting), string(explain.Reserved), string(explain.Starting),
	string(explain.Elsewhere), string(explain.Running), string(explain.Stopping), string(explain.Held), string(explain.Deactivated),
	string(explain.Succeeded), string(explain.Failed),
}

func among(all []string, state string) bool {
	return slices.ContainsFunc(all, func(other string) bool { return strings.EqualFold(state, other) })
}

var columns = slices.Sorted(maps.Keys(orders))

// orders compare by a column, what comes first being what people look for.
var orders = map[string]func(a, b *TrainJob) int{
	"name":  func(a, b *TrainJob) int { return cmp.Compare(a.Name, b.Name) },
	"state": func(a, b *TrainJob) int { return cmp.Compare(a.Phase, b.Phase) },
	"queue": func(a, b *TrainJob) int { return cmp.Compare(a.Queue, b.Queue) },
	"user":  func(a, b *TrainJob) int { return cmp.Compare(a.User, b.User) },
	"gpus":  func(a, b *TrainJob) int { return cmp.Compare(b.gpus(), a.gpus()) },
	// What is not known comes last.
	"priority": func(a, b *TrainJob) int {
		return cmp.Compare(ptr.Deref(b.Priority, math.MinInt32), ptr.Deref(a.Priority, math.MinInt32))
	},
	"position": func(a, b *TrainJob) int {
		return cmp.Compare(ptr.Deref(a.Position, math.MaxInt), ptr.Deref(b.Position, math.MaxInt))
	},
	"since": func(a, b *TrainJob) int { return ptr.Deref(a.Since, never).Compare(ptr.Deref(b.Since, never).Time) },
}

var never = metav1.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// alone is a ClusterQueue that shares with none.
func (r *TrainJob) alone() string {
	if r.Cohort != "" {
		return ""
	}
	return r.ClusterQueue
}

func (r *TrainJob) gpus() (sum int64) {
	for _, n := range r.GPUs {
		sum += n
	}
	return sum
}

func (q *query) check() error {
	for _, state := range q.states {
		if !among(states, state) {
			return fmt.Errorf("--state %s: there is no such state: use %s", state, strings.Join(states, ", "))
		}
	}
	return nil
}

// checkUser refuses to look for a user where nothing says whose a TrainJob is.
func (q *query) checkUser(around *explain.Around) error {
	switch {
	case q.user == "":
		return nil
	case around.ManagerUnseen:
		return exit.With(exit.Unseen, fmt.Errorf("--user: you may not list %s, of which metrics.userLabel says whose a TrainJob is: use -l LABEL=%s", configMaps, q.user))
	case around.Manager == nil:
		return fmt.Errorf("--user: %s, whose metrics.userLabel says whose a TrainJob is: use -l LABEL=%s", noConfiguration, q.user)
	case around.Manager.Metrics.UserLabel == "":
		return errors.New("--user: no label says whose a TrainJob is: set metrics.userLabel of kueue-trainer's configuration, or use -l")
	}
	return nil
}

// wants reports whether a TrainJob is listed. One of which it is not known is.
func (q *query) wants(r *TrainJob) bool {
	inState := len(q.states) == 0 || r.Unknown["phase"] != "" || among(q.states, string(r.Phase))
	return inState && (!q.byCohort || r.Turn > 0) && (q.queue == "" || q.queue == r.Queue || q.queue == r.ClusterQueue) && (q.user == "" || q.user == r.User)
}

// sort leaves those that are alike in the order of their names.
func (q *query) sort(rows []TrainJob) {
	if q.byCohort {
		slices.SortStableFunc(rows, func(a, b TrainJob) int {
			return cmp.Or(cmp.Compare(a.Cohort, b.Cohort), cmp.Compare(a.alone(), b.alone()), cmp.Compare(a.Turn, b.Turn))
		})
	}
	if compare := orders[q.order]; compare != nil {
		slices.SortStableFunc(rows, func(a, b TrainJob) int { return compare(&a, &b) })
	}
}
