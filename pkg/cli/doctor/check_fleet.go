// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const workersTitle = "The workers of [MultiKueue](multikueue.md), in their manager cluster. All but `WorkerNotConnected`,\n" +
	"`WorkerTokenExpires`, `TrainJobNotDispatched` and `TrainJobRunsTwice` look into those workers to which a context of the\n" +
	"kubeconfig leads, by the cluster's name or by `--worker-context CLUSTER=CONTEXT`. What is missing\n" +
	"they tell by TrainJobs that wait or run"

// lostTrainJobs is what a worker that Kueue does not reach causes.
const lostTrainJobs = " gets no TrainJobs; those that it has start in another worker when multiKueue.workerLostTimeout of Kueue is over, and run on there."

var workerChecks = []check{{
	inOrder: "MultiKueue reaches its workers", looksAt: []Kind{workerClusters}, wrong: lostWorkers,
	ID: "WorkerNotConnected", Severity: Error, When: "Kueue does not reach the worker",
	problem: "{problem}", effect: "It" + lostTrainJobs,
	advice: "See that its API server answers, that the token in its kubeconfig is good, and that config/multikueue is installed there, as docs/multikueue.md says. A restart has Kueue try again at once:",
}, {
	inOrder: "MultiKueue's tokens for its workers last", looksAt: []Kind{workerClusters, secrets}, wrong: endingAccess,
	ID: "WorkerTokenExpires", Severity: Warning, When: "the token or client certificate in Kueue's kubeconfig of the worker ends within 7 days",
	problem: "Its {credential}, by which Kueue gets into worker cluster {worker}, ends at {until}.",
	effect:  "From then on the worker" + lostTrainJobs, advice: "Renew it, as docs/multikueue.md says.",
}, {
	ID: "WorkerTokenExpires", Severity: Error, When: "it has ended",
	problem: "Its {credential}, by which Kueue gets into worker cluster {worker}, ended at {until}.",
	effect:  "The worker" + lostTrainJobs, advice: "Renew it, as docs/multikueue.md says.",
}, {
	inOrder: "MultiKueue takes TrainJobs to its workers", looksAt: []Kind{workerClusters, configMaps, mutating, validating, deployments}, given: []condition{inFleet},
	wrong: func(f *Facts, found func(hit)) {
		if len(f.MultiKueueClusters) == 0 {
			return
		}
		cfg, _ := f.kueueSettings()
		if !slices.ContainsFunc(ptr.Deref(cfg.MultiKueue, configapi.MultiKueue{}).ExternalFrameworks, func(e configapi.MultiKueueExternalFramework) bool {
			return e.Name == externalFramework
		}) {
			found(hit{})
		}
	},
	ID: "TrainJobNotDispatched", Severity: Error, When: "TrainJob is not in `multiKueue.externalFrameworks` of Kueue's configuration", object: kueueConfigObject,
	problem: "There are workers of MultiKueue, and " + externalFramework + " is not in multiKueue.externalFrameworks.",
	effect:  "No TrainJob goes to a worker: those in queues with a MultiKueue admission check are rejected.", commands: restarted,
}, {
	inOrder: "Trainer leaves the TrainJobs of workers alone", looksAt: []Kind{workerClusters, crds, mutating, validating, deployments},
	wrong: func(f *Facts, found func(hit)) {
		if generation := f.generation(); len(f.MultiKueueClusters) > 0 && generation != 0 && generation < trainjob.Trainer23 {
			h := hit{values: append(f.of(trainerPart), "generation", generation)}
			if !f.managerInstalled() {
				h.Effect = "It runs a worker's TrainJob in this cluster as well, without quota of it."
			}
			found(h)
		}
	},
	ID: "TrainJobRunsTwice", Severity: Error, When: "Trainer of the manager cluster is older than 2.3", object: trainerPart.Name,
	problem: "There are workers of MultiKueue, and Trainer {generation} does not read spec.managedBy.",
	effect:  "It would run a worker's TrainJob in this cluster as well: kueue-trainer refuses TrainJobs in queues with a MultiKueue admission check.",
	advice:  "Upgrade Trainer to 2.3. {reinstall}", commands: []string{"{install}"},
}, {
	inOrder: "MultiKueue has its permissions in the workers", looksAt: slices.Concat(dispatchKinds, []Kind{secrets}), wrong: missingRights,
	ID: "WorkerRights", Severity: Error, When: "whom that token or certificate is for may not do there what Kueue does with TrainJobs and Workloads: it is not granted all of `config/multikueue`",
	problem: "Kueue of the manager cluster acts as it there, and it lacks permissions: {rules}.",
	effect:  "Kueue connects with few of them. Without the others it cannot make, stop or delete TrainJobs there: they hang, and only its log says why.",
}, {
	inOrder: "Trainer of the workers knows all fields", looksAt: []Kind{workerClusters, crds}, wrong: olderTrainers,
	ID: "WorkerTrainer", Severity: Warning, When: "its Trainer is older than that of the manager cluster, or newer from 2.3 on, which makes other pods; an error where one of the two is 2.1, whose field for patches is another",
	problem: "Its Trainer is of generation {there}, that of the manager cluster of {here}.",
	effect:  "Fields that it does not know are left out of the TrainJobs that MultiKueue copies there, without a word.",
	advice:  "Have the same Trainer in all clusters, the workers first. Of which TrainJobs run there, docs/versions.md says what to mind.", commands: []string{"{trainer}"},
}, {
	inOrder: "the workers have the runtimes of TrainJobs", looksAt: slices.Concat(dispatchKinds, []Kind{crds, clusterRuntimes, ownRuntimes}), wrong: workerRuntimes,
	ID: "WorkerRuntimeMissing", Severity: Error, When: "it lacks the runtime of a TrainJob",
	problem: "TrainJob {job} may go to this worker, which has not its runtime.",
	effect:  "A worker that admits such a TrainJob cannot make it: it holds quota in both clusters and does not run.", commands: []string{"{copy}"},
}, {
	ID: "WorkerRuntimeDiffers", Severity: Warning, When: "its runtime of that name is another one",
	problem: "The runtime of TrainJob {job} is not as in the manager cluster.",
	effect:  "Such TrainJobs run with what the worker has; where their pods would be others, the worker finishes them as out of sync, and they are dispatched again and again.",
	advice:  "See in what they differ, and decide which is right. To have that of the manager cluster in the worker:", commands: []string{"{diff}", "{copy}"},
}, {
	inOrder: "the workers have the queues of TrainJobs", looksAt: dispatchKinds, wrong: workerQueues,
	ID: "WorkerNamespaceMissing", Severity: Error, When: "it lacks the namespace of a TrainJob",
	problem: "TrainJob {job} may go to this worker, which has not its namespace.",
	effect:  "The worker gets none of the TrainJobs of the namespace.",
	advice:  "Its LocalQueues are needed there, too.", commands: []string{"{create}"},
}, {
	ID: "WorkerLocalQueueMissing", Severity: Error, When: "it lacks the LocalQueue of a TrainJob",
	problem: "TrainJob {job} may go to this worker, which has not its LocalQueue.",
	effect:  "The worker admits none of the TrainJobs of the LocalQueue.",
}, {
	inOrder: "kueue-trainer of the workers is like that of the manager cluster", looksAt: []Kind{workerClusters, deployments, configMaps, mutating, validating}, wrong: differingManagers,
	ID: "WorkerManagerVersion", Severity: Warning, When: "its kueue-trainer is of another release",
	problem: "It is {there}, that of the manager cluster {here}.",
	effect:  "The two may describe the pods of a TrainJob in different ways: the worker then finishes it as out of sync.",
	advice:  "Upgrade the older one, as docs/versions.md says. What runs:", commands: []string{"kubectl trainjob version --context {context}"},
}, {
	ID: "WorkerTolerationRules", Severity: Warning, When: "its kueue-trainer has other [toleration rules](operate.md#configuration)",
	problem: "Its tolerationRules are not those of the manager cluster.",
	effect:  "TrainJobs wait for flavors that the worker would not give them, or the other way around.",
	advice:  "Make them alike, and restart kueue-trainer there:", commands: []string{"{rules}", "{restart}"},
}}

