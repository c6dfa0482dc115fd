// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// installation is a cluster with the manager, a runtime and some objects. Dry runs of TrainJobs
// come back as webhook leaves them.
func installation(t *testing.T, webhook func(*trainjob.TrainJob) error, objects ...client.Object) client.Client {
	t.Helper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: cluster.ManagerDeployment}}
	deployment.Spec.Replicas = ptr.To[int32](2)
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "manager"}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: config.Namespace}}
	objects = append(objects, kit.CRD(trainjob.CRDName, trainjob.GVK.Version, "runtimePatches"), namespace, deployment,
		&trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}})
	return kit.Fake(cluster.Scheme(), append(objects, enforcing()...)...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			return webhook(obj.(*trainjob.TrainJob))
		},
	}).Build()
}

// enforcing are the manager's objects that have the API server refuse or change what others write.
func enforcing() []client.Object {
	return []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Validating}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policies.Names()[0]}},
	}
}

// silent is a webhook that changes nothing.
func silent(*trainjob.TrainJob) error { return nil }

// kueueConfigMap is Kueue's configuration with these frameworks.
func kueueConfigMap(frameworks string) *corev1.ConfigMap {
	return kit.ConfigMap("kueue-system", "kueue", "config", "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: ["+frameworks+"]}")
}

func uninstalling(c client.Client, out io.Writer) *uninstall {
	return &uninstall{client: c, impatient: c, out: out, namespace: config.Namespace,
		kueueConfig: kueueconfig.ConfigMap{Namespace: "kueue-system", Name: "kueue", Key: "config"}}
}

func trainJob(name string, change func(*trainjob.TrainJob)) *trainjob.TrainJob {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	job.Spec.Suspend = ptr.To(true)
	change(job)
	return job
}

var ours = patch.Of(trainjob.Trainer22)

// placed is a job that waits, with an entry of the manager.
func placed(t *testing.T, name string, placement patch.Placement) *trainjob.TrainJob {
	t.Helper()
	return trainJob(name, func(job *trainjob.TrainJob) { ours.Set(&job.Spec, []patch.Placement{placement}) })
}

func workloadOf(kind, job string) *kueue.Workload {
	owner := metav1.OwnerReference{APIVersion: trainer.GroupVersion.String(), Kind: kind, Name: job, UID: types.UID(job), Controller: ptr.To(true)}
	if kind != trainer.TrainJobKind {
		owner.APIVersion = "batch/v1"
	}
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: job, UID: types.UID("workload-" + job), OwnerReferences: []metav1.OwnerReference{owner},
		Finalizers: []string{kueue.ResourceInUseFinalizerName, placeholder.Finalizer, "example.com/mine"},
	}}
}

// What becomes of a Workload.
const (
	alone   = "is left alone"
	kept    = "keeps Kueue's finalizer"
	freed   = "loses Kueue's finalizer"
	deleted = "is deleted"
)

func fate(t *testing.T, c client.Client, name string) string {
	t.Helper()
	var wl kueue.Workload
	err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &wl)
	switch {
	case err == nil && !wl.DeletionTimestamp.IsZero():
		return deleted
	case err == nil && len(wl.Finalizers) == 3:
		return alone
	case err == nil && slices.Equal(wl.Finalizers, []string{kueue.ResourceInUseFinalizerName, "example.com/mine"}):
		return kept
	case err == nil && slices.Equal(wl.Finalizers, []string{"example.com/mine"}):
		return freed
	default:
		t.Fatalf("Workload %s: %v, finalizers %v", name, err, wl.Finalizers)
		return ""
	}
}

