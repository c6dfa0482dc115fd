// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"k8s.io/utils/ptr"
)

// Machine is what the numbers were taken on.
type Machine struct {
	CPU  string `json:"cpu"`
	CPUs int    `json:"cpus"`
	// MemoryGiB is the machine's.
	MemoryGiB float64 `json:"memoryGiB"`
	Kernel    string  `json:"kernel"`
	Go        string  `json:"go"`
	// Versions of the components.
	Versions map[string]string `json:"versions"`
}

// versioned are the binaries whose versions are told. They are built from the modules of
// the projects, so they carry their versions.
var versioned = map[string]string{
	"kueue": "Kueue", "trainer-2.3": "Trainer", "jobset-2.3": "JobSet", "kube-apiserver": "Kubernetes", "etcd": "etcd", "kwok": "kwok",
}

// String names machine and versions.
func (m Machine) String() string {
	versions := make([]string, 0, len(m.Versions))
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		versions = append(versions, name+" "+m.Versions[name])
	}
	return fmt.Sprintf("%d x %s, %.0f GiB, Linux %s, %s; %s", m.CPUs, m.CPU, m.MemoryGiB, m.Kernel, m.Go, strings.Join(versions, ", "))
}

func thisMachine() (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Versions: map[string]string{}}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m, err
	}
	cpus, errCPU := proc.CPUInfo()
	memory, errMemory := proc.Meminfo()
	kernel, errKernel := os.ReadFile("/proc/sys/kernel/osrelease")
	if len(cpus) > 0 {
		m.CPU = cpus[0].ModelName
	}
	m.MemoryGiB = float64(ptr.Deref(memory.MemTotalBytes, 0)) / (1 << 30)
	m.Kernel = strings.TrimSpace(string(kernel))
	return m, errors.Join(errCPU, errMemory, errKernel)
}

// commitOf returns the commit of a repository.
func commitOf(root string) (string, error) {
	commit, err := exec.Command("git", "-C", root, "describe", "--always", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("asking git for the commit: %w", err)
	}
	return strings.TrimSpace(string(commit)), nil
}

// readVersions looks at the binaries, which the first cluster has built where they were missing.
func (m *Machine) readVersions(root string) error {
	for binary, name := range versioned {
		info, err := buildinfo.ReadFile(filepath.Join(root, "bin", binary))
		if err != nil {
			return err
		}
		m.Versions[name] = info.Main.Version
	}
	return nil
}
