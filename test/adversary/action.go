// SPDX-License-Identifier: Apache-2.0

// Package adversary has tenants try whatever the API lets them do to queued TrainJobs, at random, and
// judges what comes of it: whether pods stay within the quota that is charged for them, and whether
// the quota is there for others when it is their turn.
package adversary

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	mergepatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

type verb string

// The verbs of the API, and what happens in the life of jobs without the tenant.
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
	Back        string `json:"back,omitempty"`
	Propagation string `json:"propagation,omitempty"`
	// Grace is the grace period of deletions in seconds; nil is what the object has.
	Grace *int64 `json:"grace,omitempty"`
}

func (a action) gvr() schema.GroupVersionResource {
	gvr, _ := schema.ParseResourceArg(a.Resource)
	return ptr.Deref(gvr, schema.GroupVersionResource{})
}

var patchTypes = map[verb]types.PatchType{
	merge: types.MergePatchType, jsonPatch: types.JSONPatchType, apply: types.ApplyPatchType, applyForce: types.ApplyPatchType,
}

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
		// An update sends what a merge patch makes of the object.
		kind := strings.Replace(string(a.Verb), string(update), string(merge), 1)
		return fmt.Sprintf(as+"patch %s %s%s --type %s -p %s", a.Resource, a.Name, sub, kind, "'"+strings.ReplaceAll(a.Body, "'", `'\''`)+"'")
	case apply, applyForce:
		return fmt.Sprintf(as+"apply --server-side --field-manager tenant --force-conflicts=%t%s -f - <<'EOF'\n%s\nEOF", a.Verb == applyForce, sub, a.Body)
	case remove, deleteCollection:
		return fmt.Sprintf(as+"delete %s %s%s", a.Resource, cmp.Or(a.Name, "--all"), a.deletion())
	case finish:
		return fmt.Sprintf("kubectl -n {NS} annotate --overwrite pod -l jobset.sigs.k8s.io/jobset-name=%s localcluster/finish=%s", a.Name, a.Body)
	case neighbour:
		return fmt.Sprintf("# The neighbour starts a TrainJob of priority %s in {NS}-neighbour, or ends the one there.", a.Name)
	}
	return string(a.Verb)
}

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

func (a action) path() string {
	gvr := a.gvr()
	root := "/apis/" + gvr.Group
	if gvr.Group == "" {
		root = "/api"
	}
	return fmt.Sprintf("%s/%s/namespaces/{NS}/%s/%s/%s", root, gvr.Version, gvr.Resource, a.Name, a.Subresource)
}

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

func encode(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return "null"
	}
	return string(data)
}

// do carries an action out. That the API server refuses it is an answer like another.
func (w *walk) do(ctx context.Context, a action) {
	select {
	case <-time.After(a.After):
	case <-ctx.Done():
		return
	}
	live, symbolic := w.seen(), a
	a.Name, a.Body = w.concrete(a.Name, live), w.concrete(a.Body, live)
	err := w.request(ctx, a)
	w.note(a, fmt.Sprint(apierrors.ReasonForError(err), " ", err))
	if a.Back != "" && err == nil {
		w.beside++
		go w.repeat(symbolic)
	}
}

func (w *walk) note(a action, answer string) {
	fmt.Fprintf(w.log, "%s %s %s %s %.300s: %.300s\n", time.Now().Format("15:04:05.000"), a.Verb, a.Resource, a.Name, a.Body, answer)
}

// pause is between the requests of what is repeated: many more of them, by several tenants, and two cores do nothing else.
const pause = 25 * time.Millisecond

// repeat takes a patch back and makes it again, in turn, of whatever has the name by then.
func (w *walk) repeat(a action) {
	bodies := []string{a.Back, a.Body}
	answers := map[string]int{}
	n := 0
	wait.UntilWithContext(w.repeated, func(ctx context.Context) {
		live := w.seen()
		next := a
		next.Name, next.Body = w.concrete(a.Name, live), w.concrete(bodies[n%2], live)
		answers[string(apierrors.ReasonForError(w.request(ctx, next)))]++
		n++
	}, pause)
	w.note(a, fmt.Sprintf("repeated %d times: %v", n, answers))
}

