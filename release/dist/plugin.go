// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	krew "sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

// pluginName is how people call the plugin, after kubectl, and the name of its krew manifest.
const pluginName = "trainjob"

const pluginProgram = "kubectl-" + pluginName

// pluginArchives writes the plugin for every platform, and the manifest by which krew finds it.
func (r *release) pluginArchives() error {
	plugin := krew.Plugin{
		TypeMeta:   metav1.TypeMeta{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"},
		ObjectMeta: metav1.ObjectMeta{Name: pluginName},
		Spec: krew.PluginSpec{
			Version:          r.version,
			Homepage:         "https://github.com/kueue-trainer/kueue-trainer",
			ShortDescription: "Explain and manage Kubeflow TrainJobs in Kueue queues",
			Description: "Says why a TrainJob waits in its Kueue queue, submits and validates TrainJobs,\n" +
				"moves them to another Trainer API generation, makes flavors of the GPU nodes, and\n" +
				"checks an installation of Kueue, Trainer, JobSet and kueue-trainer.\n",
		},
	}
	for _, name := range r.plugins {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return fmt.Errorf("platform %q: %w", name, err)
		}
		one, err := r.pluginArchive(platform)
		if err != nil {
			return err
		}
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, one)
	}
	manifest, err := yaml.Marshal(plugin)
	if err != nil {
		return err
	}
	return r.write(pluginName+".yaml", manifest)
}

func (r *release) pluginArchive(platform *v1.Platform) (krew.Platform, error) {
	program, pack, extension := pluginProgram, packTarGz, ".tar.gz"
	if platform.OS == "windows" {
		program, pack, extension = program+".exe", packZip, ".zip"
	}
	base := fmt.Sprintf("%s_%s_%s_%s", pluginProgram, r.version, platform.OS, platform.Architecture)
	binary := filepath.Join(r.binaries, base, program)
	if err := r.compile("./cmd/"+pluginProgram, binary, platform); err != nil {
		return krew.Platform{}, err
	}
	if err := r.describe(base, binary); err != nil {
		return krew.Platform{}, err
	}
	files := []file{{name: program, from: binary, mode: 0o755}, {name: "LICENSE", from: filepath.Join(r.root, "LICENSE"), mode: 0o644}}
	if platform.OS != "windows" {
		completion := "kubectl_complete-" + pluginName
		files = append(files, file{name: completion, from: filepath.Join(r.root, "cmd", pluginProgram, completion), mode: 0o755})
	}
	archive := filepath.Join(r.out, base+extension)
	if err := pack(archive, files, r.date); err != nil {
		return krew.Platform{}, err
	}
	sum, err := sha256Of(archive)
	return krew.Platform{
		URI: downloads + r.version + "/" + base + extension, Sha256: sum, Bin: program,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"os": platform.OS, "arch": platform.Architecture}},
		Files:    []krew.FileOperation{{From: program, To: "."}, {From: "LICENSE", To: "."}},
	}, err
}

// describe writes what a program is made of.
func (r *release) describe(artefact, binary string) error {
	content, err := bill(artefact, binary, r)
	if err != nil {
		return fmt.Errorf("modules of %s: %w", artefact, err)
	}
	return r.write(strings.TrimSuffix(artefact, filepath.Ext(binary))+".spdx.json", content)
}

// file is one file of an archive.
type file struct {
	name, from string
	mode       os.FileMode
}
