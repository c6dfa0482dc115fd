// SPDX-License-Identifier: Apache-2.0

// Package manifests renders what the projects ship, from the module cache, and changes no more than running outside of
// the cluster takes: who the permissions are given to and where the webhooks are called.
package manifests

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
)

// Render writes a small overlay, whose resources lie below root, into dir and builds it. It is a file because kustomize
// has no other way to combine bases, and it stays there for people to look at.
func Render(root string, overlay types.Kustomization, dir string) []*unstructured.Unstructured {
	attempt.Succeed(os.MkdirAll(dir, 0o755))
	overlay.Resources = seenFrom(dir, root, overlay.Resources)
	attempt.Succeed(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), attempt.Must(yaml.Marshal(overlay)), 0o644))
	options := krusty.MakeDefaultOptions()
	// Single files lie outside of the overlay's directory.
	options.LoadRestrictions = types.LoadRestrictionsNone
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	attempt.Succeed(err, "failed to render %s in %s", overlay.Resources, dir)
	return Decode(attempt.Must(built.AsYaml()))
}

// seenFrom names resources relative to dir: kustomize refuses absolute directories, and compares paths without symbolic links.
func seenFrom(dir, root string, resources []string) (relative []string) {
	dir = attempt.Must(filepath.EvalSymlinks(dir))
	for _, resource := range resources {
		path, err := filepath.EvalSymlinks(filepath.Join(root, resource))
		attempt.Succeed(err, "manifests are missing")
		relative = append(relative, attempt.Must(filepath.Rel(dir, path)))
	}
	return relative
}

// Decode splits a stream of YAML documents into objects.
func Decode(stream []byte) (objects []*unstructured.Unstructured) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		attempt.Succeed(err, "failed to decode manifest %d", len(objects)+1)
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}

// Partition separates the objects of some kinds from the others.
func Partition(objects []*unstructured.Unstructured, kinds ...string) (those, others []*unstructured.Unstructured) {
	for _, obj := range objects {
		if slices.Contains(kinds, obj.GetKind()) {
			those = append(those, obj)
		} else {
			others = append(others, obj)
		}
	}
	return those, others
}

// Kinds that matter to a manager that runs as a plain process, or to the order in which manifests are installed.
const (
	CRD       = "CustomResourceDefinition"
	Namespace = "Namespace"
	// Runtime is one that Trainer's webhook may be asked about. Trainer 2.3 exempts those
	// that it ships, by a label; earlier ones do not.
	Runtime          = "ClusterTrainingRuntime"
	MutatingConfig   = "MutatingWebhookConfiguration"
	ValidatingConfig = "ValidatingWebhookConfiguration"
	clusterBinding   = "ClusterRoleBinding"
	roleBinding      = "RoleBinding"
)

// certManagerAnnotation asks cert-manager for a CA bundle; here it comes with the URL.
const certManagerAnnotation = "cert-manager.io/inject-ca-from"

// unused are the kinds that only serve a manager that runs in a pod.
var unused = []string{"Deployment", "Service", "APIService", "ConfigMap", "Secret", "Certificate", "Issuer", "NetworkPolicy"}

// Target is the process that stands in for a project's Deployment.
type Target struct {
	User string
	// WebhookURL is where its webhooks are served, without a path.
	WebhookURL string
	// CABundle verifies WebhookURL, PEM encoded.
	CABundle []byte
}

// Retarget drops what only serves a manager in a pod and points the rest at target.
func Retarget(objects []*unstructured.Unstructured, target Target) []*unstructured.Unstructured {
	kept := slices.DeleteFunc(slices.Clone(objects), func(obj *unstructured.Unstructured) bool {
		return slices.Contains(unused, obj.GetKind())
	})
	for _, obj := range kept {
		attempt.Succeed(attempt.To(func() { target.rewrite(obj) }), "%s %s", obj.GetKind(), obj.GetName())
	}
	return kept
}

func (t Target) rewrite(obj *unstructured.Unstructured) {
	unstructured.RemoveNestedField(obj.Object, "metadata", "annotations", certManagerAnnotation)
	switch obj.GetKind() {
	case clusterBinding, roleBinding:
		t.rewriteSubjects(obj)
	case MutatingConfig, ValidatingConfig:
		t.redirect(obj.Object)
	case CRD:
		// Without a conversion webhook there is nothing to find.
		conversion, _, err := unstructured.NestedFieldNoCopy(obj.Object, "spec", "conversion")
		attempt.Succeed(err)
		t.redirect(conversion)
	}
}

// rewriteSubjects binds our user to what the manifests give to the manager's ServiceAccount: groups and users stay.
func (t Target) rewriteSubjects(obj *unstructured.Unstructured) {
	list, _ := obj.Object["subjects"].([]any)
	for i := range list {
		if subject, ok := list[i].(map[string]any); ok && subject["kind"] == rbacv1.ServiceAccountKind {
			list[i] = map[string]any{"kind": rbacv1.UserKind, "apiGroup": rbacv1.GroupName, "name": t.User}
		}
	}
}

func (t Target) redirect(value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			t.redirect(item)
		}
	case map[string]any:
		config, is := value["clientConfig"].(map[string]any)
		if !is {
			for _, below := range value {
				t.redirect(below)
			}
			return
		}
		path, found, _ := unstructured.NestedString(config, "service", "path")
		if !found {
			attempt.Fail("webhook %v has no service with a path", value["name"])
		}
		value["clientConfig"] = map[string]any{"url": t.WebhookURL + path, "caBundle": base64.StdEncoding.EncodeToString(t.CABundle)}
	}
}

// ExplicitRetention writes into runtimes what JobSet defaults for their volume claims.
//
// JobSet 0.12 defaults the retention policy when a JobSet is created, but not when it is updated. Trainer 2.3 applies
// the JobSet of a suspended TrainJob again, without that default, and JobSet refuses: the field is immutable. So a
// TrainJob of a runtime with volume claims, as the torchtune ones are shipped, never starts once it was suspended, be
// it by Kueue or by hand. An admin has to make the same change when the runtime is created; later it is immutable in
// the runtime, too.
func ExplicitRetention(objects []*unstructured.Unstructured) {
	for _, obj := range objects {
		policies, _, err := unstructured.NestedFieldNoCopy(obj.Object, "spec", "template", "spec", "volumeClaimPolicies")
		attempt.Succeed(err, "%s %s", obj.GetKind(), obj.GetName())
		list, _ := policies.([]any)
		for _, policy := range list {
			if fields, ok := policy.(map[string]any); ok && fields["retentionPolicy"] == nil {
				fields["retentionPolicy"] = map[string]any{"whenDeleted": "Delete"}
			}
		}
	}
}
