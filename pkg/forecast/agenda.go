// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// appointment is what will happen to a job unless it starts or stops before.
type appointment struct {
	when   time.Time
	serial int
	key    client.ObjectKey
	round  int
	what   func(context.Context, client.ObjectKey) error
}

// agenda is a heap of appointments, the first one first.
type agenda []*appointment

func (a agenda) Len() int      { return len(a) }
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*appointment)) }

func (a agenda) Less(i, j int) bool {
	if a[i].when.Equal(a[j].when) {
		return a[i].serial < a[j].serial
	}
	return a[i].when.Before(a[j].when)
}

func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
