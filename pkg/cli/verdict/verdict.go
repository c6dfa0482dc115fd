// SPDX-License-Identifier: Apache-2.0

// Package verdict says, without a cluster, what JobSet's webhook says of a JobSet, and the API server of the Jobs and pods
// that come of it.
//
// The rules for Jobs and pods are the API server's own, out of k8s.io/kubernetes, which has no smaller module with them and
// promises nobody a stable API: no copy of them would stay right. Only the plugin may link it. The manager does without,
// since there the API server itself is asked.
package verdict

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	podapi "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchdefaults "k8s.io/kubernetes/pkg/apis/batch/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	jobregistry "k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
)

// Refusal is something that is refused for good, or waits for ever: nobody but a person can change it.
type Refusal struct {
	Kind          string // what is refused: a JobSet, a Job or a Pod
	ReplicatedJob string // the one that is refused; empty for the JobSet as a whole
	Path          string // from the JobSet or its replicated job's template, with names of keyed lists in brackets
	Message       string // what is wrong
	Waits         bool   // set for what is accepted, and then waits for itself
}

// Of returns what is refused of a JobSet as Trainer renders it, and of what JobSet makes of it. Of each replicated job the
// first Job and its first pod are looked at: the others differ from them by numbers in names alone.
func Of(ctx context.Context, js *jobsetapi.JobSet) []Refusal {
	js = withDefaults(js)
	refusals := ofJobSet(js)
	for i := range js.Spec.ReplicatedJobs {
		refusals = append(refusals, ofJob(ctx, js, &js.Spec.ReplicatedJobs[i])...)
	}
	return refusals
}

// ofJob asks the API server's own code about the first Job of a replicated job, and about its first pod if that is taken.
func ofJob(ctx context.Context, js *jobsetapi.JobSet, rj *jobsetapi.ReplicatedJob) []Refusal {
	child := childJob(js, rj)
	batchdefaults.SetObjectDefaults_Job(child)
	job := &batch.Job{}
	if err := batchdefaults.Convert_v1_Job_To_batch_Job(child, job, nil); err != nil {
		return []Refusal{{Kind: "Job", ReplicatedJob: rj.Name, Message: err.Error()}}
	}
	ctx = genericrequest.WithNamespace(ctx, job.Namespace)
	jobregistry.Strategy.PrepareForCreate(ctx, job)
	if errs := jobregistry.Strategy.Validate(ctx, job); len(errs) > 0 {
		return refusals("Job", "", rj, errs)
	}
	pod := &core.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
	pod.Name, pod.Namespace = job.Name+"-0-abcde", job.Namespace
	errs := corevalidation.ValidatePodCreate(pod, podapi.GetValidationOptionsFromPodTemplate(&job.Spec.Template, nil))
	return refusals("Pod", "spec.template.", rj, errs)
}

// childJob is the Job that JobSet makes, as far as validation goes (constructJob in JobSet's
// pkg/controllers, which cannot be imported beside Kueue's feature gates).
func childJob(js *jobsetapi.JobSet, rj *jobsetapi.ReplicatedJob) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s-0", js.Name, rj.Name), Namespace: js.Namespace, UID: "0",
			Labels: maps.Clone(rj.Template.Labels), Annotations: maps.Clone(rj.Template.Annotations),
		},
		Spec: *rj.Template.Spec.DeepCopy(),
	}
	pod := &job.Spec.Template
	for _, meta := range []*metav1.ObjectMeta{&job.ObjectMeta, &pod.ObjectMeta} {
		metav1.SetMetaDataLabel(meta, jobsetapi.JobSetNameKey, js.Name)
		metav1.SetMetaDataLabel(meta, jobsetapi.ReplicatedJobNameKey, rj.Name)
	}
	pod.Spec.Subdomain = subdomain(js)
	for _, policy := range js.Spec.VolumeClaimPolicies {
		for i := range policy.Templates {
			claim := policy.Templates[i].Name
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim + "-" + js.Name},
			}})
		}
	}
	return job
}

func subdomain(js *jobsetapi.JobSet) string {
	return cmp.Or(ptr.Deref(js.Spec.Network, jobsetapi.Network{}).Subdomain, js.Name)
}

func refusals(kind, prefix string, rj *jobsetapi.ReplicatedJob, errs field.ErrorList) []Refusal {
	var all []Refusal
	for _, err := range errs {
		switch prefix + err.Field {
		case "metadata.name", "spec.template.metadata.name", "spec.template.spec.subdomain":
			// These are the JobSet's; of names package podset says how long one may be.
			continue
		}
		// By names: the lists that a list comes from may have its items at other places.
		_, path, _, _ := Follow(Tree(&rj.Template), prefix+err.Field)
		all = append(all, Refusal{Kind: kind, ReplicatedJob: rj.Name, Path: path, Message: err.ErrorBody()})
	}
	return all
}

// Tree is an object of an API, which can be encoded, as JSON has it.
func Tree(object any) any {
	var tree any
	data, _ := json.Marshal(object)
	_ = json.Unmarshal(data, &tree)
	return tree
}

// Follow goes down a path whose items have numbers or names. It returns the path as far as there is something, with numbers,
// and all of it with names where items have any; how long the one is, and the other.
func Follow(tree any, path string) (numbered, named string, depth, total int) {
	all := manifest.Steps.FindAllString(path, -1)
	for _, step := range all {
		key, number := strings.Trim(step, "[]"), step
		switch at := tree.(type) {
		case map[string]any:
			tree = at[key]
		case []any:
			tree = nil
			if i := itemOf(at, key); i >= 0 {
				number, step, tree = "["+strconv.Itoa(i)+"]", "["+nameOf(at[i], key)+"]", at[i]
			}
		default:
			tree = nil
		}
		named = joined(named, step)
		if tree != nil {
			numbered, depth = joined(numbered, number), depth+1
		}
	}
	return numbered, named, depth, len(all)
}

func joined(path, step string) string {
	if path != "" && step[0] != '[' {
		path += "."
	}
	return path + step
}

// itemOf finds an item by its name or its number, or returns -1.
func itemOf(items []any, key string) int {
	at := slices.IndexFunc(items, func(item any) bool {
		fields, _ := item.(map[string]any)
		return slices.ContainsFunc(names, func(name string) bool { return fields[name] == key })
	})
	if number, err := strconv.Atoi(key); at < 0 && err == nil && number >= 0 && number < len(items) {
		return number
	}
	return at
}

// names are the keys by which items are told apart.
var names = []string{"mountPath", "name"}

// nameOf is the key of an item, or what it goes by where it has none.
func nameOf(item any, otherwise string) string {
	fields, _ := item.(map[string]any)
	for _, key := range names {
		if name, ok := fields[key].(string); ok && name != "" {
			return name
		}
	}
	return otherwise
}