func TestWorkloadsAreFreed(t *testing.T) {
	waits := func(*trainjob.TrainJob) {}
	runs := func(job *trainjob.TrainJob) { job.Spec.Suspend = ptr.To(false) }
	finished := func(job *trainjob.TrainJob) {
		job.Spec.Suspend = ptr.To(false)
		job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue}}
	}
	type row struct {
		job      func(*trainjob.TrainJob)
		workload func(*kueue.Workload)
		kind     string
		// inTree suspends dry runs; configured is what Kueue's configuration has.
		inTree     bool
		configured string
		want       string
	}
	expect.Rows(t, map[string]row{
		"of a TrainJob that waits":                                                {job: waits, want: deleted},
		"of a TrainJob that runs":                                                 {job: runs, want: freed},
		"of a finished TrainJob":                                                  {job: finished, workload: kit.Is(kueue.WorkloadFinished, ""), want: freed},
		"of a finished TrainJob, which nobody finishes now":                       {job: finished, workload: kit.Admitted, want: deleted},
		"of a TrainJob that is gone":                                              {want: freed},
		"of a TrainJob that the in-tree one has":                                  {job: waits, inTree: true, want: kept},
		"of a TrainJob that the in-tree one has, whose webhook is not asked here": {job: waits, configured: "trainer.kubeflow.org/trainjob", want: kept},
		"of a Job": {kind: "Job", want: kept},
	}, func(t *testing.T, tc row) {
		kind := trainer.TrainJobKind
		if tc.kind != "" {
			kind = tc.kind
		}
		objects := []client.Object{kit.With(workloadOf(kind, "job"), tc.workload), kueueConfigMap("batch/job, " + cmp.Or(tc.configured, "pod"))}
		if tc.job != nil {
			objects = append(objects, trainJob("job", tc.job))
		}
		c := installation(t, func(job *trainjob.TrainJob) error {
			job.Spec.Suspend = ptr.To(tc.inTree)
			return nil
		}, objects...)
		expect.NoError(t, uninstalling(c, io.Discard).run(t.Context()))
		expect.Same(t, "Unexpected fate of the Workload", tc.want, fate(t, c, "job"))
	})
}

// Kueue writes Workloads all the time. A write that fails otherwise is tried once more, too.
func TestAWorkloadThatCannotBeWrittenAtOnceIsFreed(t *testing.T) {
	expect.Rows(t, map[string]error{
		"somebody was faster": nil,
		"nobody answers":      apierrors.NewTooManyRequests("later", 1),
	}, func(t *testing.T, refusal error) {
		wl := workloadOf(trainer.TrainJobKind, "job")
		wl.Finalizers = []string{kueue.ResourceInUseFinalizerName, "example.com/mine"}
		stored := installation(t, silent, wl, trainJob("job", func(*trainjob.TrainJob) {}), kueueConfigMap("batch/job"))
		var first sync.Once
		c := kit.Writes(stored.(client.WithWatch), func(w kit.Write) (err error) {
			if wl, is := w.Object.(*kueue.Workload); is && w.Verb == "patch" {
				first.Do(func() {
					if err = refusal; err == nil {
						expect.NoError(t, stored.Patch(t.Context(), wl.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))))
					}
				})
			}
			return err
		})
		expect.NoError(t, uninstalling(c, io.Discard).run(t.Context()))
		expect.Same(t, "Unexpected fate of the Workload", deleted, fate(t, c, "job"))
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(wl), wl))
		expect.Same(t, "Unexpected finalizers", []string{"example.com/mine"}, wl.Finalizers)
	})
}

func TestQuotaOfPodsThatMultiKueueLeftIsFreed(t *testing.T) {
	rest := workloadOf("ClusterQueue", "gpus")
	rest.Labels, rest.Finalizers = map[string]string{placeholder.Label: "llm"}, nil
	c := installation(t, silent, rest, workloadOf("Job", "job"), kueueConfigMap("batch/job"))
	var out strings.Builder
	expect.NoError(t, uninstalling(c, &out).run(t.Context()))
	err := c.Get(t.Context(), client.ObjectKeyFromObject(rest), rest)
	expect.That(t, apierrors.IsNotFound(err), "The Workload of the pods that are left is there: %v", err)
	expect.Same(t, "Unexpected fate of the Workload", kept, fate(t, c, "job"))
	told := "workload ns/gpus: deleted; pods of TrainJob llm may be left"
	expect.That(t, strings.Contains(out.String(), told), "Told %q, want %q in it", out.String(), told)
}

