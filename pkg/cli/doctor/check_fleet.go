// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// lostWorkers finds workers that Kueue does not reach.
func lostWorkers(f *Facts) []Finding {
	var findings []Finding
	for i := range f.MultiKueueClusters {
		mkc := &f.MultiKueueClusters[i]
		active := apimeta.FindStatusCondition(mkc.Status.Conditions, kueue.MultiKueueClusterActive)
		switch {
		case active == nil:
			findings = append(findings, lostWorker(mkc, "Kueue has not looked at it: its MultiKueue is off, or Kueue does not run"))
		case active.Status != "True":
			findings = append(findings, lostWorker(mkc, "Kueue does not reach it: "+active.Message))
		}
	}
	return findings
}

func lostWorker(mkc *kueue.MultiKueueCluster, problem string) Finding {
	finding := Finding{
		Severity: Error, Reason: "WorkerNotConnected", Object: object("MultiKueueCluster", "", mkc.Name),
		Problem: sentence(problem),
		Effect:  "It gets no TrainJobs; those that it has start in another worker when multiKueue.workerLostTimeout of Kueue is over, and run on there.",
		Advice:  "See that its API server answers, that the token in its kubeconfig is good, and that config/multikueue is installed there, as docs/multikueue.md says. A restart has Kueue try again at once:",
	}
	if at := mkc.Spec.ClusterSource.KubeConfig; at != nil && at.LocationType == kueue.SecretLocationType {
		finding.Commands = append(finding.Commands, fmt.Sprintf("kubectl -n %s get secret %s", kueuePart.namespace, at.Location))
	}
	finding.Commands = append(finding.Commands, kueuePart.restart())
	return finding
}

// undispatched finds a Kueue that hands no TrainJobs of kueue-trainer to workers.
func undispatched(f *Facts) []Finding {
	cfg, err := f.kueueSettings()
	if err != nil || len(f.MultiKueueClusters) == 0 || dispatches(cfg) {
		return nil
	}
	return []Finding{{
		Severity: Error, Reason: "TrainJobNotDispatched", Object: kueueConfigObject,
		Problem:  fmt.Sprintf("There are workers of MultiKueue, and %s is not in multiKueue.externalFrameworks.", externalFramework),
		Effect:   "No TrainJob goes to a worker: those in queues with a MultiKueue admission check are rejected.",
		Commands: []string{fixKueueConfig, kueuePart.restart()},
	}}
}

// olderTrainers finds workers whose Trainer does not know all that TrainJobs of the manager
// cluster may have: the API server there leaves fields out that it does not know.
func olderTrainers(f *Facts) []Finding {
	here := f.generation()
	var findings []Finding
	for _, w := range f.told(crds) {
		there := w.generation()
		otherField := (here == trainjob.Trainer21) != (there == trainjob.Trainer21)
		if here == 0 || there == 0 || there >= here && !otherField {
			continue
		}
		finding := Finding{
			Severity: Warning, Reason: "WorkerTrainer", Object: w.has(trainerPart.name),
			Problem:  fmt.Sprintf("Its Trainer is of generation %s, that of the manager cluster of %s.", there, here),
			Effect:   "Fields that it does not know are left out of the TrainJobs that MultiKueue copies there, without a word.",
			Advice:   "Have the same Trainer in all clusters, the workers first. Of which TrainJobs run there, docs/versions.md says what to mind.",
			Commands: []string{w.kubectl(trainerPart.install)},
		}
		if otherField {
			finding.Severity = Error
			finding.Effect = "spec.podTemplateOverrides is of Trainer 2.1, spec.runtimePatches of later ones: what users patch is left out of the TrainJobs that MultiKueue copies there, without a word."
		}
		findings = append(findings, finding)
	}
	return findings
}

// workerRuntimes finds runtimes of TrainJobs that a worker lacks, or has otherwise.
func workerRuntimes(f *Facts) []Finding {
	var findings []Finding
	for _, w := range f.told(crds, clusterRuntimes, ownRuntimes) {
		var seen []runtime
		for _, job := range f.dispatched(w.Name) {
			here := f.runtimeOf(job)
			known := func(r runtime) bool { return r == here }
			if here.spec == nil || slices.ContainsFunc(seen, known) {
				continue
			}
			seen = append(seen, here)
			if finding := w.runtimeFinding(here, w.generation() == f.generation(), job); finding != nil {
				findings = append(findings, *finding)
			}
		}
	}
	return findings
}

// withoutIdentity makes of an object that was read one that may be applied elsewhere.
const withoutIdentity = `sed -E '/^  (uid|resourceVersion|creationTimestamp|generation):/d;/^status:/,$d'`

// copied is the command that makes an object of the manager cluster in the worker.
func (w *Worker) copied(resource string) string {
	return fmt.Sprintf("kubectl get %s -o yaml | %s | %s", resource, withoutIdentity, w.kubectl("kubectl apply --server-side --force-conflicts -f -"))
}

func (w *Worker) runtimeFinding(here runtime, comparable bool, job *trainjob.TrainJob) *Finding {
	there := w.same(here)
	finding := &Finding{
		Severity: Error, Object: w.has(object(here.kind, here.namespace, here.name)),
		Commands: []string{w.copied(here.resource())},
	}
	switch {
	case there.spec == nil:
		finding.Reason = "WorkerRuntimeMissing"
		finding.Problem = fmt.Sprintf("TrainJob %s/%s may go to this worker, which has not its runtime.", job.Namespace, job.Name)
		finding.Effect = "A worker that admits such a TrainJob cannot make it: it holds quota in both clusters and does not run."
	case comparable && !equality.Semantic.DeepEqual(here.spec, there.spec):
		finding.Severity, finding.Reason = Warning, "WorkerRuntimeDiffers"
		finding.Problem = fmt.Sprintf("The runtime of TrainJob %s/%s is not as in the manager cluster.", job.Namespace, job.Name)
		finding.Effect = "Such TrainJobs run with what the worker has; where their pods would be others, the worker finishes them as out of sync, and they are dispatched again and again."
		finding.Advice = "See in what they differ, and decide which is right. To have that of the manager cluster in the worker:"
		finding.Commands = slices.Insert(finding.Commands, 0, fmt.Sprintf("diff <(kubectl get %s -o jsonpath={.spec}) <(%s) || true",
			here.resource(), w.kubectl(fmt.Sprintf("kubectl get %s -o jsonpath={.spec}", here.resource()))))
	default:
		return nil
	}
	return finding
}

