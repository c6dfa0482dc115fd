// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const externalConfig = "integrations:\n  frameworks: [batch/job]\n  externalFrameworks: [TrainJob.v1alpha1.trainer.kubeflow.org]\n"

// inTheFleet makes a healthy cluster the manager cluster of workers east and west. TrainJob jobs/llm
// may go to west, which has all that it takes; nothing leads to east.
func inTheFleet(f *Facts) {
	f.CRDs = append([]apiextensionsv1.CustomResourceDefinition{trainer23()}, f.CRDs[:2]...)
	f.kueueConfig(externalConfig + "multiKueue:\n  externalFrameworks:\n  - name: TrainJob.v1alpha1.trainer.kubeflow.org\n")
	for _, name := range []string{"east", "west"} {
		f.Workers = append(f.Workers, Worker{Name: name, Access: &Access{
			Secret: name + "-access", Entry: "kueue", Credential: token, Until: now.Add(30 * 24 * time.Hour), User: "system:serviceaccount:kueue-system:multikueue",
		}})
		f.MultiKueueClusters = append(f.MultiKueueClusters, kueue.MultiKueueCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{LocationType: kueue.SecretLocationType, Location: name + "-access"}}},
			Status:     kueue.MultiKueueClusterStatus{Conditions: []metav1.Condition{{Type: kueue.MultiKueueClusterActive, Status: metav1.ConditionTrue}}},
		})
	}
	f.MultiKueueConfigs = []kueue.MultiKueueConfig{{ObjectMeta: metav1.ObjectMeta{Name: "western"}, Spec: kueue.MultiKueueConfigSpec{Clusters: []string{"west"}}}}
	f.AdmissionChecks = []kueue.AdmissionCheck{{
		ObjectMeta: metav1.ObjectMeta{Name: "workers"},
		Spec:       kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName, Parameters: &kueue.AdmissionCheckParametersReference{Name: "western"}},
		Status:     kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}},
	}}
	f.ClusterQueues[0].Spec.NamespaceSelector = &metav1.LabelSelector{}
	f.ClusterQueues[0].Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "workers"}}}
	// Nothing runs here, so that there are no nodes.
	f.Nodes, f.Flavors[0].Spec.NodeLabels = nil, nil
	f.TrainJobs = []trainjob.TrainJob{dispatchedJob("llm")}
	f.Runtimes = []trainer.TrainingRuntime{torch(1)}
	f.Namespaces = append(f.Namespaces, namespace("jobs", "manager-jobs"), namespace(metav1.NamespaceSystem, "manager"))
	there := &Facts{
		Now: now, Unread: map[Kind]error{}, Inventory: &inventory.Inventory{LocalQueues: f.LocalQueues, ClusterQueues: f.ClusterQueues},
		CRDs: slices.Clone(f.CRDs), Deployments: f.Deployments, ConfigMaps: f.ConfigMaps,
		Namespaces: []corev1.Namespace{namespace("jobs", "west-jobs"), namespace(metav1.NamespaceSystem, "west")},
		Runtimes:   f.Runtimes,
	}
	f.Workers[0].Untold = errors.New("no context")
	f.Workers[1].Context, f.Workers[1].Facts = "west", there
}

func dispatchedJob(name string) trainjob.TrainJob {
	job := trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "jobs", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now), Labels: map[string]string{kit.QueueLabel: "queue"},
	}}
	job.Spec.Suspend, job.Spec.ManagedBy, job.Spec.RuntimeRef.Name = new(true), new(kueue.MultiKueueControllerName), "torch"
	return job
}

func torch(nodes int32) trainer.TrainingRuntime {
	rt := trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}
	rt.Spec.MLPolicy = &trainer.MLPolicy{NumNodes: &nodes}
	return rt
}

func namespace(name string, uid types.UID) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Labels: map[string]string{corev1.LabelMetadataName: name}}}
}

// west is the worker that is seen.
func west(f *Facts) *Facts { return f.Workers[1].Facts }