func TestTheManagerStopsAndNobodyAsksIt(t *testing.T) {
	placement := patch.Freed("node")
	placement.NodeSelector = map[string]string{"pool": "h100"}
	waits, evicted := placed(t, "waits", patch.Gated("node")), placed(t, "evicted", placement)
	c := installation(t, silent, waits, evicted, kueueConfigMap("batch/job"))
	out := &bytes.Buffer{}
	for range 2 { // the second time there is nothing left to do
		expect.NoError(t, uninstalling(c, out).run(t.Context()))
	}
	var deployment appsv1.Deployment
	expect.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: config.Namespace, Name: cluster.ManagerDeployment}, &deployment))
	expect.Same(t, "Unexpected replicas", ptr.To[int32](0), deployment.Spec.Replicas)
	for _, obj := range enforcing() {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		expect.That(t, apierrors.IsNotFound(err), "%T %s is still there (%v)", obj, obj.GetName(), err)
	}
	expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(waits), waits))
	expect.Same(t, "Unexpected gate of a TrainJob that waits", false, ours.HoldsGate(&waits.Spec))
	expect.That(t, strings.Contains(out.String(), "ns/waits: gate removed"), "People are not told of the TrainJob:\n%s", out)
	expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(evicted), evicted))
	expect.That(t, !strings.Contains(expect.JSON(t, evicted.Spec), "h100"), "A TrainJob that waits keeps its placement: %v", evicted.Spec)
}

func TestAPodThatDoesNotEndIsNamed(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: "manager-1", Labels: map[string]string{"app": "manager"}}}
	evicted := pod.DeepCopy()
	evicted.Name, evicted.Status.Phase = "manager-0", corev1.PodFailed
	c := installation(t, silent, evicted, pod, kueueConfigMap("batch/job"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	expect.Says(t, uninstalling(c, io.Discard).run(ctx), "manager-1")
	var webhook admissionregistrationv1.MutatingWebhookConfiguration
	err := c.Get(t.Context(), client.ObjectKey{Name: webhookconfig.Installed.Mutating}, &webhook)
	expect.That(t, err == nil, "The webhooks of a manager that runs are gone: %v", err)
}

func TestAnUnansweredQuestionFreesNothing(t *testing.T) {
	c := installation(t, func(*trainjob.TrainJob) error { return kit.Forbidden("trainjobs") },
		trainJob("job", func(*trainjob.TrainJob) {}), workloadOf(trainer.TrainJobKind, "job"), kueueConfigMap("batch/job"))
	err := uninstalling(c, io.Discard).run(t.Context())
	expect.That(t, apierrors.IsForbidden(err), "run returned %v, want the refusal", err)
	expect.Same(t, "Unexpected fate of the Workload", alone, fate(t, c, "job"))
}

func TestTheManagerOfAnotherNamespaceIsNamed(t *testing.T) {
	webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookconfig.Installed.Mutating}}
	c := installation(t, silent, kueueConfigMap("batch/job"))
	expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(webhooks), webhooks))
	webhooks.Webhooks = []admissionregistrationv1.MutatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "elsewhere"}}}}
	expect.NoError(t, c.Update(t.Context(), webhooks))
	expect.Says(t, uninstalling(c, io.Discard).run(t.Context()), "--manager-namespace=elsewhere")
	err := c.Get(t.Context(), client.ObjectKeyFromObject(webhooks), webhooks)
	expect.That(t, err == nil, "The webhooks of a manager that runs are gone: %v", err)
}

// withPods returns a TrainJob that was evicted a moment ago, its Workload, and a pod that runs on; one that somebody labels has no owner.
func withPods(name string, planted bool) []client.Object {
	job := trainJob(name, func(job *trainjob.TrainJob) { job.UID = types.UID(name) })
	labels := map[string]string{jobsetapi.JobSetNameKey: name}
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-js"), OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}}}
	child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name + "-node-0", UID: types.UID(name + "-child"), Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name + "-node-0-a", Labels: labels}}
	pod.Spec.NodeName, pod.Status.Phase = "gpu-0", corev1.PodRunning
	if !planted {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(child, batchv1.SchemeGroupVersion.WithKind("Job"))}
	}
	return []client.Object{pod, js, child, job, workloadOf(trainer.TrainJobKind, name)}
}