// about is a case that concerns something in the worker.
func (w *Worker) about(what string, values ...any) hit {
	return hit{Finding{Object: what + " in worker cluster " + w.Name}, append(values, "context", quotedIfNeeded(w.Context))}
}

// lostWorkers finds workers that Kueue does not reach.
func lostWorkers(f *Facts, found func(hit)) {
	for _, mkc := range f.MultiKueueClusters {
		if apimeta.IsStatusConditionTrue(mkc.Status.Conditions, kueue.MultiKueueClusterActive) {
			continue
		}
		problem := "Kueue has not looked at it: its MultiKueue is off, or Kueue does not run"
		if active := apimeta.FindStatusCondition(mkc.Status.Conditions, kueue.MultiKueueClusterActive); active != nil {
			problem = "Kueue does not reach it: " + active.Message
		}
		h := about("MultiKueueCluster", "", mkc.Name, "problem", sentence(problem))
		if at := mkc.Spec.ClusterSource.KubeConfig; at != nil && at.LocationType == kueue.SecretLocationType {
			h.Commands = append(h.Commands, fmt.Sprintf("kubectl -n %s get secret %s", kueuePart.Namespace, at.Location))
		}
		h.Commands = append(h.Commands, kueuePart.restart())
		found(h)
	}
}

// olderTrainers finds workers whose Trainer leaves fields out of TrainJobs that it does not know.
func olderTrainers(f *Facts, found func(hit)) {
	here := f.generation()
	for _, w := range f.told(crds) {
		there := w.generation()
		h := w.about(trainerPart.Name, "here", here, "there", there, "trainer", w.kubectl(trainerPart.install))
		switch {
		case here == 0 || there == 0:
		case (here == trainjob.Trainer21) != (there == trainjob.Trainer21):
			h.Effect = "spec.podTemplateOverrides is of Trainer 2.1, spec.runtimePatches of later ones: what users patch is left out of the TrainJobs that MultiKueue copies there, without a word."
			found(h.as("WorkerTrainer", Error))
		case (here >= trainjob.Trainer23) != (there >= trainjob.Trainer23):
			h.Effect = "Trainer 2.3 adds the resources of its runtime to a TrainJob whose spec.trainer.resourcesPerNode leaves some out, and older ones do not: such a job is dispatched again and again."
			if there < here {
				h.Effect += " Fields that the older one does not know are left out of the TrainJobs that MultiKueue copies there, without a word."
			}
			found(h)
		}
	}
}

