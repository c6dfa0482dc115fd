// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"sync"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
)

func TestChoose(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		trainer string
		wantErr bool
	}{
		"an integration":                  {text: "in-tree"},
		"an integration with its Trainer": {text: "in-tree:2.2", trainer: "2.2"},
		"a Trainer that there is not":     {text: "in-tree:9.9", wantErr: true},
		"an integration that is none":     {text: "none", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := cluster.Settings{Nodes: 2}
			if err := choose(&got, tc.text); (err != nil) != tc.wantErr {
				t.Fatalf("choose(%q): %v", tc.text, err)
			}
			if !tc.wantErr && (got.Integration != cluster.InTree || got.Trainer.Name != tc.trainer) {
				t.Errorf("choose(%q) = %+v", tc.text, got)
			}
		})
	}
}

func TestPrefixed(t *testing.T) {
	var out bytes.Buffer
	if n, err := (&prefixed{&sync.Mutex{}, &out, "worker1"}).Write([]byte("etcd ready\nkwok ready\n")); err != nil || n != 22 {
		t.Fatalf("Write() = %d, %v", n, err)
	}
	if want := "worker1  etcd ready\nworker1  kwok ready\n"; out.String() != want {
		t.Errorf("It writes %q, want %q", out.String(), want)
	}
}
