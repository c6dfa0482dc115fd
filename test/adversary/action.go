// SPDX-License-Identifier: Apache-2.0

// Package adversary has tenants try whatever the API lets them do to queued TrainJobs, at random, and
// judges what comes of it: whether pods stay within the quota that is charged for them, and whether
// the quota is there for others when it is their turn.
package adversary

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// verb is what an action does.
type verb string

// The verbs of the API, update, patches of each type and deletions, and what happens in the life of
// jobs without the tenant.
const (
	create           verb = "create"
	update           verb = "update"
	merge            verb = "merge"
	jsonPatch        verb = "json"
	apply            verb = "apply"
	applyForce       verb = "apply-force"
	remove           verb = "delete"
	deleteCollection verb = "deletecollection"

	// finish ends the pods of a job: Name is the TrainJob's, Body is "succeeded" or "failed".
	finish verb = "finish"
	// neighbour has the neighbour start a TrainJob, or end the one that he has: Name is its priority.
	neighbour verb = "neighbour"
)

// action is one request of a tenant, or one thing that happens in the life of jobs. What a walk made up,
// its namespace, UIDs and generated names, is symbols in it, so that another walk can repeat it.
type action struct {
	// After is the time since the last one.
	After time.Duration `json:"after"`
	Verb  verb          `json:"verb"`
	// Resource is as kubectl takes it: "jobsets.v1alpha2.jobset.x-k8s.io".
	Resource    string `json:"resource,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	Name        string `json:"name,omitempty"`
	Body        string `json:"body,omitempty"`
	// Back is the body that takes a merge patch back. With it, both are sent in turn beside the actions that follow,
	// unless the first is refused, until the tenant's namespace is deleted.
	Back string `json:"back,omitempty"`
	// Propagation is that of deletions.
	Propagation string `json:"propagation,omitempty"`
	// Grace is the grace period of deletions in seconds; nil is what the object has.
	Grace *int64 `json:"grace,omitempty"`
}

// gvr is the resource in the form that clients take.
func (a action) gvr() schema.GroupVersionResource {
	gvr, _ := schema.ParseResourceArg(a.Resource)
	if gvr == nil {
		return schema.GroupVersionResource{}
	}
	return *gvr
}

// patchTypes are kubectl's names of the patches.
var patchTypes = map[verb]string{update: "merge", merge: "merge", jsonPatch: "json"}

// String returns the kubectl command that does the same, in the namespace {NS} as the user {TENANT}.
func (a action) String() string {
	sub := ""
	if a.Subresource != "" {
		sub = " --subresource " + a.Subresource
	}
	const as = "kubectl -n {NS} --as {TENANT} "
	switch a.Verb {
	case create:
		if a.Subresource != "" {
			return fmt.Sprintf(as+"create --raw %s -f - <<'EOF'\n%s\nEOF", a.path(), a.Body)
		}
		return fmt.Sprintf(as+"create -f - <<'EOF'\n%s\nEOF", a.Body)
	case update, merge, jsonPatch:
		if a.Back != "" {
			there, back := a, a
			there.Back, back.Back, back.Body = "", "", a.Back
			return fmt.Sprintf("while sleep %.2f; do %s; %s; done &", pause.Seconds(), there, back)
		}
		return fmt.Sprintf(as+"patch %s %s%s --type %s -p %s", a.Resource, a.Name, sub, patchTypes[a.Verb], quoted(a.Body))
	case apply, applyForce:
		return fmt.Sprintf(as+"apply --server-side --field-manager tenant --force-conflicts=%t%s -f - <<'EOF'\n%s\nEOF", a.Verb == applyForce, sub, a.Body)
	case remove:
		return fmt.Sprintf(as+"delete %s %s%s", a.Resource, a.Name, a.deletion())
	case deleteCollection:
		return fmt.Sprintf(as+"delete %s --all%s", a.Resource, a.deletion())
	case finish:
		return fmt.Sprintf("kubectl -n {NS} annotate --overwrite pod -l jobset.sigs.k8s.io/jobset-name=%s localcluster/finish=%s", a.Name, a.Body)
	case neighbour:
		return fmt.Sprintf("# The neighbour starts a TrainJob of priority %s in {NS}-neighbour, or ends the one there.", a.Name)
	}
	return string(a.Verb)
}

// deletion returns the flags of a deletion.
func (a action) deletion() string {
	flags := " --wait=false --cascade=" + strings.ToLower(a.Propagation)
	switch {
	case a.Grace == nil:
		return flags
	case *a.Grace == 0:
		return flags + " --force"
	}
	return fmt.Sprintf("%s --grace-period=%d", flags, *a.Grace)
}

// path is where the API serves a subresource.
func (a action) path() string {
	gvr := a.gvr()
	root := "/apis/" + gvr.Group
	if gvr.Group == "" {
		root = "/api"
	}
	return fmt.Sprintf("%s/%s/namespaces/{NS}/%s/%s/%s", root, gvr.Version, gvr.Resource, a.Name, a.Subresource)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// script prints actions for a shell.
func script(actions []action) string {
	var b strings.Builder
	for _, a := range actions {
		if a.After >= 10*time.Millisecond {
			fmt.Fprintf(&b, "sleep %.2f\n", a.After.Seconds())
		}
		fmt.Fprintln(&b, a)
	}
	return b.String()
}

// encode makes JSON of what came from JSON.
func encode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "null"
	}
	return string(data)
}
