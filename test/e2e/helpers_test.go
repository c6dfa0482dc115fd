// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/ledger"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// specTimeout ends a spec that hangs; none is made to need it.
const specTimeout = 3 * time.Minute

func must[T any](value T, err error) T { return specs.Must(value, err) }

// raw returns a list of a TrainJob's spec as the API server stores it, without Go types.
func (w *site) raw(ctx context.Context, job, field string) []any {
	list, _, err := unstructured.NestedSlice(get(ctx, w, world.NewTrainJob(), job).Object, "spec", field)
	Expect(err).NotTo(HaveOccurred())
	return list
}

func jsonOf(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}

// site is what one spec works in: a world whose pods are compared with what their jobs are charged for.
type site struct {
	*world.World

	ledger *ledger.Ledger
	// outside says why its pods run without quota, where they do so on purpose.
	outside string
}

// newWorld makes a namespace, and takes everything away after the spec; a spec that failed prints it first.
func newWorld(ctx context.Context) *site {
	w := &site{World: world.New(ctx, Default, GinkgoWriter, cluster, "e2e", world.NewSuffix())}
	w.ledger = must(ledger.Watch(ctx, must(dynamic.NewForConfig(cluster.Config)), w.Namespace))
	DeferCleanup(w.leave)
	return w
}

func newPools(ctx context.Context, h100GPUs, a100GPUs string, tolerations ...corev1.Toleration) *site {
	w := newWorld(ctx)
	w.Pools(ctx, h100GPUs, a100GPUs, tolerations...)
	return w
}

// newRunning makes a world with 8 H100s, all of which a TrainJob has, whose pod may take some time to end.
func newRunning(ctx context.Context, job string, endsAfter ...string) (*site, []corev1.Pod) {
	w := newPools(ctx, "8", "0")
	builder := w.Job(job).GPUs("8")
	for _, delay := range endsAfter {
		builder.EndsAfter(delay)
	}
	return w, w.MakeRunning(ctx, builder, 1, onH100)
}

// newRunningOf is the same with a runtime of the spec's own.
func newRunningOf(ctx context.Context, job string, changes ...kit.RuntimeChange) (w *site, runtime string) {
	w = newPools(ctx, "8", "0")
	runtime = w.MakeRuntime(ctx, "torch-distributed", changes...)
	w.MakeRunning(ctx, w.Job(job).Runtime(runtime).GPUs("8"), 1, onH100)
	return w, runtime
}

// makeOther makes LocalQueue "other" and its ClusterQueue, which has 8 A100s.
func (w *site) makeOther(ctx context.Context) {
	w.Make(ctx, kit.ClusterQueue(w.Name("other"), kit.Quota{Flavor: w.Name("a100"), GPUs: "8"}), kit.LocalQueue(w.Namespace, "other", w.Name("other")))
}

func (w *site) leave(ctx context.Context) {
	defer w.ledger.Close()
	problem := InterceptGomegaFailure(func() { w.audit(ctx) })
	if CurrentSpecReport().Failed() || problem != nil {
		w.Dump(ctx)
	}
	w.DeleteJobs(ctx)
	w.EventuallyNo(ctx, &trainer.TrainJobList{}, &kueue.WorkloadList{}, &corev1.PodList{})
	w.Unmake(ctx)
	Expect(problem).NotTo(HaveOccurred())
}

func get[T client.Object](ctx context.Context, w *site, obj T, name string) T {
	w.Read(ctx, obj, name)
	return obj
}

// Resources that specs record.
var (
	podResource      = corev1.SchemeGroupVersion.WithResource("pods")
	workloadResource = kueue.SchemeGroupVersion.WithResource("workloads")
	trainJobResource = trainer.GroupVersion.WithResource("trainjobs")
)

// record keeps every version of the spec's objects of some resources from now on.
func (w *site) record(ctx context.Context, resources ...schema.GroupVersionResource) *record.Recorder {
	kinds := expect.Each(resources, func(of schema.GroupVersionResource) record.Kind {
		return record.Kind{GroupVersionResource: of, Namespace: w.Namespace}
	})
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	return must(record.Start(watching, must(dynamic.NewForConfig(cluster.Config)), kinds, nil))
}

// eventuallyWhole waits until all that has happened is recorded, of which nothing may be missing.
func eventuallyWhole(ctx context.Context, recorder *record.Recorder) {
	Eventually(ctx, recorder.CaughtUp).Should(Succeed())
	Expect(recorder.Gaps()).To(BeEmpty(), "no version was missed")
}

func versionsOf[T any](recorder *record.Recorder) []*T {
	return expect.Each(recorder.Versions(), func(v record.Version) *T { return read[T](v.Object) })
}

