// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"strings"
)

// Series says whose quota it is, and of what. All of it is made by an admin, but for User, which
// stands in a label of the TrainJob.
type Series struct {
	ClusterQueue  string `json:"clusterQueue"`
	Namespace     string `json:"namespace"`
	LocalQueue    string `json:"localQueue"`
	Flavor        string `json:"flavor"`
	Resource      string `json:"resource"`
	PriorityClass string `json:"priorityClass,omitempty"`
	User          string `json:"user,omitempty"`
}

func (s Series) compare(o Series) int {
	return cmp.Or(
		strings.Compare(s.ClusterQueue, o.ClusterQueue), strings.Compare(s.Namespace, o.Namespace),
		strings.Compare(s.LocalQueue, o.LocalQueue), strings.Compare(s.Flavor, o.Flavor),
		strings.Compare(s.Resource, o.Resource), strings.Compare(s.PriorityClass, o.PriorityClass),
		strings.Compare(s.User, o.User))
}

// values returns the values of the labels of a series, in the order of the contract.
func (s Series) values(more string) []string {
	return []string{s.ClusterQueue, s.Namespace, s.LocalQueue, s.Flavor, s.Resource, s.PriorityClass, s.User, more}
}

// slot is a series and the phase or outcome of what it had.
type slot struct {
	Series
	is string
}