// lacked has look tell what TrainJobs need in the workers to which they may go, and whether it is wrong; each thing once.
func lacked(f *Facts, kinds []Kind, found func(hit), look func(*Worker, *trainjob.TrainJob) (hit, bool)) {
	for _, w := range f.told(kinds...) {
		seen := sets.New[string]()
		for _, job := range f.dispatched(w.Name) {
			if h, wrong := look(w, job); wrong && !seen.Has(h.Object) {
				seen.Insert(h.Object)
				found(h)
			}
		}
	}
}

// workerRuntimes finds runtimes of TrainJobs that a worker lacks, or has otherwise.
func workerRuntimes(f *Facts, found func(hit)) {
	lacked(f, []Kind{crds, clusterRuntimes, ownRuntimes}, found, func(w *Worker, job *trainjob.TrainJob) (hit, bool) {
		kind, namespace, name := ptr.Deref(job.Spec.RuntimeRef.Kind, trainer.ClusterTrainingRuntimeKind), "", job.Spec.RuntimeRef.Name
		resource := strings.ToLower(kind) + " " + name
		if kind == trainer.TrainingRuntimeKind {
			namespace, resource = job.Namespace, "-n "+job.Namespace+" "+resource
		}
		here, there := inventory.Find(f.Runtimes, namespace, name), inventory.Find(w.Runtimes, namespace, name)
		read := fmt.Sprintf("kubectl get %s -o jsonpath={.spec}", resource)
		h := w.about(object(kind, namespace, name), "job", job.Namespace+"/"+job.Name, "copy", w.copied(resource),
			"diff", fmt.Sprintf("diff <(%s) <(%s) || true", read, w.kubectl(read)))
		if there != nil {
			h = h.as("WorkerRuntimeDiffers", Warning)
		}
		return h, here != nil && (there == nil || w.generation() == f.generation() && !equality.Semantic.DeepEqual(here.Spec, there.Spec))
	})
}

