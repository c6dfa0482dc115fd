// SPDX-License-Identifier: Apache-2.0

// Package random makes TrainJobs and runtimes: odd ones, but such as an API server accepts.
// The same seed gives the same ones.
package random

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Object is a JSON object.
type Object = map[string]any

// Source makes random parts of TrainJobs.
type Source struct {
	*rand.Rand
	taken bool
}

// New returns the source of a seed.
func New(seed uint64) Source { return Source{Rand: rand.New(rand.NewPCG(seed, 0))} }

// Taken is the same without what the webhooks of all releases refuse: variables of containers that have theirs from the TrainJob.
func (s Source) Taken() Source {
	s.taken = true
	return s
}

// Jobs are the replicated jobs of every Runtime, with their containers.
var Jobs = []struct {
	Name                       string
	Step                       string
	InitContainers, Containers []string
}{
	{"dataset-initializer", "dataset-initializer", nil, []string{"dataset-initializer"}},
	{"model-initializer", "model-initializer", []string{"warm"}, []string{"model-initializer", "aside"}},
	{"node", "trainer", []string{"fetch", "warm", "check"}, []string{"node", "side", "log"}},
	{"extra", "", nil, []string{"extra", "node"}},
}

// Words are keys and values from so small a choice that they meet.
var (
	keys    = []string{"a", "b", "example.com/c", "pool"}
	values  = []string{"", "1", "2", "wörter-日本", "<&>\"'\\\n", "$(A)", "0", "true"}
	names   = []string{"A", "B", "C", "DATA_ÜRI"}
	paths   = []string{"/data", "/cache", "/etc/ssh"}
	volumes = []string{"a", "b", "c"}
)

func one[T any](s Source, all []T) T { return all[s.IntN(len(all))] }
func (s Source) maybe() bool         { return s.IntN(2) == 0 }

// some returns distinct ones of the choices in a random order.
func some[T any](s Source, choices []T) []T {
	var picked []T
	for _, i := range s.Perm(len(choices))[:s.IntN(len(choices)+1)] {
		picked = append(picked, choices[i])
	}
	return picked
}

func (s Source) strings() Object {
	items := Object{}
	for _, key := range some(s, keys) {
		items[key] = one(s, values)
	}
	return items
}

// put sets a field as often as not, sometimes to null.
func (s Source) put(into Object, key string, make func() any) {
	switch s.IntN(20) {
	case 0:
		into[key] = nil
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
		into[key] = make()
	}
}

func list[T any](s Source, choices []T, make func(T) any) []any {
	items := []any{}
	for _, choice := range some(s, choices) {
		items = append(items, make(choice))
	}
	return items
}

func named(name string) any { return Object{"name": name} }

// Metadata is that of a patch: labels and annotations only.
func (s Source) Metadata() Object {
	metadata := Object{}
	s.put(metadata, "labels", func() any { return s.strings() })
	s.put(metadata, "annotations", func() any { return s.strings() })
	return metadata
}

func (s Source) env() []any {
	return list(s, names, func(name string) any {
		variable := Object{"name": name}
		switch s.IntN(4) {
		case 0:
			variable["valueFrom"] = one(s, []any{
				Object{"secretKeyRef": Object{"name": "s", "key": "k", "optional": s.maybe()}},
				Object{"fieldRef": Object{"fieldPath": "metadata.name"}},
				Object{"configMapKeyRef": Object{"name": one(s, keys), "key": "k"}},
			})
		default:
			variable["value"] = one(s, values)
		}
		return variable
	})
}

// mounts are of one volume each: the lists of patches are keyed by the volume.
func (s Source) mounts() []any {
	order := s.Perm(len(volumes))
	return list(s, paths, func(path string) any {
		mount := Object{"name": volumes[order[0]], "mountPath": path}
		order = order[1:]
		s.put(mount, "readOnly", func() any { return s.maybe() })
		s.put(mount, "subPath", func() any { return one(s, []string{"", "x", "y"}) })
		return mount
	})
}

func (s Source) volumes() []any {
	return list(s, volumes, func(name string) any {
		volume := Object{"name": name}
		switch s.IntN(4) {
		case 0:
			volume["emptyDir"] = Object{}
		case 1:
			volume["emptyDir"] = Object{"sizeLimit": one(s, []any{"1024Mi", "1Gi"}), "medium": one(s, []string{"", "Memory"})}
		case 2:
			volume["persistentVolumeClaim"] = Object{"claimName": one(s, keys), "readOnly": s.maybe()}
		case 3:
			volume["projected"] = Object{"defaultMode": s.IntN(2), "sources": []any{Object{"secret": Object{"name": one(s, keys)}}}}
		}
		return volume
	})
}

func (s Source) tolerations() []any {
	return list(s, keys, func(key string) any {
		toleration := Object{"key": key, "operator": one(s, []string{"Exists", "Equal"}), "effect": one(s, []string{"", "NoSchedule", "NoExecute"})}
		s.put(toleration, "tolerationSeconds", func() any { return s.IntN(2) })
		return toleration
	})
}