// workerQueues finds namespaces and LocalQueues of TrainJobs that a worker lacks.
func workerQueues(f *Facts) []Finding {
	var findings []Finding
	for _, w := range f.told(namespaceKind, localQueues) {
		seen := map[string]bool{}
		for _, job := range f.dispatched(w.Name) {
			finding := w.namespaceFinding(job)
			if finding == nil {
				finding = w.queueFinding(job, f)
			}
			if finding != nil && !seen[finding.Object] {
				seen[finding.Object] = true
				findings = append(findings, *finding)
			}
		}
	}
	return findings
}

func (w *Worker) namespaceFinding(job *trainjob.TrainJob) *Finding {
	if w.uidOf(job.Namespace) != "" {
		return nil
	}
	return &Finding{
		Severity: Error, Reason: "WorkerNamespaceMissing", Object: w.has(object("Namespace", "", job.Namespace)),
		Problem:  fmt.Sprintf("TrainJob %s/%s may go to this worker, which has not its namespace.", job.Namespace, job.Name),
		Effect:   "The worker gets none of the TrainJobs of the namespace.",
		Advice:   "Its LocalQueues are needed there, too.",
		Commands: []string{w.kubectl("kubectl create namespace " + job.Namespace)},
	}
}

func (w *Worker) queueFinding(job *trainjob.TrainJob, f *Facts) *Finding {
	name := kueue.LocalQueueName(job.Labels[kueueconstants.QueueLabel])
	here := f.LocalQueue(job.Namespace, name)
	if here == nil || w.LocalQueue(job.Namespace, name) != nil {
		return nil
	}
	finding := &Finding{
		Severity: Error, Reason: "WorkerLocalQueueMissing", Object: w.has(object("LocalQueue", job.Namespace, string(name))),
		Problem:  fmt.Sprintf("TrainJob %s/%s may go to this worker, which has not its LocalQueue.", job.Namespace, job.Name),
		Effect:   "The worker admits none of the TrainJobs of the LocalQueue.",
		Advice:   fmt.Sprintf("Make LocalQueue %s/%s there, for one of the ClusterQueues that it has:", job.Namespace, name),
		Commands: []string{w.kubectl("kubectl get clusterqueues")},
	}
	if w.ClusterQueue(here.Spec.ClusterQueue) != nil {
		finding.Advice = ""
		finding.Commands = []string{w.copied(fmt.Sprintf("-n %s localqueue %s", job.Namespace, name))}
	}
	return finding
}

// differingManagers finds workers whose kueue-trainer is another one.
func differingManagers(f *Facts) []Finding {
	var findings []Finding
	for _, w := range f.told(deployments, configMaps) {
		if !f.managerInstalled() || w.configMap(managerPart) == nil && w.deployment(managerPart) == nil {
			continue // one of them has Kueue's in-tree integration
		}
		here, there := f.managerRelease(), w.managerRelease()
		if here != "" && there != "" && here != there {
			findings = append(findings, Finding{
				Severity: Warning, Reason: "WorkerManagerVersion", Object: w.has(managerPart.name),
				Problem:  fmt.Sprintf("It is %s, that of the manager cluster %s.", there, here),
				Effect:   "The two may describe the pods of a TrainJob in different ways: the worker then finishes it as out of sync.",
				Advice:   "Upgrade the older one, as docs/versions.md says. What runs:",
				Commands: []string{"kubectl trainjob version --context " + quotedIfNeeded(w.Context)},
			})
		}
		if !equality.Semantic.DeepEqual(cluster.Rules(f.managerConfiguration()), cluster.Rules(w.managerConfiguration())) {
			findings = append(findings, Finding{
				Severity: Warning, Reason: "WorkerTolerationRules", Object: w.has(object("ConfigMap", managerPart.namespace, managerPart.configMap)),
				Problem:  "Its tolerationRules are not those of the manager cluster.",
				Effect:   "TrainJobs wait for flavors that the worker would not give them, or the other way around.",
				Advice:   "Make them alike, and restart kueue-trainer there:",
				Commands: []string{w.haveRules(f.managerConfiguration().TolerationRules), w.kubectl(managerPart.restart())},
			})
		}
	}
	return findings
}

// haveRules is the command that gives the worker toleration rules, or has somebody give them.
func (w *Worker) haveRules(rules []managerconfig.TolerationRule) string {
	if r := w.release(); r != nil {
		return r.upgrade(configure(map[string]any{"tolerationRules": rules}), "--kube-context "+quotedIfNeeded(w.Context))
	}
	return w.kubectl(fmt.Sprintf("kubectl -n %s edit configmap %s", managerPart.namespace, w.managerConfigMapName()))
}

// managerRelease is that of kueue-trainer, where that is known.
func (f *Facts) managerRelease() string {
	return strings.TrimPrefix(cluster.Release(f.deployment(managerPart), f.configMap(managerPart)), "v")
}

func (f *Facts) managerConfigMapName() string {
	if cm := f.configMap(managerPart); cm != nil {
		return cm.Name
	}
	return managerPart.configMap
}