func (w *walk) request(ctx context.Context, a action) error {
	w.sent.Add(1)
	on := w.asTenant.Resource(a.gvr()).Namespace(w.Namespace)
	subresources := strings.Fields(a.Subresource)
	switch a.Verb {
	case finish:
		return world.EndPods(ctx, w, w.Pods(ctx, a.Name), a.Body)
	case neighbour:
		return w.toggle(ctx, a.Name)
	case create:
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(a.Body), &obj.Object); err != nil {
			return err
		}
		obj.SetNamespace(w.Namespace)
		_, err := on.Create(ctx, obj, metav1.CreateOptions{}, subresources...)
		return err
	case update:
		return w.update(ctx, on, a, subresources)
	case merge, jsonPatch, apply, applyForce:
		options, kind := metav1.PatchOptions{}, patchTypes[a.Verb]
		if kind == types.ApplyPatchType {
			options.FieldManager, options.Force = "tenant", new(a.Verb == applyForce)
		}
		_, err := on.Patch(ctx, a.Name, kind, []byte(a.Body), options, subresources...)
		return err
	}
	propagation := metav1.DeletionPropagation(a.Propagation)
	options := metav1.DeleteOptions{PropagationPolicy: &propagation, GracePeriodSeconds: a.Grace}
	if a.Verb == deleteCollection {
		return on.DeleteCollection(ctx, options, metav1.ListOptions{})
	}
	return on.Delete(ctx, a.Name, options, subresources...)
}

func (w *walk) update(ctx context.Context, on dynamic.ResourceInterface, a action, subresources []string) error {
	return attempt.To(func() {
		obj := attempt.Must(on.Get(ctx, a.Name, metav1.GetOptions{}))
		attempt.Succeed(obj.UnmarshalJSON(attempt.Must(mergepatch.MergePatch([]byte(encode(obj.Object)), []byte(a.Body)))))
		attempt.Must(on.Update(ctx, obj, metav1.UpdateOptions{}, subresources...))
	})
}

// toggle starts the neighbour's TrainJob, or deletes the one that is there.
func (w *walk) toggle(ctx context.Context, priority string) error {
	job := w.neighbour.Job("toggled").GPUs(quota)
	if priority != "" {
		job.Priority(priority)
	}
	err := w.Create(ctx, job.Obj())
	if apierrors.IsAlreadyExists(err) {
		return w.Delete(ctx, job.Obj())
	}
	return err
}

// symbols stand for what differs from walk to walk: "{NS}", "{SUFFIX}", "{TENANT}",
// "{UID jobs/first-node-0}" and "{NAME pods/first-node-0-0-}".
type symbols struct {
	namespace, suffix, tenant string
}

// generated is the end of a name that somebody made up.
var generated = regexp.MustCompile(`-[a-z0-9]{5}$`)

// stem returns the part of an object's name that every walk has in common, and whether it is a part only.
func stem(obj *unstructured.Unstructured) (string, bool) {
	name := obj.GetName()
	if obj.GetGenerateName() == "" && obj.GetKind() != "Workload" || !generated.MatchString(name) {
		return name, false
	}
	return name[:len(name)-5], true
}

func plural(obj *unstructured.Unstructured) string { return strings.ToLower(obj.GetKind()) + "s" }

func ofResource(live []*unstructured.Unstructured, resource string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(live), func(obj *unstructured.Unstructured) bool { return plural(obj) != resource })
}

// abstract replaces what a walk made up by symbols.
func (s symbols) abstract(text string, live []*unstructured.Unstructured) string {
	var pairs []string
	for _, obj := range live {
		short, part := stem(obj)
		pairs = append(pairs, string(obj.GetUID()), fmt.Sprintf("{UID %s/%s}", plural(obj), short))
		if part {
			pairs = append(pairs, obj.GetName(), fmt.Sprintf("{NAME %s/%s}", plural(obj), short))
		}
	}
	text = strings.NewReplacer(pairs...).Replace(text)
	return strings.NewReplacer(s.tenant, "{TENANT}", s.namespace, "{NS}", s.suffix, "{SUFFIX}").Replace(text)
}

var symbol = regexp.MustCompile(`\{(UID|NAME) ([a-z]+)/([^}]*)\}`)

// concrete puts in what symbols stand for now, of several the one that was made first. What there is
// nothing for stays, and the API server says that it is not there.
func (s symbols) concrete(text string, live []*unstructured.Unstructured) string {
	text = strings.NewReplacer("{TENANT}", s.tenant, "{NS}", s.namespace, "{SUFFIX}", s.suffix).Replace(text)
	return symbol.ReplaceAllStringFunc(text, func(found string) string {
		parts := symbol.FindStringSubmatch(found)
		of := slices.DeleteFunc(ofResource(live, parts[2]), func(obj *unstructured.Unstructured) bool {
			short, _ := stem(obj)
			return short != parts[3]
		})
		if len(of) == 0 {
			return found
		}
		first := slices.MinFunc(of, func(a, b *unstructured.Unstructured) int {
			return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
		})
		if parts[1] == "UID" {
			return string(first.GetUID())
		}
		return first.GetName()
	})
}
