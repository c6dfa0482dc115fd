// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"sync"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
)

func TestParseChoice(t *testing.T) {
	var older build.Trainer
	if err := older.UnmarshalText([]byte("2.2")); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		text    string
		want    Choice
		wantErr bool
	}{
		"an integration":                     {text: "in-tree", want: Choice{Integration: cluster.InTree}},
		"an integration with its Trainer":    {text: "external:2.2", want: Choice{Integration: cluster.External, Trainer: older}},
		"a Trainer that there is not":        {text: "external:9.9", want: Choice{Integration: cluster.External}, wantErr: true},
		"an integration that Validate knows": {text: "none", want: Choice{Integration: "none"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseChoice(tc.text)
			if got != tc.want || (err != nil) != tc.wantErr {
				t.Errorf("ParseChoice(%q) = %+v, %v", tc.text, got, err)
			}
		})
	}
}

func TestNewRefusesAnUnknownIntegration(t *testing.T) {
	choices := []Choice{{Integration: cluster.External}, {Integration: "none"}, {Integration: cluster.External}}
	if _, err := New(t.TempDir(), t.TempDir(), &bytes.Buffer{}, 8, choices...); err == nil {
		t.Error("It is accepted")
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