func TestFleet(t *testing.T) {
	const (
		copyRuntime = `kubectl get clustertrainingruntime torch -o yaml | sed -E '/^  (uid|resourceVersion|creationTimestamp|generation):/d;/^status:/,$d' | kubectl --context west apply --server-side --force-conflicts -f -`
		inWest      = " in worker cluster west"
	)
	deleteTrainJobs := []rbacv1.PolicyRule{{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainjobs"}, Verbs: []string{"delete"}}}
	ends := func(severity Severity) Finding {
		return Finding{Severity: severity, Reason: "WorkerTokenExpires", Object: "Secret kueue-system/west-access", Commands: []string{
			"(umask 077; kubectl -n kueue-system get secret west-access -o go-template='{{.data.kubeconfig | base64decode}}' > west-access.kubeconfig)",
			`token=$(kubectl --context west -n kueue-system create token multikueue --duration 8760h) && kubectl config --kubeconfig west-access.kubeconfig set-credentials kueue --token "$token"`,
			"kubectl -n kueue-system create secret generic west-access --from-file kubeconfig=west-access.kubeconfig --dry-run=client -o yaml | kubectl apply --server-side --force-conflicts -f -",
			"rm west-access.kubeconfig",
		}}
	}
	installTrainer := strings.Replace(trainerPart.install, "kubectl", "kubectl --context west", 1)
	trainer21, trainer22 := crd(trainjob.CRDName, "v1alpha1", "podTemplateOverrides"), crd(trainjob.CRDName, "v1alpha1", "runtimePatches")
	runsHere := found(Error, "TrainJobRunsTwice", "Trainer", trainerPart.install)
	eachFinds(t, map[string]broken{
		"in order": on(),
		"a queue for this cluster, too, without nodes": on(func(f *Facts) { f.ClusterQueues = append(f.ClusterQueues, clusterQueue("here", "h100", "8")) }).
			warns("FlavorWithoutNodes", "ResourceFlavor h100", generatePools),
		"a worker that Kueue does not reach": on(func(f *Facts) { f.MultiKueueClusters[1].Status.Conditions[0].Status = metav1.ConditionFalse }).
			fails("WorkerNotConnected", "MultiKueueCluster west", "kubectl -n kueue-system get secret west-access", restartKueue),
		"workers that Kueue does not look at": on(func(f *Facts) {
			f.MultiKueueClusters = f.MultiKueueClusters[:1]
			f.MultiKueueClusters[0].Status.Conditions = nil
		}).fails("WorkerNotConnected", "MultiKueueCluster east", "kubectl -n kueue-system get secret east-access", restartKueue),
		"a Kueue that hands no TrainJobs over": on(func(f *Facts) { f.kueueConfig(externalConfig) }).
			fails("TrainJobNotDispatched", kueueConfigObject, fixKueueConfig, restartKueue),
		"the same, in a cluster without workers": on(func(f *Facts) {
			f.kueueConfig(externalConfig)
			f.MultiKueueClusters, f.MultiKueueConfigs, f.Workers, f.TrainJobs, f.ClusterQueues[0].Spec.AdmissionChecksStrategy = nil, nil, nil, nil, nil
			f.ClusterQueues[0].Spec.ResourceGroups = nil
		}),
		"an older Trainer, with the same field": on(func(f *Facts) { west(f).CRDs[0] = trainer22 }).warns("WorkerTrainer", "Trainer"+inWest, installTrainer),
		"a newer Trainer, with the same field": on(func(f *Facts) { f.CRDs[0] = trainer22 }).
			finds(runsHere, found(Warning, "WorkerTrainer", "Trainer"+inWest, installTrainer)),
		"an older Trainer, with another field": on(func(f *Facts) { west(f).CRDs[0] = trainer21 }).fails("WorkerTrainer", "Trainer"+inWest, installTrainer),
		"a newer Trainer, with another field": on(func(f *Facts) { f.CRDs[0] = trainer21 }).
			finds(runsHere, found(Error, "WorkerTrainer", "Trainer"+inWest, installTrainer)),
		"a runtime that is missing, of two TrainJobs": on(func(f *Facts) { west(f).Runtimes, f.TrainJobs = nil, append(f.TrainJobs, dispatchedJob("vit")) }).
			fails("WorkerRuntimeMissing", "ClusterTrainingRuntime torch"+inWest, copyRuntime),
		"a runtime of a namespace that is missing": on(func(f *Facts) {
			f.TrainJobs[0].Spec.RuntimeRef.Kind = new(trainer.TrainingRuntimeKind)
			f.Runtimes = []trainer.TrainingRuntime{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "torch"}}}
		}).fails("WorkerRuntimeMissing", "TrainingRuntime jobs/torch"+inWest,
			strings.Replace(copyRuntime, "clustertrainingruntime torch", "-n jobs trainingruntime torch", 1)),
		"a runtime that differs": on(func(f *Facts) { west(f).Runtimes = []trainer.TrainingRuntime{torch(2)} }).
			warns("WorkerRuntimeDiffers", "ClusterTrainingRuntime torch"+inWest,
				"diff <(kubectl get clustertrainingruntime torch -o jsonpath={.spec}) <(kubectl --context west get clustertrainingruntime torch -o jsonpath={.spec}) || true",
				copyRuntime),
		"a runtime that no TrainJob has any more": on(func(f *Facts) {
			west(f).Runtimes = nil
			f.TrainJobs[0].Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue}}
		}),
		"a runtime of a TrainJob that goes to another worker": on(func(f *Facts) { west(f).Runtimes, f.MultiKueueConfigs[0].Spec.Clusters = nil, []string{"east"} }),
		"a namespace that is missing": on(func(f *Facts) { west(f).Namespaces = west(f).Namespaces[1:] }).
			fails("WorkerNamespaceMissing", "Namespace jobs"+inWest, "kubectl --context west create namespace jobs"),
		"a LocalQueue that is missing, for a ClusterQueue of the same name": on(func(f *Facts) { west(f).LocalQueues = nil }).
			fails("WorkerLocalQueueMissing", "LocalQueue jobs/queue"+inWest,
				strings.Replace(copyRuntime, "clustertrainingruntime torch", "-n jobs localqueue queue", 1)),
		"a LocalQueue that is missing": on(func(f *Facts) { west(f).LocalQueues, west(f).ClusterQueues = nil, nil }).
			fails("WorkerLocalQueueMissing", "LocalQueue jobs/queue"+inWest, "kubectl --context west get clusterqueues"),
		"kueue-trainer of another release": on(func(f *Facts) {
			d := deployment(managerPart)
			d.Spec.Template.Spec.Containers[0].Image = "kueue-trainer:v0.1.0"
			west(f).Deployments = append(west(f).Deployments[:3:3], d)
		}).warns("WorkerManagerVersion", "kueue-trainer"+inWest, "kubectl trainjob version --context west"),
		"other toleration rules": on(func(f *Facts) {
			west(f).ConfigMaps = []corev1.ConfigMap{configMap(managerPart, "tolerationRules:\n- resources: [example.com/npu]\n  tolerations: [{key: example.com/npu, operator: Exists}]\n")}
		}).warns("WorkerTolerationRules", "ConfigMap kueue-trainer-system/kueue-trainer-config"+inWest,
			"kubectl --context west -n kueue-trainer-system edit configmap kueue-trainer-config",
			strings.Replace(restartManager, "kubectl", "kubectl --context west", 1)),
		"rights that Kueue has not": on(func(f *Facts) { f.Workers[1].Lacks = deleteTrainJobs }).
			fails("WorkerRights", "ServiceAccount kueue-system/multikueue"+inWest, "kubectl --context west apply -k config/multikueue"),
		"rights that another ServiceAccount has not": on(func(f *Facts) {
			f.Workers[1].Lacks, f.Workers[1].Access.User = deleteTrainJobs, "system:serviceaccount:kueue-system:multikueue-sa"
		}).fails("WorkerRights", "ServiceAccount kueue-system/multikueue-sa"+inWest,
			"kubectl --context west apply -k config/multikueue",
			"kubectl --context west create clusterrolebinding kueue-trainer-multikueue-multikueue-sa --clusterrole=kueue-trainer-multikueue --serviceaccount=kueue-system:multikueue-sa"),
		"rights that a user has not": on(func(f *Facts) { f.Workers[1].Lacks, f.Workers[1].Access.User = deleteTrainJobs, "kueue" }).
			fails("WorkerRights", "User kueue"+inWest,
				"kubectl --context west apply -k config/multikueue",
				"kubectl --context west create clusterrolebinding kueue-trainer-multikueue-kueue --clusterrole=kueue-trainer-multikueue --user=kueue"),
		"a token that ends in a week": on(func(f *Facts) { f.Workers[1].Access.Until = now.Add(7 * 24 * time.Hour) }),
		"a token that ends before":    on(func(f *Facts) { f.Workers[1].Access.Until = now.Add(7*24*time.Hour - time.Second) }).finds(ends(Warning)),
		"a token that has ended":      on(func(f *Facts) { f.Workers[1].Access.Until = now }).finds(ends(Error)),
		"a token that never ends":     on(func(f *Facts) { f.Workers[1].Access.Until = time.Time{} }),
		"a token that ends, of a worker without a context": on(func(f *Facts) { f.Workers[0].Access.Until = now.Add(time.Hour) }).
			warns("WorkerTokenExpires", "Secret kueue-system/east-access", "kubectl config get-contexts"),
		"a token of somebody that ends": on(func(f *Facts) { f.Workers[1].Access.Until, f.Workers[1].Access.User = now.Add(time.Hour), "" }).
			warns("WorkerTokenExpires", "Secret kueue-system/west-access", "kubectl -n kueue-system get secret west-access"),
		"a client certificate that ends": on(func(f *Facts) {
			f.Workers[1].Access.Until, f.Workers[1].Access.Credential, f.Workers[1].Access.User = now.Add(time.Hour), certificate, "kueue"
		}).warns("WorkerTokenExpires", "Secret kueue-system/west-access", "kubectl -n kueue-system get secret west-access"),
		"a worker with Kueue's in-tree integration": on(func(f *Facts) { west(f).ConfigMaps, west(f).Deployments = nil, nil }),
	}, inTheFleet)
}

