// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LoadSaved reads what a manager has saved in its namespace.
func LoadSaved(ctx context.Context, c client.Reader, namespace string) (*Saved, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ConfigMapName}, &cm); err != nil {
		return nil, err
	}
	saved, err := decode(cm.BinaryData[configMapKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}
	return &saved, nil
}

// Totals returns what the account comes to now, by phase and by outcome, with what Workloads tell
// since it was saved. there is whether a Workload that the account knows is there; readings are of
// Workloads read after the account.
func (s *Saved) Totals(readings []Reading, there func(types.UID) bool, now time.Time) []Total {
	b := s.book(now)
	b.catchUp(readings, there, s.Saved, now)
	return sorted(b.Totals(now))
}

// Prove returns what readings prove of a time by themselves, without anything that was saved: by
// phase, and of runs that ended in it, by outcome.
func Prove(readings []Reading, from, to time.Time) []Total {
	b := NewBook(from)
	for _, r := range readings {
		b.Observe(r, to, time.Time{})
	}
	return sorted(b.Totals(to))
}

// catchUp takes note of what Workloads tell since a time until which the book was kept, and of those
// that are gone since.
func (b *Book) catchUp(readings []Reading, there func(types.UID) bool, known, now time.Time) {
	for _, r := range readings {
		b.Observe(r, now, known)
	}
	b.Vanished(known, now, func(h *Holding) bool { return there(h.UID) })
}