// withoutIdentity makes of an object that was read one that may be applied elsewhere.
const withoutIdentity = `sed -E '/^  (uid|resourceVersion|creationTimestamp|generation):/d;/^status:/,$d'`

// copied is the command that makes an object of the manager cluster in the worker.
func (w *Worker) copied(resource string) string {
	return fmt.Sprintf("kubectl get %s -o yaml | %s | %s", resource, withoutIdentity, w.kubectl("kubectl apply --server-side --force-conflicts -f -"))
}

// workerQueues finds namespaces and LocalQueues of TrainJobs that a worker lacks.
func workerQueues(f *Facts, found func(hit)) {
	lacked(f, []Kind{namespaceKind, localQueues}, found, func(w *Worker, job *trainjob.TrainJob) (hit, bool) {
		namespace, name := job.Namespace, kueue.LocalQueueName(job.Labels[kueueconstants.QueueLabel])
		h := w.about(object("LocalQueue", namespace, string(name)), "job", namespace+"/"+job.Name).as("WorkerLocalQueueMissing", Error)
		switch here := f.LocalQueue(namespace, name); {
		case w.uidOf(namespace) == "":
			return w.about(object("Namespace", "", namespace), "job", namespace+"/"+job.Name, "create", w.kubectl("kubectl create namespace "+namespace)), true
		case here == nil || w.LocalQueue(namespace, name) != nil:
			return hit{}, false
		case w.ClusterQueue(here.Spec.ClusterQueue) != nil:
			h.Commands = []string{w.copied(fmt.Sprintf("-n %s localqueue %s", namespace, name))}
		default:
			h.Advice = fmt.Sprintf("Make LocalQueue %s/%s there, for one of the ClusterQueues that it has:", namespace, name)
			h.Commands = []string{w.kubectl("kubectl get clusterqueues")}
		}
		return h, true
	})
}

// differingManagers finds workers whose kueue-trainer is another one.
func differingManagers(f *Facts, found func(hit)) {
	for _, w := range f.told(deployments, configMaps) {
		if !f.managerInstalled() || w.configMap(managerPart) == nil && w.deployment(managerPart) == nil {
			continue // one of them has Kueue's in-tree integration
		}
		here, there := strings.TrimPrefix(f.version(managerPart), "v"), strings.TrimPrefix(w.version(managerPart), "v")
		if here != "" && there != "" && here != there {
			found(w.about(managerPart.Name, "here", here, "there", there))
		}
		if rules := f.managerConfiguration().TolerationRules; !equality.Semantic.DeepEqual(rules, w.managerConfiguration().TolerationRules) {
			found(w.about(object("ConfigMap", managerPart.Namespace, managerPart.ConfigMap),
				"rules", w.haveRules(rules), "restart", w.kubectl(managerPart.restart())).as("WorkerTolerationRules", Warning))
		}
	}
}

// haveRules is the command that gives the worker toleration rules, or has somebody give them.
func (w *Worker) haveRules(rules []managerconfig.TolerationRule) string {
	name := cmp.Or(ptr.Deref(w.configMap(managerPart), corev1.ConfigMap{}).Name, managerPart.ConfigMap)
	return cmp.Or(w.upgrade(configure(map[string]any{"tolerationRules": rules}), "--kube-context "+quotedIfNeeded(w.Context)),
		w.kubectl(fmt.Sprintf("kubectl -n %s edit configmap %s", managerPart.Namespace, name)))
}

const (
	renewWithin = 7 * 24 * time.Hour // before its end a credential is to be renewed, for whoever looks once a week

	// workerRole and workerAccount are what config/multikueue installs.
	workerRole    = "kueue-trainer-multikueue"
	workerAccount = "multikueue"
)

