// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

func TestUpRestartsWhatRunsOnWithAnotherConfiguration(t *testing.T) {
	c := &Cluster{Dir: t.TempDir(), Builder: build.Builder{Repo: t.TempDir(), Out: io.Discard}}
	c.state.Processes = map[string]process.Process{}
	comp := component{name: "sleep", args: func(*Cluster) []string { return []string{"60"} }}
	authority, key, err := pkiutil.NewCertificateAuthority(certificate(kueueCAName))
	err = errors.Join(err, pkiutil.WriteCertAndKey(c.path("certs"), "ca", authority, key),
		os.Mkdir(c.BinDir(), 0o755), os.Symlink("/bin/sleep", c.binary(comp)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.process(comp.name).Kill(context.Background()) })
	var pids []int
	for _, config := range []string{"a", "a", "b"} {
		writeFile(c.configFile(comp.name), []byte(config))
		c.ensure(t.Context(), comp)
		pids = append(pids, c.process(comp.name).PID)
	}
	if pids[0] != pids[1] || pids[1] == pids[2] {
		t.Errorf("The processes are %d, want the first two alike, and another with another configuration", pids)
	}
}

func TestUpTakesADirectoryWithNothingOfSomebodyElse(t *testing.T) {
	// The last but one is what a full disk leaves of the first state.
	for _, name := range []string{"logs", lockFile, "state.json.new", "thesis.tex"} {
		c := &Cluster{Dir: t.TempDir()}
		if err := os.WriteFile(c.path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := attempt.To(c.refuseForeignDir); (err != nil) != (name == "thesis.tex") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