func (s Source) affinity() any {
	term := Object{"matchExpressions": []any{Object{"key": one(s, keys), "operator": "In", "values": []any{one(s, values)}}}}
	affinity := Object{}
	s.put(affinity, "nodeAffinity", func() any {
		return Object{"requiredDuringSchedulingIgnoredDuringExecution": Object{"nodeSelectorTerms": []any{term}}}
	})
	s.put(affinity, "podAntiAffinity", func() any {
		return Object{"preferredDuringSchedulingIgnoredDuringExecution": []any{Object{
			"weight":          s.IntN(100) + 1,
			"podAffinityTerm": Object{"labelSelector": Object{"matchLabels": s.strings()}, "topologyKey": one(s, keys)},
		}}}
	})
	return affinity
}

func (s Source) containers(choices []string, securityContext bool) []any {
	return list(s, choices, func(name string) any {
		container := Object{"name": name}
		if !s.taken || !slices.Contains([]string{"node", "dataset-initializer", "model-initializer"}, name) {
			s.put(container, "env", func() any { return s.env() })
		}
		s.put(container, "volumeMounts", func() any { return s.mounts() })
		if securityContext {
			s.put(container, "securityContext", func() any { return Object{"runAsUser": s.IntN(3), "privileged": s.maybe()} })
		}
		return container
	})
}

// PodSpec is what Trainer 2.1 and later, or newer ones alone, can patch in the pods of a replicated job, given by its place in Jobs.
func (s Source) PodSpec(job int, newer bool) Object {
	spec := Object{}
	s.put(spec, "serviceAccountName", func() any { return one(s, []string{"", "one", "two"}) })
	s.put(spec, "nodeSelector", func() any { return s.strings() })
	s.put(spec, "affinity", func() any { return s.affinity() })
	s.put(spec, "tolerations", func() any { return s.tolerations() })
	s.put(spec, "volumes", func() any { return s.volumes() })
	s.put(spec, "initContainers", func() any { return s.containers(Jobs[job].InitContainers, newer) })
	s.put(spec, "containers", func() any { return s.containers(Jobs[job].Containers, newer) })
	s.put(spec, "schedulingGates", func() any { return list(s, keys, named) })
	s.put(spec, "imagePullSecrets", func() any { return list(s, keys, named) })
	if newer {
		s.put(spec, "securityContext", func() any { return Object{"runAsUser": s.IntN(3), "fsGroup": s.IntN(2)} })
	}
	return spec
}

// PodTemplateOverrides is a list of them, with several, repeated and empty parts.
func (s Source) PodTemplateOverrides() []any {
	overrides := []any{}
	for range s.IntN(5) {
		job := s.IntN(len(Jobs))
		targets := []any{named(Jobs[job].Name)}
		for range s.IntN(3) {
			targets = append(targets, named(Jobs[s.IntN(len(Jobs))].Name))
		}
		o := Object{"targetJobs": targets}
		s.put(o, "metadata", func() any { return s.Metadata() })
		if s.IntN(8) > 0 {
			o["spec"] = s.PodSpec(job, false)
		}
		if overrides = append(overrides, o); s.IntN(8) == 0 {
			overrides = append(overrides, s.mounting(job), s.mounting(job))
		}
	}
	return overrides
}

// mounting is an override that mounts volumes: two of them may mount one at two paths, which a single one cannot.
func (s Source) mounting(job int) Object {
	container := Object{"name": Jobs[job].Containers[0], "volumeMounts": s.mounts()}
	return Object{"targetJobs": []any{named(Jobs[job].Name)}, "spec": Object{"containers": []any{container}}}
}

// Managers own the entries of RuntimePatches.
var Managers = []string{"example.com/a", "kueue.x-k8s.io/manager", "trainer.kubeflow.org/kubeflow-sdk"}

// RuntimePatches is a list of entries of several managers. Newer ones hold what Trainer 2.1 cannot express.
func (s Source) RuntimePatches(newer bool) []any {
	return list(s, Managers, func(manager string) any {
		entry := Object{"manager": manager}
		s.put(entry, "time", func() any { return "2026-02-17T10:00:00Z" })
		s.put(entry, "trainingRuntimeSpec", func() any {
			template := Object{}
			s.put(template, "metadata", func() any { return s.Metadata() })
			template["spec"] = Object{"replicatedJobs": s.replicatedJobs(newer)}
			return Object{"template": template}
		})
		return entry
	})
}

func (s Source) replicatedJobs(newer bool) []any {
	patches := []any{}
	for _, job := range s.Perm(len(Jobs))[:s.IntN(len(Jobs)+1)] {
		pod := Object{}
		s.put(pod, "metadata", func() any { return s.Metadata() })
		pod["spec"] = s.PodSpec(job, newer)
		template := Object{"spec": Object{"template": pod}}
		if newer {
			s.put(template, "metadata", func() any { return s.Metadata() })
		}
		patch := Object{"name": Jobs[job].Name}
		if s.IntN(8) > 0 {
			patch["template"] = template
		}
		patches = append(patches, patch)
	}
	return patches
}

