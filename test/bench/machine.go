// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
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

func thisMachine() (Machine, error) {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Versions: map[string]string{}}
	for file, read := range map[string]func(string){
		"/proc/cpuinfo":              func(text string) { m.CPU = field(text, "model name") },
		"/proc/meminfo":              func(text string) { m.MemoryGiB = gib(field(text, "MemTotal")) },
		"/proc/sys/kernel/osrelease": func(text string) { m.Kernel = strings.TrimSpace(text) },
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			return m, err
		}
		read(string(content))
	}
	return m, nil
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

// field returns the value of the first line "key: value".
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if k, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// gib reads an amount of /proc/meminfo.
func gib(amount string) float64 {
	var kib float64
	// A line that says otherwise leaves 0, which the report shows.
	_, _ = fmt.Sscanf(amount, "%f kB", &kib)
	return kib / (1 << 20)
}