// TestRunsTwice says what an older Trainer does with TrainJobs that kueue-trainer does not refuse.
func TestRunsTwice(t *testing.T) {
	for says, integration := range map[string]func(*Facts){
		"kueue-trainer refuses TrainJobs in queues with a MultiKueue admission check": func(*Facts) {},
		"It runs a worker's TrainJob in this cluster as well, without quota of it.":   kit.All(uninstalled, inTreeActive, withKueue(inTreeListed)),
	} {
		f := with(t, inTheFleet, integration)
		f.CRDs[0] = crd(trainjob.CRDName, "v1alpha1", "runtimePatches")
		f.Cluster = expect.Must(explain.NewCluster(t.Context(), f.Inventory))(t)
		findings := newReport(f).Findings
		twice := slices.IndexFunc(findings, func(f Finding) bool { return f.Reason == "TrainJobRunsTwice" })
		expect.That(t, twice >= 0 && strings.Contains(findings[twice].Effect, says), "None of the findings says %q: %+v", says, findings)
	}
}

// trainer23 is the CRD of a Trainer that is newer than that of a healthy cluster.
func trainer23() apiextensionsv1.CustomResourceDefinition {
	path := strings.Split("runtimePatches trainingRuntimeSpec template spec replicatedJobs template spec template spec terminationGracePeriodSeconds", " ")
	schema := apiextensionsv1.JSONSchemaProps{}
	for _, name := range slices.Backward(path) {
		schema = apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{name: schema}}
	}
	c := crd(trainjob.CRDName, "v1alpha1")
	c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = schema
	return c
}