// Job is a TrainJob with the given fields in its spec and, often, a trainer and initializers.
func (s Source) Job(fields Object) Object {
	spec := Object{}
	s.put(spec, "trainer", func() any {
		trainer := Object{}
		s.put(trainer, "image", func() any { return one(s, []string{"one", "two"}) })
		s.put(trainer, "command", func() any { return []any{"train", one(s, values)} })
		s.put(trainer, "args", func() any { return []any{one(s, values)} })
		s.put(trainer, "env", func() any { return s.env() })
		s.put(trainer, "numNodes", func() any { return s.IntN(3) + 1 })
		return trainer
	})
	s.put(spec, "initializer", func() any {
		return Object{"dataset": Object{"storageUri": "hf://x", "env": s.env()}, "model": Object{"env": s.env(), "secretRef": Object{"name": "s"}}}
	})
	maps.Copy(spec, fields)
	return s.Bare(spec)
}

// Runtime is the spec of a runtime with Jobs.
func (s Source) Runtime() Object {
	jobs := []any{}
	for i, job := range Jobs {
		pod := s.PodSpec(i, false)
		pod["initContainers"] = s.whole(job.InitContainers)
		pod["containers"] = s.whole(job.Containers)
		template := Object{"spec": Object{"template": Object{"metadata": s.Metadata(), "spec": pod}}}
		metadata := Object{"labels": Object{"of": "runtime"}}
		if job.Step != "" {
			metadata["labels"] = Object{"trainer.kubeflow.org/trainjob-ancestor-step": job.Step}
		}
		template["metadata"] = metadata
		jobs = append(jobs, Object{"name": job.Name, "template": template})
	}
	return Object{"mlPolicy": Object{"numNodes": 2}, "template": Object{"metadata": s.Metadata(), "spec": Object{"replicatedJobs": jobs}}}
}

// whole returns containers with all that a runtime has to say, in a random order.
func (s Source) whole(choices []string) []any {
	containers := []any{}
	for _, i := range s.Perm(len(choices)) {
		container := s.containers(choices[i:i+1], true)
		if len(container) == 0 {
			container = []any{named(choices[i])}
		}
		c := container[0].(Object)
		c["image"] = fmt.Sprintf("image-%s", choices[i])
		containers = append(containers, c)
	}
	return containers
}

// Bare is a TrainJob with the given spec and nothing else.
func (s Source) Bare(spec Object) Object {
	spec["runtimeRef"] = Object{"name": "runtime", "apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
	return Object{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": Object{"name": "job", "namespace": "ns", "uid": "uid"}, "spec": spec,
	}
}

// Damage does things to parts of a value in place that an API server may refuse.
func (s Source) Damage(value any) {
	s.walk(value, func(object Object, key string) {
		switch s.IntN(16) {
		case 0:
			delete(object, key)
		case 1:
			object[key] = nil
		case 2:
			object[key] = one(s, []any{7, "x", "", true, []any{}, Object{}})
		case 3:
			object[one(s, []string{"command", "image", "resources", "terminationGracePeriodSeconds", "securityContext", "time", "other", "uid", "finalizers"})] = one(s, []any{-1, 30, Object{}, "x"})
		case 4, 5, 6:
			s.damageName(object, key)
		case 7, 8, 9, 10, 11, 12, 13:
			s.damageList(object, key)
		}
	})
}

func (s Source) damageName(object Object, key string) {
	if _, ok := object[key].(string); ok && (key == "name" || key == "manager" || key == "serviceAccountName") {
		object[key] = one(s, []any{
			"", "none", "node", "a.io/x", "A.io/x", "a.io/", "a.io/x y", "a.io/x/y",
			strings.Repeat("ü", 253), strings.Repeat("x", 254), "a.io/" + strings.Repeat("x", 248), "a.io/" + strings.Repeat("x", 249),
		})
	}
}

func (s Source) damageList(object Object, key string) {
	items, ok := object[key].([]any)
	if !ok || len(items) == 0 {
		return
	}
	if s.IntN(20) == 0 {
		for i := range one(s, []int{16, 64, 128}) {
			items = append(items, Object{"name": strings.Repeat("n", i+1), "key": "k"})
		}
		object[key] = items
		return
	}
	if key == "imagePullSecrets" {
		object[key] = append(items, Object{}) // Trainer panics at two lists with one without a name.
		return
	}
	object[key] = append(items, items[s.IntN(len(items))])
}

// walk visits few of the fields in a value.
func (s Source) walk(value any, visit func(Object, string)) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			s.walk(item, visit)
		}
	case Object:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			s.walk(value[key], visit)
			if s.IntN(24) == 0 {
				visit(value, key)
			}
		}
	}
}