// JobSet only ever adds to a Job: what is left there would keep its pods from being scheduled.
func TestChildJobsLoseTheirPlacement(t *testing.T) {
	former := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{kueue.WorkloadAnnotation: "wl"}}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"pool": "h100"}, SchedulingGates: []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}}}
	type row struct {
		job  *trainjob.TrainJob
		late bool
		// lost has Trainer wait for an entry: it takes nothing out of the JobSet for one that is gone.
		lost bool
		want corev1.PodTemplateSpec
	}
	placement := patch.Placement{Name: "node", NodeSelector: former.Spec.NodeSelector, SchedulingGates: former.Spec.SchedulingGates}
	free := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: patch.Freed("node").Labels}}
	expect.Rows(t, map[string]row{
		"of a job that ran":                           {job: placed(t, "job", placement), want: free},
		"when Trainer has brought that to the JobSet": {job: placed(t, "job", placement), late: true, want: free},
		"whose entry was lost on the way":             {job: trainJob("job", func(*trainjob.TrainJob) {}), lost: true, want: free},
		"of a job that was never queued":              {job: trainJob("job", func(*trainjob.TrainJob) {}), want: former},
	}, func(t *testing.T, tc row) {
		made := withPods("job", false)
		js, child := made[1].(*jobsetapi.JobSet), made[2].(*batchv1.Job)
		child.Labels[jobsetapi.ReplicatedJobNameKey] = "node"
		child.Spec.Suspend, child.Spec.Template = ptr.To(true), former
		js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node"}}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template = former
		if tc.lost {
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Labels = map[string]string{kueueconstants.PodSetLabel: "node"}
		}
		c, asked := installation(t, silent, js, child, tc.job, kueueConfigMap("batch/job")), 0
		trainers := kit.Gets(c, func(obj client.Object, _ client.ObjectKey) error {
			if _, is := obj.(*jobsetapi.JobSet); is {
				asked++
				if tc.lost {
					expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(tc.job), tc.job))
				}
				if (asked > 1 || !tc.late) && (!tc.lost || ours.Has(&tc.job.Spec)) {
					js.Spec.ReplicatedJobs[0].Template.Spec.Template = free
					expect.NoError(t, c.Update(t.Context(), js))
				}
			}
			return nil
		})
		expect.NoError(t, uninstalling(trainers, io.Discard).run(t.Context()))
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(child), child))
		expect.Same(t, "Unexpected pods", tc.want, child.Spec.Template, cmpopts.EquateEmpty())
	})
}

func TestAWorkloadWaitsForThePodsOfItsJob(t *testing.T) {
	type row struct {
		planted    bool
		fate, says string
	}
	expect.Rows(t, map[string]row{
		"its own": {fate: kept, says: "job-node-0-a"}, "one that somebody labels": {planted: true, fate: "is deleted"},
	}, func(t *testing.T, tc row) {
		c := installation(t, silent, append(withPods("job", tc.planted), kueueConfigMap("batch/job"))...)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		expect.Says(t, uninstalling(c, io.Discard).run(ctx), tc.says)
		expect.Same(t, "Unexpected fate of the Workload", tc.fate, fate(t, c, "job"))
	})
}

// The chart's hook has 280 seconds for all.
func TestManyJobsWhosePodsStayTakeNoLongerThanOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := placed(t, "waits", patch.Gated("node"))
		c := installation(t, silent, slices.Concat(withPods("a", false), withPods("b", false), withPods("c", false), []client.Object{kueueConfigMap("batch/job"), waits})...)
		began := time.Now()
		err := uninstalling(c, io.Discard).run(t.Context())
		expect.That(t, time.Since(began) < 2*goneWithin, "It took %s", time.Since(began))
		for _, pod := range []string{"a-node-0-a", "b-node-0-a", "c-node-0-a"} {
			expect.Says(t, err, pod)
		}
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(waits), waits))
		expect.Same(t, "Unexpected gate of a TrainJob that waits", false, ours.HoldsGate(&waits.Spec))
	})
}