// read reads a stored object in its type.
func read[T any](obj *unstructured.Unstructured) *T {
	into := new(T)
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into)).To(Succeed())
	return into
}

// runsOutside says why pods run without quota on purpose: what the ledger finds is reported, and fails nothing.
func (w *site) runsOutside(why string) { w.outside = why }

// audit fails the spec where its pods asked for more than their jobs were charged for.
func (w *site) audit(ctx context.Context) {
	Eventually(ctx, w.ledger.CaughtUp).Should(Succeed())
	result := must(w.ledger.Check())
	for _, v := range result.Tolerated {
		AddReportEntry("ledger, tolerated", v.String())
	}
	for _, v := range result.Violations {
		AddReportEntry("ledger", v.String())
	}
	if w.outside != "" || cluster.Integration != world.External {
		GinkgoWriter.Printf("ledger: %d violations, not held against the spec: %s\n", len(result.Violations), w.outside)
		return
	}
	Expect(result.Violations).To(BeEmpty(), "pods asked for more than their jobs were charged for")
}

func control(ctx context.Context, action string, components ...string) {
	for _, component := range components {
		Expect(cluster.Control(ctx, action, component, GinkgoWriter)).To(Succeed())
	}
}

// repair starts what is missing on a local control plane and installs its manifests again.
func repair(ctx context.Context) { Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed()) }

// handOver hands TrainJobs over to another integration while they run.
func handOver(ctx context.Context, integration string) {
	Expect(cluster.HandOver(ctx, integration, GinkgoWriter)).To(Succeed())
}

// logOf is the log of a component of a local control plane, or the audit log.
func logOf(component string) string {
	return filepath.Join(cluster.LocalDir(), "logs", component+".log")
}

// notWrites are what people are told, and questions that have to be asked by a create.
var notWrites = []string{"events", "selfsubjectreviews", "tokenreviews", "subjectaccessreviews"}

// managerWrites tells what the manager writes from now on, or tries to, as "verb resource name code", but for dry runs.
func managerWrites() func() []string {
	audit := must(logs.OpenAudit(logOf("audit")))
	var seen []string
	note := func(e *logs.Event) {
		of := e.ObjectRef
		if e.User.Username == "kueue-trainer" && !e.DryRun() && !slices.Contains([]string{"get", "list"}, e.Verb) && !slices.Contains(notWrites, of.Resource) {
			seen = append(seen, fmt.Sprint(e.Verb, " ", of.Resource, " ", of.Name, " ", e.ResponseStatus.Code))
		}
	}
	return func() []string {
		Expect(audit.Events(note)).To(Succeed())
		return slices.Clone(seen)
	}
}

// refuseManager has the API server refuse what the manager, and no user, writes into the spec's TrainJobs, until allow.
func (w *site) refuseManager(ctx context.Context) (allow func(context.Context)) {
	as := must(cluster.Impersonating("kueue-probe", "system:masters"))
	probe := kit.TrainJob(w.Namespace, "probe").Obj()
	probe.Spec.Suspend = new(true)
	Expect(w.Create(ctx, probe)).To(Succeed())
	// Kueue's name is in that of both managers, and Kueue itself writes no TrainJob.
	return w.enforce(ctx, w.policy("no-manager", []string{trainer.GroupVersion.Group}, []string{"trainjobs"},
		"!request.userInfo.username.contains('kueue')"), func(ctx context.Context) error {
		return as.Patch(ctx, probe.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/probe":"asked"}}}`)), client.DryRunAll)
	})
}

// policy is one of the spec's namespace for objects that are made or changed, of which an expression has to be true.
func (w *site) policy(name string, groups, resources []string, expression string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.Name(name)}}
	policy.Spec.FailurePolicy = new(admissionregistrationv1.Fail)
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources},
		}}},
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: expression, Message: "refused by the spec"}}
	return policy
}

// bound has the API server deny what a policy refuses.
func bound(policy *admissionregistrationv1.ValidatingAdmissionPolicy) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

// enforce has the API server deny by a policy, which asked runs into, until allow or the spec's end.
func (w *site) enforce(ctx context.Context, policy *admissionregistrationv1.ValidatingAdmissionPolicy, asked func(context.Context) error) (allow func(context.Context)) {
	binding := bound(policy)
	allow = func(ctx context.Context) {
		Expect(client.IgnoreNotFound(w.Delete(ctx, binding))).To(Succeed())
		Expect(client.IgnoreNotFound(w.Delete(ctx, policy))).To(Succeed())
		Eventually(ctx, asked).Should(Succeed())
	}
	DeferCleanup(allow)
	Expect(w.Create(ctx, policy)).To(Succeed())
	Expect(w.Create(ctx, binding)).To(Succeed())
	Eventually(ctx, asked).ShouldNot(Succeed())
	return allow
}
