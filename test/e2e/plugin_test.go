// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// plugin runs bin/kubectl-trainjob against the specs' cluster and gives what it printed and its exit code.
func plugin(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	return runBinary(ctx, "", "kubectl-trainjob", args...)
}

// said runs the plugin where it has nothing to complain of, and gives what it printed.
func said(ctx context.Context, g Gomega, args ...string) string {
	stdout, stderr, code := plugin(ctx, args...)
	g.Expect(code).To(BeZero(), stderr)
	return stdout
}

func printed[T any](ctx context.Context, g Gomega, args ...string) T {
	var read T
	g.Expect(json.Unmarshal([]byte(said(ctx, g, append(args, "-o", "json")...)), &read)).To(Succeed())
	return read
}

// complaint runs the plugin where it ends with an exit code, and returns what it complains of.
func complaint(ctx context.Context, code int, args ...string) string {
	stdout, stderr, got := plugin(ctx, args...)
	Expect(got).To(Equal(code), stdout+stderr)
	return stderr
}

// startPlugin starts kubectl trainjob, which goes on until the spec is over.
func startPlugin(ctx context.Context, args ...string) *gexec.Session {
	return terminal().Start(terminal().Command(ctx, "kubectl-trainjob", args...))
}

func kubectl(ctx context.Context, stdin string, args ...string) string {
	stdout, stderr, code := runBinary(ctx, stdin, "kubectl", args...)
	Expect(code).To(BeZero(), "kubectl %s: %s", strings.Join(args, " "), stderr)
	return stdout
}

// runShell runs a block of shell commands as a reader of the docs would.
func runShell(ctx context.Context, block string) (stdout, stderr string, code int) {
	return terminal().Run(terminal().Shell(ctx, block), "")
}

// shell runs blocks that succeed.
func shell(ctx context.Context, blocks ...string) {
	for _, block := range blocks {
		_, stderr, code := runShell(ctx, block)
		Expect(code).To(BeZero(), "%s\n%s", block, stderr)
	}
}

func runBinary(ctx context.Context, stdin, name string, args ...string) (stdout, stderr string, code int) {
	return terminal().Run(terminal().Command(ctx, name, args...), stdin)
}

func terminal() specs.Terminal { return specs.Terminal{Kubeconfig: cluster.Kubeconfig} }

// runsPage runs the blocks of a page, the plugin's commands as a user; empty: as an admin. The last one cleans up.
func runsPage(ctx context.Context, page, user string) {
	blocks := docsCommands(page)
	last := len(blocks) - 1
	DeferCleanup(cleansUp, blocks[last])
	for _, block := range blocks[:last] {
		shell(ctx, asUser(user, block))
	}
}

// cleansUp runs the last block of a page, and waits until the garbage collector has done its part: Trainer 2.3 fails a TrainJob
// for which it finds the snapshot of a former one of its name. What the page leaves to its spec has one still.
func cleansUp(ctx context.Context, block string) {
	shell(ctx, block)
	Eventually(ctx, func(g Gomega) []string {
		all := world.All(ctx, g, cluster.Client, &corev1.ConfigMapList{}, client.InNamespace("jobs"))
		var snapshots []string
		for i := range all.Items {
			name, is := strings.CutSuffix(all.Items[i].Name, "-runtime-snapshot")
			if is && apierrors.IsNotFound(cluster.Client.Get(ctx, client.ObjectKey{Namespace: "jobs", Name: name}, &trainer.TrainJob{})) {
				snapshots = append(snapshots, all.Items[i].Name)
			}
		}
		return snapshots
	}).Should(BeEmpty())
}

// asUser has the plugin of a block act as a user, beside what kubectl does there as an admin.
func asUser(user, block string) string {
	if user == "" {
		return block
	}
	return fmt.Sprintf("kubectl() {\n  if [ \"$1\" = trainjob ]; then set -- trainjob --as %s \"${@:2}\"; fi\n  command kubectl \"$@\"\n}\n%s", user, block)
}

// pageUser returns a user with the two bindings of docs/rights.md, and no others, until the spec is over.
func pageUser(ctx context.Context, namespace string) string {
	const user = "page-user"
	for _, binding := range []client.Object{kit.RoleBinding(namespace, "kueue-trainer-user", user), seesQueues(user)} {
		Expect(cluster.Client.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(cluster.Client.Delete(ctx, binding))).To(Succeed())
		})
	}
	eventuallyMay(ctx, user, namespace)
	return user
}

// seesQueues binds a user to the ClusterRole that docs/rights.md binds for the cluster.
func seesQueues(user string) *rbacv1.ClusterRoleBinding {
	const role = "kueue-trainer-queues-viewer"
	return kit.ClusterRoleBinding(role+"-"+user, role, kit.User(user))
}

// eventuallyMay waits until the API server has taken note of a user's bindings.
func eventuallyMay(ctx context.Context, user, namespace string) {
	Eventually(ctx, as(user).List).WithArguments(ctx, &kueue.WorkloadList{}, client.InNamespace(namespace)).Should(Succeed())
}

func docsCommands(page string) []string {
	return expect.Each(docsSteps(page), func(step pages.Step) string { return step.Commands })
}

// docsSteps returns the sh blocks of a page, or of one of its sections, in their order.
func docsSteps(page string) []pages.Step {
	steps := pages.Steps(docsText(page))
	Expect(steps).NotTo(BeEmpty(), "%s has no sh block", page)
	return steps
}

// docsText returns the text of a page below the repository's root; of PAGE#ANCHOR that of the section.
func docsText(page string) string {
	path, anchor, isSection := strings.Cut(page, "#")
	content := must(os.ReadFile(filepath.Join(specs.Root(), path)))
	if !isSection {
		return string(content)
	}
	section := pages.Section(string(content), anchor)
	Expect(section).NotTo(BeEmpty(), "%s has no such section", page)
	return section
}