// Each takes its objects with it, and Trainer and JobSet leave the Workloads.
func TestAClusterWhoseTrainerOrJobSetIsGoneIsFreed(t *testing.T) {
	type row struct {
		gone func(any) bool
		crd  client.Object
		// want is of the Workload; empty where Kueue is gone.
		want string
	}
	expect.Rows(t, map[string]row{
		"Trainer": {crd: kit.CRD(trainjob.CRDName, ""), want: freed, gone: func(object any) bool { _, is := object.(*trainjob.List); return is }},
		"JobSet":  {want: deleted, gone: func(object any) bool { _, is := object.(*jobsetapi.JobSet); return is }},
		"Kueue":   {gone: func(object any) bool { _, is := object.(*kueue.WorkloadList); return is }},
	}, func(t *testing.T, tc row) {
		var objects []client.Object
		if tc.want != "" {
			objects = append(objects, workloadOf(trainer.TrainJobKind, "job"), kueueConfigMap("batch/job"))
		}
		waits := placed(t, "job", patch.Gated("node"))
		if tc.crd == nil {
			objects = append(objects, waits)
		}
		c := installation(t, silent, objects...)
		if tc.crd != nil {
			expect.NoError(t, c.Delete(t.Context(), tc.crd))
		}
		gone := interceptor.NewClient(c.(client.WithWatch), kit.Refusing(func(object any, _ client.ObjectKey) error {
			if tc.gone(object) {
				return &meta.NoKindMatchError{}
			}
			return nil
		}))
		expect.NoError(t, uninstalling(gone, io.Discard).run(t.Context()))
		if tc.want != "" {
			expect.Same(t, "Unexpected fate of the Workload", tc.want, fate(t, c, "job"))
		}
		if tc.crd == nil {
			expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(waits), waits))
			expect.Same(t, "Unexpected gate of a TrainJob that waits", false, ours.HoldsGate(&waits.Spec))
		}
	})
}

// Its namespace can go before its kinds do.
func TestKueueIsGoneWhereNobodyIsAskedForIt(t *testing.T) {
	expect.Rows(t, map[string]bool{"gone": false, "elsewhere": true}, func(t *testing.T, there bool) {
		waits := placed(t, "waits", patch.Gated("node"))
		webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "its-own-name"}}
		webhooks.Webhooks = []admissionregistrationv1.MutatingWebhook{{Rules: []admissionregistrationv1.RuleWithOperations{{
			Rule: admissionregistrationv1.Rule{APIGroups: []string{kueue.SchemeGroupVersion.Group}, Resources: []string{"clusterqueues"}}}}}}
		objects := []client.Object{waits}
		if there {
			objects = append(objects, webhooks)
		}
		c := installation(t, silent, objects...)
		err := uninstalling(c, io.Discard).run(t.Context())
		if there {
			expect.Says(t, err, "name another with --kueue-namespace")
		} else {
			expect.NoError(t, err)
		}
		expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(waits), waits))
		expect.Same(t, "Unexpected gate of a TrainJob that waits", there, ours.HoldsGate(&waits.Spec))
	})
}

func TestNothingIsChangedWhereItWouldNotComeToAnEnd(t *testing.T) {
	type row struct {
		// refuses is what may not be written.
		refuses func(kit.Write) bool
		says    string
	}
	expect.Rows(t, map[string]row{
		// Trainer refuses every change of a TrainJob whose runtime is gone.
		"a TrainJob cannot be changed": {says: "TrainJob ns/waits cannot be changed", refuses: func(w kit.Write) bool {
			_, is := w.Object.(*trainjob.TrainJob)
			return is && w.Verb == "patch"
		}},
		"the webhooks cannot be deleted": {says: "deleting", refuses: func(w kit.Write) bool {
			_, is := w.Object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
			return is && w.Verb == "delete"
		}},
	}, func(t *testing.T, tc row) {
		c := installation(t, silent, placed(t, "waits", patch.Gated("node")), kueueConfigMap("batch/job"))
		refusing := kit.Writes(c, func(w kit.Write) error {
			if tc.refuses(w) {
				return kit.Forbidden("it")
			}
			return nil
		})
		var out strings.Builder
		err := uninstalling(refusing, &out).run(t.Context())
		expect.Says(t, err, tc.says)
		expect.Says(t, err, "nothing was changed")
		expect.Same(t, "Unexpected output", "", out.String())
		for _, obj := range enforcing() {
			expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
		}
		var deployment appsv1.Deployment
		expect.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: config.Namespace, Name: cluster.ManagerDeployment}, &deployment))
		expect.Same(t, "Unexpected replicas", ptr.To[int32](2), deployment.Spec.Replicas)
	})
}