// TestWorkersUnseen is about workers, and Secrets, that tell too little: they are named, nothing is found to be missing
// there, and what is not known is not called in order.
func TestWorkersUnseen(t *testing.T) {
	const (
		lasts  = "MultiKueue's tokens for its workers last"
		may    = "MultiKueue has its permissions in the workers"
		ofWest = " of worker cluster west: "
		mayNot = "Could not check what Kueue may do in worker cluster west: "
	)
	forbidden, noReviews, noAnswer := notAllowedTo("list", "x"), notAllowedTo("create", "subjectaccessreviews"), errors.New("no answer")
	type told struct{ Remarks, Unseen, Passed []string }
	expect.Rows(t, map[string]expect.Row[func(f *Facts, west *Worker), told]{
		"in order": {In: func(*Facts, *Worker) {}, Want: told{Passed: []string{lasts, may}}},
		"one that does not answer": {In: func(_ *Facts, west *Worker) { west.Untold = noAnswer },
			Want: told{Unseen: []string{"worker cluster west: no answer"}, Passed: []string{lasts, may}}},
		"one whose runtimes may not be listed": {In: func(_ *Facts, west *Worker) { west.Unread[clusterRuntimes], west.Runtimes = forbidden, nil },
			Want: told{Unseen: []string{string(clusterRuntimes) + ofWest + "you may not list them"}, Passed: []string{lasts, may}}},
		"one whose queues may not be listed": {In: func(_ *Facts, west *Worker) { west.Unread[localQueues], west.LocalQueues = forbidden, nil },
			Want: told{Unseen: []string{string(localQueues) + ofWest + "you may not list them"}, Passed: []string{lasts, may}}},
		"one that may not be asked who may do what": {In: func(_ *Facts, west *Worker) { west.Unread[accessReviews] = noReviews },
			Want: told{[]string{mayNot + "you may not make them."}, []string{string(accessReviews) + ofWest + "you may not make them"}, []string{lasts}}},
		"one that cannot say who may do what": {In: func(_ *Facts, west *Worker) { west.Unread[accessReviews] = noAnswer },
			Want: told{[]string{mayNot + "no answer."}, []string{string(accessReviews) + ofWest + "no answer"}, []string{lasts}}},
		"a kubeconfig that runs a command": {In: func(f *Facts, _ *Worker) {
			f.Workers[1].Access = &Access{Secret: "west-access", Unclear: "it runs a command"}
		}, Want: told{Remarks: []string{"Could not check how long Kueue gets into worker cluster west: it runs a command.", mayNot + "it runs a command."}}},
		"a token of somebody": {In: func(f *Facts, _ *Worker) {
			f.Workers[1].Access.User, f.Workers[1].Access.Unclear = "", "it is somebody's"
		}, Want: told{Remarks: []string{mayNot + "it is somebody's."}, Passed: []string{lasts}}},
		"Secrets that may not be read": {In: func(f *Facts, _ *Worker) {
			f.Unread[secrets], f.Workers[0].Access, f.Workers[1].Access = notAllowedTo("get", "secrets"), nil, nil
		}, Want: told{Unseen: []string{"secrets: you may not get them"}}},
	}, func(t *testing.T, tc expect.Row[func(f *Facts, west *Worker), told]) {
		f := with(t, inTheFleet)
		tc.In(f, &f.Workers[1])
		finds(t, f)
		report := newReport(f)
		var got told
		for _, finding := range report.Findings {
			if finding.Reason == notCheckedReason && !strings.Contains(finding.Problem, "worker cluster east") {
				got.Remarks = append(got.Remarks, finding.Problem)
			}
		}
		for _, u := range report.Unseen {
			got.Unseen = append(got.Unseen, u.Kind+": "+u.Reason)
		}
		for _, name := range report.Passed {
			if name == lasts || name == may {
				got.Passed = append(got.Passed, name)
			}
		}
		expect.Same(t, "Unexpected report", tc.Want, got)
	})
}

func TestElsewhere(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(manager, there *Facts), string]{
		"its worker":                 {In: func(*Facts, *Facts) {}},
		"the manager cluster itself": {In: func(manager, there *Facts) { there.Namespaces = manager.Namespaces }, Want: "is the manager cluster itself"},
		"a cluster with a TrainJob of the same name": {In: func(manager, there *Facts) {
			job := &manager.TrainJobs[0]
			manager.Workloads = []kueue.Workload{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "trainjob-llm", OwnerReferences: []metav1.OwnerReference{{Name: job.Name, UID: job.UID, Controller: new(true)}}},
				Status:     kueue.WorkloadStatus{ClusterName: new("west")},
			}}
			there.TrainJobs = manager.TrainJobs
		}, Want: "is not the copy of this one"},
	}, func(t *testing.T, tc expect.Row[func(manager, there *Facts), string]) {
		f := with(t, inTheFleet)
		tc.In(f, west(f))
		expect.Says(t, f.elsewhere(west(f), &cluster.Worker{Cluster: "west", Context: "west"}), tc.Want)
	})
}