// endingAccess finds workers that Kueue reaches not much longer, or no more.
func endingAccess(f *Facts, found func(hit)) {
	for _, w := range f.Workers {
		switch a := w.Access; {
		case a == nil:
		case a.Credential == "":
			found(hit{Finding: notChecked("how long Kueue gets into worker cluster %s: %s", w.Name, a.Unclear)})
		case !a.Until.IsZero() && a.Until.Before(f.Now.Add(renewWithin)):
			found(w.ending(f.Now))
		}
	}
}

// ending tells how to renew a credential.
func (w *Worker) ending(now time.Time) hit {
	a := w.Access
	h := about("Secret", kueuePart.Namespace, a.Secret, "credential", a.Credential, "worker", w.Name, "until", a.Until.UTC().Format(time.RFC3339))
	if !a.Until.After(now) {
		h = h.as("WorkerTokenExpires", Error)
	}
	switch {
	case a.Credential != token || a.User == "":
		h.Commands = []string{fmt.Sprintf("kubectl -n %s get secret %s", kueuePart.Namespace, a.Secret)}
	case w.Context == "":
		h.Advice = fmt.Sprintf("Renew it, as docs/multikueue.md says. With --worker-context %s=CONTEXT doctor prints the commands. The contexts that you have:", w.Name)
		h.Commands = []string{"kubectl config get-contexts"}
	default:
		h.Advice = "Renew it, as docs/multikueue.md says. Kueue notices by itself:"
		h.Commands = w.renew()
	}
	return h
}

// renew puts a new token of the same ServiceAccount into the kubeconfig, and leaves the rest of it as it is: the manager
// cluster may reach the worker by another address than its admins. Where no token is to be had, the old one stays.
func (w *Worker) renew() []string {
	a := w.Access
	namespace, account, _ := serviceaccount.SplitUsername(a.User) // it is one: see readToken
	file := a.Secret + ".kubeconfig"
	return []string{
		fmt.Sprintf("(umask 077; kubectl -n %s get secret %s -o go-template='{{.data.kubeconfig | base64decode}}' > %s)", kueuePart.Namespace, a.Secret, file),
		fmt.Sprintf(`token=$(%s) && kubectl config --kubeconfig %s set-credentials %s --token "$token"`,
			w.kubectl(fmt.Sprintf("kubectl -n %s create token %s --duration 8760h", namespace, account)), file, quotedIfNeeded(a.Entry)),
		fmt.Sprintf("kubectl -n %s create secret generic %s --from-file kubeconfig=%s --dry-run=client -o yaml | kubectl apply --server-side --force-conflicts -f -",
			kueuePart.Namespace, a.Secret, file),
		"rm " + file,
	}
}

// missingRights finds workers in which Kueue may not do all that it does for TrainJobs.
func missingRights(f *Facts, found func(hit)) {
	for _, w := range f.told() {
		a, unread := w.Access, w.Unread[accessReviews]
		switch {
		case a == nil:
		case unread != nil:
			found(hit{Finding: notChecked("what Kueue may do in worker cluster %s: %s", w.Name, unreadKind(accessReviews, unread).Reason)})
		case a.User == "":
			found(hit{Finding: notChecked("what Kueue may do in worker cluster %s: %s", w.Name, a.Unclear)})
		case len(w.Lacks) > 0:
			found(w.grant())
		}
	}
}

// grant tells how to give Kueue its rights.
func (w *Worker) grant() hit {
	user := w.Access.User
	subject := rbacv1.Subject{Kind: rbacv1.UserKind, Name: user}
	if namespace, account, err := serviceaccount.SplitUsername(user); err == nil {
		subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}
	}
	h := w.about(object(subject.Kind, subject.Namespace, subject.Name), "rules", ruleNames(w.Lacks))
	h.Commands = []string{w.kubectl("kubectl apply -k config/multikueue")}
	if subject.Namespace != kueuePart.Namespace || subject.Name != workerAccount {
		h.Advice = "config/multikueue gives them to a ServiceAccount of its own; this one has to have them, too:"
		h.Commands = append(h.Commands, w.kubectl(fmt.Sprintf("kubectl create clusterrolebinding %s --clusterrole=%s %s",
			quotedIfNeeded(workerRole+"-"+subject.Name), workerRole, subjectFlag(subject))))
	}
	return h
}
