// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// The restarts that findings give.
var (
	restartKueue   = kueuePart.restart()
	restartManager = managerPart.restart()
)

const (
	applyAll     = "kubectl apply -k config/default"
	applyWebhook = "kubectl apply -k config/webhook"
	applyRoles   = "kubectl apply -f config/rbac/role.yaml"

	ourMutating   = "MutatingWebhookConfiguration kueue-trainer-mutating-webhook-configuration"
	ourDeployment = "Deployment kueue-trainer-system/kueue-trainer-controller-manager"
)

// bindManager is the command for a RoleBinding that is missing.
const bindManager = "kubectl -n kueue-trainer-system create rolebinding kueue-trainer-manager-rolebinding --role=kueue-trainer-manager-role" +
	" --serviceaccount=kueue-trainer-system:kueue-trainer-controller-manager --dry-run=client -o yaml | kubectl apply -f -"

// uninstalled takes kueue-trainer away, as deleting its manifests does.
func uninstalled(f *Facts) {
	f.Deployments, f.Leases = f.Deployments[:3], nil
	f.Mutating, f.Validating = f.Mutating[:3], f.Validating[:3]
	f.Probed = &trainjob.TrainJob{}
}

func scaledToNothing(f *Facts) {
	f.Deployments[3].Spec.Replicas, f.Deployments[3].Status.ReadyReplicas = new(int32(0)), 0
}

// inTreeActive is what the probe brings while Kueue's own webhook suspends TrainJobs.
func inTreeActive(f *Facts) {
	f.Probed = &trainjob.TrainJob{Spec: trainjob.Spec{Suspend: new(true)}}
}

func callFailed(webhook string) error {
	return errors.New(`Internal error occurred: failed calling webhook "` + webhook + `": failed to call webhook: Post "https://x": connection refused`)
}

func (f *Facts) kueueConfig(content string) {
	f.ConfigMaps[0] = configMap(kueuePart, kueueHead+content)
}

func (f *Facts) managerConfig(content string) { f.ConfigMaps[1] = configMap(managerPart, content) }

// Kueue's configuration with its own integration, and the part that names the external one.
const (
	inTreeListed   = "integrations: {frameworks: [trainer.kubeflow.org/trainjob]}"
	externalListed = "externalFrameworks: [TrainJob.v1alpha1.trainer.kubeflow.org]"
)

func withKueue(content string) func(*Facts) { return func(f *Facts) { f.kueueConfig(content) } }

func withManager(content string) func(*Facts) { return func(f *Facts) { f.managerConfig(content) } }

func TestParts(t *testing.T) {
	eachFinds(t, map[string]broken{
		"without Kueue":   on(func(f *Facts) { f.CRDs = f.CRDs[1:] }).fails("PartMissing", "CustomResourceDefinition "+cluster.Kueue.CRD, kueuePart.install),
		"without Trainer": on(func(f *Facts) { f.CRDs = f.CRDs[:2] }).fails("PartMissing", "CustomResourceDefinition "+trainjob.CRDName, trainerPart.install),
		"Kueue of another release, by its image": on(func(f *Facts) { f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "kueue:v0.18.2@sha256:00" }).
			warns("KueueVersion", "Kueue", kueuePart.install),
		"Kueue of another release, by the label of charts": on(func(f *Facts) {
			f.Deployments = f.Deployments[1:]
			f.ConfigMaps[0].Labels = map[string]string{cluster.VersionLabel: "0.20.0"}
		}).warns("KueueVersion", "Kueue", releases),
		"Kueue of an unknown release": on(func(f *Facts) { f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "kueue:main" }),
		"Kueue that does not serve our version of Workloads": on(func(f *Facts) { f.CRDs[0].Spec.Versions[0].Served = false }).
			fails("KueueTooOld", "CustomResourceDefinition "+cluster.Kueue.CRD, kueuePart.install),
		"Trainer before 2.1": on(func(f *Facts) { f.CRDs[2].Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{} }).
			fails("TrainerGeneration", "CustomResourceDefinition "+trainjob.CRDName, trainerPart.install),
	})
}

func TestManager(t *testing.T) {
	notRunning := func(commands ...string) Finding { return found(Error, "ManagerNotRunning", ourDeployment, commands...) }
	unenforced := found(Warning, "PolicyNotEnforced", "ValidatingAdmissionPolicy "+policies.Names()[0], "kubectl apply -k config/policies")
	eachFinds(t, map[string]broken{
		"scaled to nothing": on(scaledToNothing).finds(notRunning("kubectl -n kueue-trainer-system scale deployment kueue-trainer-controller-manager --replicas=2")),
		"no replica ready": on(func(f *Facts) { f.Deployments[3].Status.ReadyReplicas = 0 }).
			finds(notRunning("kubectl -n kueue-trainer-system describe pods", managerPart.logs(), restartManager)),
		"a lease that was given up": on(func(f *Facts) { f.Leases[0].Spec.HolderIdentity = new("") }).finds(notRunning(managerPart.logs(), restartManager)),
		"a lease that ran out": on(func(f *Facts) { f.Leases[0].Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-time.Minute))) }).
			finds(notRunning(managerPart.logs(), restartManager)),
		"clocks that differ a little": on(func(f *Facts) { f.Leases[0].Spec.RenewTime = new(metav1.NewMicroTime(now.Add(-40 * time.Second))) }),
		"no lease":                    on(func(f *Facts) { f.Leases = nil }).finds(notRunning(managerPart.logs(), restartManager)),
		"no leader election":          on(func(f *Facts) { f.Leases = nil; f.managerConfig("leaderElection: {leaderElect: false}") }),
		"a lease of another name": on(func(f *Facts) {
			f.Leases[0].Name = "other"
			f.managerConfig("leaderElection: {resourceName: other}")
		}),
		"bound to nobody": on(func(f *Facts) { f.Deployments, f.RoleBindings = f.Deployments[:3], f.RoleBindings[1:] }).
			fails("PermissionsMissing", "ClusterRoleBinding "+managerBinding, "kubectl apply -k config/rbac"),
		"bound to somebody else": on(func(f *Facts) { f.RoleBindings[1].Subjects = []rbacv1.Subject{{Kind: "User", Name: "other"}} }).
			fails("PermissionsMissing", "Role kueue-trainer-system/kueue-trainer-manager-role", applyRoles, bindManager),
		"a rule is missing": on(func(f *Facts) { f.Roles[0].Rules = f.Roles[0].Rules[1:] }).
			fails("PermissionsMissing", "ClusterRole kueue-trainer-manager-role", applyRoles),
		"a policy is not installed": on(func(f *Facts) { f.Policies = f.Policies[1:] }).finds(unenforced),
		"a policy has no binding":   on(func(f *Facts) { f.PolicyBindings = f.PolicyBindings[1:] }).finds(unenforced),
		"a policy that only warns": on(func(f *Facts) {
			f.PolicyBindings[0].Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		}).finds(unenforced),
		"more than it needs": on(func(f *Facts) {
			f.Roles[0].Rules = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
		}),
	})
}

func TestWebhooks(t *testing.T) {
	service := func(object string, commands ...string) Finding {
		return found(Error, "WebhookService", object, commands...)
	}
	trainerRuns := func(tag string) func(*Facts) {
		return func(f *Facts) {
			f.Deployments[2].Spec.Template.Spec.Containers[0].Image = "registry:5000/trainer:" + tag
		}
	}
	eachFinds(t, map[string]broken{
		"JobSet's are not installed": on(func(f *Facts) { f.Mutating = slices.Delete(f.Mutating, 1, 2) }).
			fails("WebhookMissing", "MutatingWebhookConfiguration jobset-mutating-webhook-configuration", jobSetPart.install),
		"ours were deleted": on(func(f *Facts) { f.Mutating[3].Webhooks = nil }).fails("WebhookMissing", ourMutating, applyWebhook),
		"Trainer 2.1 has nothing to default": on(func(f *Facts) {
			f.CRDs[2] = crd(trainjob.CRDName, "v1alpha1", "podTemplateOverrides")
			f.Mutating = slices.Delete(f.Mutating, 2, 3)
		}),
		"Trainer's controller is of 2.1 still, and has no such webhook": on(trainerRuns("v2.1.0"), func(f *Facts) { f.Mutating = slices.Delete(f.Mutating, 2, 3) }).
			fails("TrainerBehind", "Deployment kubeflow-system/kubeflow-trainer-controller-manager", trainerPart.install),
		"a controller of 2.2, which has one": on(trainerRuns("v2.2.0"), func(f *Facts) { f.Mutating = slices.Delete(f.Mutating, 2, 3) }).
			fails("WebhookMissing", "MutatingWebhookConfiguration defaulter.trainer.kubeflow.org", trainerPart.install),
		"one of 2.2 still, under the CRDs of 2.3": on(trainerRuns("v2.2.1"), func(f *Facts) { f.CRDs[2] = trainer23() }).
			fails("TrainerBehind", "Deployment kubeflow-system/kubeflow-trainer-controller-manager", trainerPart.install),
		"a controller whose number is one's own": on(trainerRuns("v1.4.0")),
		"no authority":                           on(func(f *Facts) { f.Mutating[3].Webhooks[0].ClientConfig.CABundle = nil }).finds(service(ourMutating, restartManager)),
		"no Service": on(func(f *Facts) { f.Services = f.Services[1:] }).
			finds(service("MutatingWebhookConfiguration kueue-mutating-webhook-configuration", kueuePart.install),
				service("ValidatingWebhookConfiguration kueue-validating-webhook-configuration", kueuePart.install)),
		"no ready endpoint": on(func(f *Facts) { f.EndpointSlices[2].Endpoints[0].Conditions.Ready = new(false) }).
			finds(service("MutatingWebhookConfiguration defaulter.trainer.kubeflow.org", trainerPart.logs(), trainerPart.restart()),
				service("ValidatingWebhookConfiguration validator.trainer.kubeflow.org", trainerPart.logs(), trainerPart.restart())),
		"Kueue does not answer, to whatever": on(func(f *Facts) {
			f.Refusals = map[Kind]error{flavorProbe: callFailed("m.Kueue"), jobSetProbe: callFailed("m.Kueue"), trainJobProbe: callFailed("v.Kueue")}
			f.Probed = nil
		}).fails("WebhookSilent", "MutatingWebhookConfiguration kueue-mutating-webhook-configuration", kueuePart.logs(), restartKueue),
		"JobSet does not answer, and Kueue has a webhook of the same name": on(func(f *Facts) {
			f.Mutating[0].Webhooks[0].Name, f.Mutating[1].Webhooks[0].Name = "mjobset.kb.io", "mjobset.kb.io"
			f.Refusals = map[Kind]error{jobSetProbe: errors.New(`failed calling webhook "mjobset.kb.io": failed to call webhook: Post "https://webhook.jobset-system.svc:443/mutate?timeout=10s": no route`)}
		}).fails("WebhookSilent", "MutatingWebhookConfiguration jobset-mutating-webhook-configuration", jobSetPart.logs(), jobSetPart.restart()),
		"kueue-trainer does not answer": on(func(f *Facts) {
			f.Probed, f.Refusals = nil, map[Kind]error{trainJobProbe: callFailed("m.kueue-trainer")}
		}).fails("WebhookSilent", ourMutating, managerPart.logs(), restartManager),
		"a failure is ignored": on(func(f *Facts) { f.Mutating[3].Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore) }).
			fails("WebhookPolicy", ourMutating,
				`kubectl patch mutatingwebhookconfiguration kueue-trainer-mutating-webhook-configuration --type=json -p '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]'`),
		"the webhooks are of a release that lets deactivations pass": on(func(f *Facts) { f.Mutating[3].Webhooks = f.Mutating[3].Webhooks[:1] }).
			fails("WebhookMissing", ourMutating, applyWebhook),
		"a failure of the webhook of Workloads is ignored": on(func(f *Facts) {
			f.Mutating[3].Webhooks[1].FailurePolicy = new(admissionregistrationv1.Ignore)
		}).fails("WebhookPolicy", ourMutating,
			`kubectl patch mutatingwebhookconfiguration kueue-trainer-mutating-webhook-configuration --type=json -p '[{"op":"replace","path":"/webhooks/1/failurePolicy","value":"Fail"}]'`),
		"others are asked after ours, and ours not again": on(func(f *Facts) {
			f.Mutating[3].Webhooks[0].ReinvocationPolicy = nil
			f.Mutating = append(f.Mutating, admissionregistrationv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "policy"},
				Webhooks:   []admissionregistrationv1.MutatingWebhook{{Rules: trainJobRules(admissionregistrationv1.Create)}},
			})
		}).warns("WebhookOrder", ourMutating,
			`kubectl patch mutatingwebhookconfiguration kueue-trainer-mutating-webhook-configuration --type=json -p '[{"op":"replace","path":"/webhooks/0/reinvocationPolicy","value":"IfNeeded"}]'`),
		"nobody is asked after ours": on(func(f *Facts) {
			f.Mutating[3].Webhooks[0].ReinvocationPolicy = nil
			f.Mutating = append(f.Mutating, admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "policy"}})
		}),
		"updates are not seen": on(func(f *Facts) { f.Mutating[3].Webhooks[0].Rules = trainJobRules(admissionregistrationv1.Create) }).
			fails("WebhookScope", ourMutating, applyWebhook),
		"a namespace is left out": on(func(f *Facts) {
			f.Mutating[3].Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		}).fails("WebhookScope", ourMutating, applyWebhook),
		"those are left out that Kueue leaves out": on(withKueue("integrations: {frameworks: [batch/job], "+externalListed+"}\nmanagedJobsNamespaceSelector: {matchLabels: {team: a}}"), func(f *Facts) {
			f.Mutating[3].Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		}),
		"a condition is added": on(func(f *Facts) {
			f.Mutating[3].Webhooks[0].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "mine", Expression: "false"}}
		}).fails("WebhookScope", ourMutating, applyWebhook),
	})
}

func TestConfiguration(t *testing.T) {
	const kueueConfig = "ConfigMap kueue-system/kueue-manager-config"
	fix := []string{fixKueueConfig, restartKueue}
	managers := func(reason string) Finding {
		return found(Warning, reason, "ConfigMap kueue-trainer-system/kueue-trainer-config", fixManagerConfig, restartManager)
	}
	newer := func(f *Facts) { f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "kueue:v0.20.0" }
	eachFinds(t, map[string]broken{
		"both integrations are active": on(inTreeActive, withKueue(inTreeListed)).fails("BothIntegrations", "Kueue", fix...),
		"both are active, and Kueue was not restarted since": on(inTreeActive).
			finds(found(Error, "BothIntegrations", "Kueue", fix...), found(Error, "KueueNotRestarted", kueueConfig, restartKueue)),
		// It leaves it to flavors to tolerate GPU nodes.
		"the in-tree integration alone": on(uninstalled, inTreeActive, withKueue(inTreeListed)).
			fails("TaintNotTolerated", "ResourceFlavor h100",
				`kubectl patch resourceflavor h100 --type=json -p '[{"op":"add","path":"/spec/tolerations","value":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"}]}]'`),
		"the in-tree integration comes with the next restart": on(withKueue(inTreeListed)).warns("KueueNotRestarted", kueueConfig, fix...),
		"Kueue started before its configuration changed": on(func(f *Facts) {
			for i := range f.ConfigMaps {
				f.ConfigMaps[i].CreationTimestamp = metav1.Now()
			}
			f.Pods = append(f.Pods, *kit.KueuePod(kueuePart.Namespace, kueuePart.ConfigMap, time.Now().Add(-time.Hour)))
		}).warns("KueueNotRestarted", kueueConfig, restartKueue),
		"nobody": on(uninstalled).fails("NoIntegration", ourDeployment, applyAll),
		"a webhook without effect": on(func(f *Facts) { f.Probed = &trainjob.TrainJob{} }).
			fails("WebhookWithoutEffect", ourMutating, managerPart.logs(), applyWebhook),
		"a webhook without effect where Kueue manages nothing": on(withKueue("integrations: {frameworks: [batch/job], "+externalListed+"}\nmanagedJobsNamespaceSelector: {matchLabels: {team: a}}"), func(f *Facts) {
			f.Namespaces = append(f.Namespaces, *kit.Namespace("left-out"))
			f.Probed = &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "left-out"}}
		}),
		"TrainJob in both lists": on(withKueue("integrations: {frameworks: [trainer.kubeflow.org/trainjob], "+externalListed+"}")).
			fails("TrainJobListedTwice", kueueConfig, fix...),
		"TrainJob in no list": on(withKueue("integrations: {frameworks: [jobset.x-k8s.io/jobset]}")).warns("TrainJobNotListed", kueueConfig, fix...),
		"TrainJob in no list, and a default queue": on(withKueue("integrations: {frameworks: [jobset.x-k8s.io/jobset]}"), func(f *Facts) {
			f.LocalQueues = append(f.LocalQueues, localQueue("jobs", "default", "gpus"))
		}).fails("TrainJobNotListed", kueueConfig, fix...),
		"TrainJob in no list, and jobs without a queue are managed": on(withKueue("integrations: {frameworks: [jobset.x-k8s.io/jobset]}\nmanageJobsWithoutQueueName: true")).
			fails("TrainJobNotListed", kueueConfig, fix...),
		"TrainJob by the name of its resource": on(withKueue("integrations: {externalFrameworks: [trainjobs.v1alpha1.trainer.kubeflow.org]}")).
			warns("TrainJobNotListed", kueueConfig, fix...),
		"a queue in a namespace that Kueue does not manage": on(withKueue("integrations: {frameworks: [batch/job], "+externalListed+"}\nmanagedJobsNamespaceSelector: {matchLabels: {team: a}}"), func(f *Facts) {
			f.Namespaces = append(f.Namespaces, *kit.Namespace("jobs"))
			f.LocalQueues = append(f.LocalQueues, localQueue("jobs", "one", "gpus"), localQueue("jobs", "two", "gpus"))
		}).warns("NamespaceNotManaged", "Namespace jobs", "kubectl label namespace jobs team=a"),
		"no list at all, and no JobSets": on(withKueue("manageJobsWithoutQueueName: false")).warns("TrainJobNotListed", kueueConfig, fix...),
		"Kueue manages the manager's own pods and Jobs": on(withKueue("integrations: {frameworks: [batch/job, pod], "+externalListed+"}\nmanageJobsWithoutQueueName: true")).
			warns("ManagerManaged", "Namespace kueue-trainer-system", append(fix, restartManager)...),
		"Kueue manages neither pods nor Jobs": on(withKueue("integrations: {frameworks: [jobset.x-k8s.io/jobset], " + externalListed + "}\nmanageJobsWithoutQueueName: true")),
		"Kueue leaves the manager's namespace out": on(withKueue("integrations: {frameworks: [batch/job], " + externalListed + "}\nmanageJobsWithoutQueueName: true\n" +
			"managedJobsNamespaceSelector: {matchLabels: {team: a}}")),
		"Kueue's configuration is no YAML": on(withKueue("integrations: [")).
			fails("KueueConfiguration", kueueConfig, editKueueConfig, restartKueue),
		"without ConfigMaps": on(func(f *Facts) { f.ConfigMaps = nil }),
		"a gate by Kueue's flag": on(func(f *Facts) {
			f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=TopologyAwareScheduling=false, PartialAdmission=true"}
		}).finds(managers("FeatureGatesDiffer")),
		"a gate of ours": on(withManager("featureGates: {TopologyAwareScheduling: false}")).finds(managers("FeatureGatesDiffer")),
		"a gate of ours, and a Kueue that may have another default": on(newer, withManager("featureGates: {TopologyAwareScheduling: false}")).
			warns("KueueVersion", "Kueue", kueuePart.install),
		"a gate of ours that such a Kueue names": on(newer, withKueue("integrations: {frameworks: [batch/job], "+externalListed+"}\nfeatureGates: {TopologyAwareScheduling: true}"),
			withManager("featureGates: {TopologyAwareScheduling: false}")).
			finds(found(Warning, "KueueVersion", "Kueue", kueuePart.install), managers("FeatureGatesDiffer")),
		"a gate in Kueue's configuration that we do not know": on(withKueue("integrations: {frameworks: [batch/job], "+externalListed+"}\nfeatureGates: {FromTheFuture: true}")).
			warns("FeatureGatesUnknown", kueueConfig, editKueueConfig, restartKueue),
		"a gate set to its default, and one that we do not know": on(func(f *Facts) {
			f.managerConfig("featureGates: {TopologyAwareScheduling: true}")
			f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=FromTheFuture=true"}
		}),
		"settings differ": on(withManager("waitForPodsReady: {timeout: 5m}")).finds(managers("SettingsDiffer")),
		"a setting that is off here and on in Kueue": on(withKueue("integrations: {frameworks: [jobset.x-k8s.io/jobset], "+externalListed+"}\nmanageJobsWithoutQueueName: true"),
			withManager("manageJobsWithoutQueueName: false")).finds(managers("SettingsDiffer")),
		"overrides with Kueue's own values, its defaults included": on(withManager("waitForPodsReady: {timeout: 30m}\nmanageJobsWithoutQueueName: false\nintegrations: {labelKeysToCopy: []}")),
		"Kueue's settings are the manager's without a word of it": on(withKueue("integrations: {" + externalListed + ", labelKeysToCopy: [team]}\n" +
			"waitForPodsReady: {timeout: 5m}\nfeatureGates: {TopologyAwareScheduling: false}")),
		"the ConfigMap that the Deployment mounts counts": on(func(f *Facts) {
			old := configMap(managerPart, "waitForPodsReady: {timeout: 5m}")
			old.Name, old.CreationTimestamp = "kueue-trainer-config-old", metav1.NewTime(now)
			f.ConfigMaps = append(f.ConfigMaps, old)
			f.Deployments[3].Spec.Template.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: managerPart.ConfigMap}},
			}}}
		}),
	})
}

func TestKueueNoise(t *testing.T) {
	bare := jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "bare", Labels: map[string]string{kit.QueueLabel: "queue"}}}
	ofTrainJob, unlabelled := *bare.DeepCopy(), *bare.DeepCopy()
	ofTrainJob.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&trainjob.TrainJob{}, trainjob.GVK)}
	unlabelled.Labels = nil
	const needed = "JobSet jobs/bare is queued without a TrainJob, so Kueue has to look after JobSets."
	noise := func(advice string, commands ...string) []Finding {
		return []Finding{{Reason: "KueueNoise", Object: kueueConfigObject, Advice: advice, Commands: commands}}
	}
	quiet := noise("", "kubectl trainjob doctor configmap kueue --without-jobsets | kubectl replace -f -", restartKueue)
	expect.Rows(t, map[string]broken{
		"no JobSet is queued": {want: quiet},
		"those of TrainJobs, and those without a queue, do not count": {change: func(f *Facts) { f.JobSets = []jobsetapi.JobSet{ofTrainJob, unlabelled} },
			want: quiet},
		"a JobSet is queued":                {change: func(f *Facts) { f.JobSets = []jobsetapi.JobSet{bare} }, want: noise(needed)},
		"JobSets cannot be read":            {change: func(f *Facts) { f.Unread[jobSets] = errors.New("forbidden") }, want: noise("")},
		"Kueue does not look after JobSets": {change: withKueue("integrations: {frameworks: [batch/job], " + externalListed + "}")},
	}, func(t *testing.T, tc broken) {
		got := slices.DeleteFunc(newReport(with(t, tc.change)).Findings, func(f Finding) bool { return f.Reason != "KueueNoise" })
		for i := range got {
			if len(got[i].Commands) > 0 {
				got[i].Advice = ""
			}
		}
		expect.Same(t, "Unexpected findings", tc.want, got, cmpopts.IgnoreFields(Finding{}, "Severity", "Problem", "Effect"), cmpopts.EquateEmpty())
	})
}

func TestQueues(t *testing.T) {
	inactive := func(reason string) func(*Facts) {
		return func(f *Facts) {
			f.ClusterQueues[0].Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionFalse, Reason: reason, Message: "Can't admit"}}
		}
	}
	running := func(name, queue string, changes ...func(*kueue.Workload)) func(*Facts) {
		return func(f *Facts) {
			f.Workloads = append(f.Workloads, *kit.With(kit.Workload("jobs", name, queue, now), slices.Concat([]func(*kueue.Workload){kit.Runs("gpus", "h100", now)}, changes)...))
		}
	}
	quota := func(gpus string) string {
		return patchCommand("clusterqueue", "gpus", "replace", "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", gpus)
	}
	deleted := kit.All(inactive(kueue.ClusterQueueActiveReasonTerminating), func(f *Facts) { f.ClusterQueues[0].DeletionTimestamp = new(metav1.NewTime(now)) })
	eachFinds(t, map[string]broken{
		"a LocalQueue to nowhere": on(func(f *Facts) { f.LocalQueues = append(f.LocalQueues, localQueue("team", "lost", "nowhere")) }).
			fails("LocalQueueToNowhere", "LocalQueue team/lost", "kubectl -n team delete localqueue lost"),
		"a LocalQueue that was deleted while two of its jobs run": on(running("a", "gone"), running("b", "gone"), running("c", "queue")).
			warns("LocalQueueGone", "LocalQueue jobs/gone", quota("17"), quota("16")),
		"a job that is held while it stops": on(running("a", "queue.held")),
		"a LocalQueue that was deleted with nothing but what waits or has ended": on(running("a", "gone", kit.Is(kueue.WorkloadFinished, "")), func(f *Facts) {
			f.Workloads = append(f.Workloads, *kit.Workload("jobs", "b", "gone", now))
		}),
		"a stopped ClusterQueue": on(func(f *Facts) {
			f.ClusterQueues[0].Spec.StopPolicy = new(kueue.HoldAndDrain)
			inactive("Stopped")(f)
		}).warns("ClusterQueueStopped", "ClusterQueue gpus", `kubectl patch clusterqueue gpus --type=merge -p '{"spec":{"stopPolicy":"None"}}'`),
		"a LocalQueue that admits what is held": on(func(f *Facts) { f.LocalQueues = append(f.LocalQueues, localQueue("jobs", "queue.held", "gpus")) }).
			warns("LocalQueueOfHeld", "LocalQueue jobs/queue.held", "kubectl -n jobs delete localqueue queue.held"),
		"a stopped LocalQueue": on(func(f *Facts) { f.LocalQueues[0].Spec.StopPolicy = new(kueue.Hold) }).
			warns("LocalQueueStopped", "LocalQueue jobs/queue", `kubectl -n jobs patch localqueue queue --type=merge -p '{"spec":{"stopPolicy":"None"}}'`),
		"a flavor is missing": on(inactive(kueue.ClusterQueueActiveReasonFlavorNotFound)).
			fails("ClusterQueueInactive", "ClusterQueue gpus", generatePools, "kubectl edit clusterqueue gpus"),
		"an admission check is missing": on(inactive(kueue.ClusterQueueActiveReasonAdmissionCheckNotFound)).
			fails("ClusterQueueInactive", "ClusterQueue gpus", "kubectl get admissionchecks", "kubectl edit clusterqueue gpus"),
		"a ClusterQueue on its way out": on(deleted).warns("ClusterQueueInactive", "ClusterQueue gpus", "kubectl get workloads -A -o wide"),
		"a stopped ClusterQueue on its way out": on(deleted, func(f *Facts) { f.ClusterQueues[0].Spec.StopPolicy = new(kueue.Hold) }).
			warns("ClusterQueueInactive", "ClusterQueue gpus", "kubectl get workloads -A -o wide"),
		"one that Kueue has not looked at": on(func(f *Facts) { f.ClusterQueues[0].Status.Conditions = nil }),
	})
}

func TestLeftovers(t *testing.T) {
	gates := found(Error, "GatesLeft", "Namespace jobs", "kubectl trainjob hand-back -n jobs")
	gatedPod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}}
	gated := *gatedJob(t, "jobs", "waits")
	handedOver := kit.All(uninstalled, inTreeActive, withKueue(inTreeListed), func(f *Facts) {
		f.Flavors[0].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	jobSets := []jobsetapi.JobSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "twice", UID: "js", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", UID: "1", Controller: new(true)}}}}}
	owned := func(kind, name, uid string) func(*kueue.Workload) {
		apiVersion := map[string]string{"TrainJob": "trainer.kubeflow.org/v1alpha1", "JobSet": "jobset.x-k8s.io/v1alpha2"}[kind]
		return func(wl *kueue.Workload) {
			wl.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}}
		}
	}
	left := func(changes ...func(*kueue.Workload)) func(*Facts) {
		return func(f *Facts) {
			meta := metav1.ObjectMeta{Namespace: "jobs", Name: "trainjob-old-12345", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
			f.Workloads = append(f.Workloads, *kit.With(&kueue.Workload{ObjectMeta: meta}, changes...))
		}
	}
	ofTrainJob := owned("TrainJob", "old", "1")
	reserved := kit.All(kit.Is(kueue.WorkloadQuotaReserved, ""), func(wl *kueue.Workload) { wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus"} })
	finished := kit.Is(kueue.WorkloadFinished, "")
	goes := func(finalizer string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Finalizers, wl.DeletionTimestamp = []string{finalizer}, new(metav1.NewTime(now.Add(-time.Minute)))
		}
	}
	remains := func(wl *kueue.Workload) {
		reserved(wl)
		wl.Name, wl.OwnerReferences = "remainder-1", []metav1.OwnerReference{{Kind: "ClusterQueue", Name: "gpus", Controller: new(true)}}
		wl.Labels, wl.Annotations = map[string]string{placeholder.Label: "old"}, map[string]string{placeholder.RunsAnnotation: "former"}
	}
	const (
		old       = "Workload jobs/trainjob-old-12345"
		deleteOld = "kubectl -n jobs delete workload trainjob-old-12345"
		freeOld   = `kubectl -n jobs patch workload trainjob-old-12345 --type=merge -p '{"metadata":{"finalizers":null}}'`
	)
	eachFinds(t, map[string]broken{
		"a TrainJob with our gate under the in-tree integration": on(handedOver, func(f *Facts) { f.TrainJobs = []trainjob.TrainJob{gated} }).finds(gates),
		"a JobSet, a Job and a pod with our gate": on(handedOver, func(f *Facts) {
			f.JobSets = []jobsetapi.JobSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs"}, Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{
				{Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: gatedPod}}}}}}}
			f.Jobs = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs"}, Spec: batchv1.JobSpec{Template: gatedPod}}}
			f.Pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs"}, Spec: gatedPod.Spec}}
		}).finds(gates),
		"a Job with our gate that has failed": on(handedOver, func(f *Facts) {
			f.Jobs = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs"}, Spec: batchv1.JobSpec{Template: gatedPod},
				Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}}}
		}),
		"a gate of Trainer 2.1, which has no in-tree integration": on(uninstalled, func(f *Facts) {
			f.CRDs[2] = crd(trainjob.CRDName, "v1alpha1", "podTemplateOverrides")
			f.TrainJobs = []trainjob.TrainJob{gated}
		}).finds(found(Error, "NoIntegration", ourDeployment, applyAll), found(Error, "GatesLeft", "Namespace jobs", applyAll)),
		"gates while kueue-trainer is there": on(func(f *Facts) {
			f.Pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs"}, Spec: gatedPod.Spec}}
		}),
		"a Workload whose TrainJob is gone, with its finalizer": on(left(ofTrainJob, reserved, goes("kueue.x-k8s.io/resource-in-use"))).
			fails("WorkloadOrphaned", old, deleteOld+" --wait=false", freeOld),
		"a Workload whose owner was taken away, with our finalizer": on(left(kit.Copied, finished, goes("kueue-trainer.dev/quota"))).
			warns("WorkloadOrphaned", old, deleteOld+" --wait=false", freeOld),
		"a Workload that MultiKueue deleted, while nobody lets it go": on(left(ofTrainJob, goes(placeholder.Finalizer)), scaledToNothing).finds(found(Error, "ManagerNotRunning", ourDeployment,
			"kubectl -n kueue-trainer-system scale deployment kueue-trainer-controller-manager --replicas=2"),
			found(Error, "WorkloadOrphaned", old, deleteOld+" --wait=false", freeOld)),
		"a Workload that MultiKueue deleted, and kueue-trainer keeps": on(left(ofTrainJob, goes(placeholder.Finalizer))),
		"a Workload of pods that are gone, while nobody deletes it": on(uninstalled, left(remains), left(remains, func(wl *kueue.Workload) {
			wl.Name, wl.Annotations[placeholder.RunsAnnotation] = "other", "run"
		}), func(f *Facts) {
			f.Pods = []corev1.Pod{
				{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Labels: map[string]string{jobsetapi.JobSetUIDKey: "run"}}},
				{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Labels: map[string]string{jobsetapi.JobSetUIDKey: "former"}}, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
			}
		}).finds(found(Error, "NoIntegration", ourDeployment, applyAll),
			found(Error, "WorkloadOrphaned", "Workload jobs/remainder-1", "kubectl -n jobs delete workload remainder-1 --wait=false")),
		"a Workload that goes just now":                  on(left(ofTrainJob, func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.NewTime(now.Add(-time.Second))) })),
		"a Workload without an owner":                    on(left()).warns("WorkloadOrphaned", old, deleteOld+" --wait=false"),
		"a Workload that MultiKueue made before its job": on(left(kit.Copied)),
		"a Workload that is finished":                    on(left(finished)),
		"a TrainJob of Trainer 2.1 with processes by name": on(func(f *Facts) {
			f.CRDs[2] = crd(trainjob.CRDName, "v1alpha1", "podTemplateOverrides")
			f.ProcessesByName = map[string][]string{"jobs": {"llm"}}
		}).warns("ProcessesByName", "Namespace jobs", listProcesses),
		"the same behind an upgrade of Trainer": on(func(f *Facts) { f.ProcessesByName = map[string][]string{"jobs": {"llm"}} }).
			fails("ProcessesByName", "Namespace jobs", listProcesses),
		"a JobSet of a TrainJob with a Workload of its own": on(left(owned("JobSet", "twice", "js")), func(f *Facts) { f.JobSets = jobSets }).fails("CountedTwice", old, deleteOld),
		"the same, finished": on(left(owned("JobSet", "twice", "js"), finished), func(f *Facts) { f.JobSets = jobSets }),
	})
}

const listProcesses = "kubectl -n jobs get trainjobs -o custom-columns=NAME:.metadata.name,PROCESSES:.spec.trainer.numProcPerNode"

func TestCountByNamespace(t *testing.T) {
	pod := func(namespace, name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	counts := map[string][]string{}
	for _, kind := range []string{"Job", "Pod"} {
		count(counts, kind, []corev1.Pod{pod("a", "held"), pod("b", "held"), pod("a", "free"), pod("a", "held")}, func(p *corev1.Pod) bool { return p.Name == "held" })
	}
	expect.Same(t, "Unexpected counts", map[string][]string{"a": {"2 Jobs", "2 Pods"}, "b": {"1 Job", "1 Pod"}}, counts)
}

func TestLoadReadsWhatTrainJobsHaveNoFieldFor(t *testing.T) {
	scheme := kit.Scheme()
	scheme.AddKnownTypeWithName(trainjob.GVK, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(trainjob.GVK.GroupVersion().WithKind("TrainJobList"), &unstructured.UnstructuredList{})
	stored := fake.NewClientBuilder().WithScheme(scheme)
	for name, number := range map[string]any{"llm": "gpu", "two": int64(2)} {
		job := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"trainer": map[string]any{"numProcPerNode": number}}}}
		job.SetGroupVersionKind(trainjob.GVK)
		job.SetNamespace("jobs")
		job.SetName(name)
		stored.WithObjects(job)
	}
	l := newLoader(stored.Build(), now)
	l.processesByName(t.Context())
	expect.Same(t, "Unexpected TrainJobs with processes by name", map[string][]string{"jobs": {"llm"}}, l.facts.ProcessesByName)
}

func TestStuckTrainJobs(t *testing.T) {
	const lostB = " The same holds for 1 more in the namespace: b."
	lost := func(name string) trainjob.TrainJob {
		return trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
			Namespace: "jobs", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)), Labels: map[string]string{kit.QueueLabel: "queue"},
		}}
	}
	first := func(change func(*trainjob.TrainJob)) func(*Facts) {
		return func(f *Facts) {
			f.TrainJobs = f.TrainJobs[:1]
			change(&f.TrainJobs[0])
		}
	}
	urgent := first(func(job *trainjob.TrainJob) { job.Labels["kueue.x-k8s.io/priority-class"] = "urgent" })
	deactivated := func(reason string) func(*Facts) {
		return func(f *Facts) {
			f.TrainJobs = f.TrainJobs[:1]
			wl := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "trainjob-a", OwnerReferences: []metav1.OwnerReference{{UID: "a", Controller: new(true)}}}}
			wl.Spec.QueueName = "queue"
			f.Workloads = []kueue.Workload{*kit.With(&wl, kit.Deactivated, kit.Is(kueue.WorkloadEvicted, reason))}
		}
	}
	asksForMore := kit.All(first(func(job *trainjob.TrainJob) { job.Spec.Suspend = new(true) }), func(f *Facts) {
		wl := kit.Workload("jobs", "trainjob-a", "queue", now, kit.PodSet("node", 1, string(kit.GPU), "8", "rdma/hca", "1"))
		wl.OwnerReferences = []metav1.OwnerReference{{UID: "a", Controller: new(true)}}
		f.Workloads = []kueue.Workload{*wl}
	})
	explainA := func(severity Severity, problem string) []Finding {
		return []Finding{{Severity: severity, Reason: "TrainJobStuck", Object: "TrainJob jobs/a", Commands: []string{"kubectl trainjob explain -n jobs a"}, Problem: problem}}
	}
	expect.Rows(t, map[string]broken{
		"two that nobody queues, and one that is over": {want: explainA(Error, "The TrainJob asks for queue queue and has no Workload after 60m: nobody queues it."+lostB)},
		"that time is what the manager may take":       {change: withManager("waitForJobSet: 2h")},
		"one that is held":                             on(first(func(job *trainjob.TrainJob) { job.Labels[kit.QueueLabel] = "queue.held" })),
		"one without its priority class": {change: urgent,
			want: explainA(Warning, "The TrainJob is not queued: it names WorkloadPriorityClass urgent, which does not exist.")},
		"one with its priority class":                 on(urgent, withManager("waitForJobSet: 2h"), func(f *Facts) { f.PriorityClasses = []kueue.WorkloadPriorityClass{*kit.Priority("urgent", 1000)} }),
		"one that Kueue deactivated":                  {change: deactivated("DeactivatedDueToRequeuingLimitExceeded"), want: explainA(Warning, "")},
		"one that asks for what no queue has":         {change: asksForMore, want: explainA(Warning, "The TrainJob waits in queue queue (ClusterQueue gpus): needs 8 GPUs, ClusterQueue gpus has no quota for rdma/hca, 1st of 1 pending.")},
		"one that asks for what Kueue does not count": on(asksForMore, withKueue("integrations: {"+externalListed+"}\nresources: {excludeResourcePrefixes: [rdma/]}")),
		// Its user has brought that about by a time limit.
		"one that reached its time limit": on(deactivated("DeactivatedDueToMaximumExecutionTimeExceeded")),
	}, func(t *testing.T, tc broken) {
		over := lost("c")
		over.Status.Conditions = []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue}}
		f := with(t, func(f *Facts) { f.TrainJobs = []trainjob.TrainJob{lost("a"), lost("b"), over} }, tc.change)
		finds(t, f, tc.want...)
		if len(tc.want) > 0 && tc.want[0].Problem != "" {
			expect.Same(t, "Unexpected problem", tc.want[0].Problem, newReport(f).Findings[0].Problem)
		}
	})
}

// TestPodsOfStuckTrainJobs has explain told of pods and of what the kubelet says of them.
func TestPodsOfStuckTrainJobs(t *testing.T) {
	// made has a pod whose container is to be made for six minutes.
	made := func(event string) func(*Facts) {
		return func(f *Facts) {
			at := metav1.NewTime(now.Add(-6 * time.Minute))
			owned := func(name, label, by string) metav1.ObjectMeta {
				return metav1.ObjectMeta{Namespace: "jobs", Name: name, UID: types.UID("its-" + name), CreationTimestamp: at,
					Labels:          map[string]string{jobsetapi.JobSetNameKey: "llm", label: by},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "llm", UID: "llm", Controller: new(true)}}}
			}
			f.TrainJobs = []trainjob.TrainJob{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: "llm", UID: "llm", CreationTimestamp: at, Labels: map[string]string{kit.QueueLabel: "queue"}}}}
			f.Workloads = []kueue.Workload{*kit.With(&kueue.Workload{ObjectMeta: owned("wl", "", "")}, kit.Is(kueue.WorkloadQuotaReserved, ""), kit.Is(kueue.WorkloadAdmitted, ""), kit.Since(at.Time))}
			f.JobSets = []jobsetapi.JobSet{{ObjectMeta: owned("llm", "", "")}}
			f.Jobs = []batchv1.Job{{ObjectMeta: owned("llm-node-0", jobsetapi.ReplicatedJobNameKey, "node")}}
			pod := corev1.Pod{ObjectMeta: owned("llm-node-0-0", batchv1.JobNameLabel, "llm-node-0"), Spec: corev1.PodSpec{NodeName: "n"}}
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "node", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}}
			f.Pods = []corev1.Pod{pod}
			f.Events = []corev1.Event{{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs"}, Reason: event, InvolvedObject: corev1.ObjectReference{UID: pod.UID}, LastTimestamp: at}}
		}
	}
	eachFinds(t, map[string]broken{
		"a container is made for too long":     on(made("Scheduled")).fails("TrainJobStuck", "TrainJob jobs/llm", "kubectl -n jobs describe pod llm-node-0-0"),
		"an image is pulled":                   on(made(explain.ImagePulled)),
		"who may not see events does not know": on(made("Scheduled"), func(f *Facts) { f.Events, f.Unread[events] = nil, errors.New("forbidden") }),
	})
}

func TestWhatIsNotThereIsNotCalledInOrder(t *testing.T) {
	const (
		configuration = "Kueue's configuration can be read"
		external      = "Kueue's configuration lists TrainJob as external"
		unmanaged     = "Kueue leaves the manager's namespace alone"
		optedIn       = "Kueue manages the namespaces that have queues"
		restarted     = "Kueue runs with the configuration it has"
		started       = "Kueue has started with the configuration it has"
		gates         = "feature gates are alike"
		alike         = "settings of the same name are alike"
		one           = "one integration looks after TrainJobs"
		running       = "kueue-trainer is running"
		permitted     = "kueue-trainer has its permissions"
		enforced      = "kueue-trainer's policies are enforced"
	)
	type row struct {
		change func(*Facts)
		want   []string
		reason string
	}
	expect.Rows(t, map[string]row{
		"without ConfigMaps": {change: func(f *Facts) { f.ConfigMaps = nil },
			want:   []string{configuration, external, unmanaged, restarted, started, gates, alike, optedIn},
			reason: "there is no ConfigMap kueue-system/kueue-manager-config: Kueue is not installed, or keeps its configuration elsewhere"},
		"without the manager's ConfigMap": {change: func(f *Facts) { f.ConfigMaps = f.ConfigMaps[:1] }, want: []string{gates, alike},
			reason: "there is no ConfigMap kueue-trainer-system/kueue-trainer-config: kueue-trainer is not installed, or keeps its configuration elsewhere"},
		"a configuration that is no YAML": {change: withKueue("integrations: ["), want: []string{external, unmanaged, restarted, started, gates, alike, optedIn},
			reason: "Kueue's configuration cannot be read: decoding Kueue's configuration: yaml: line 3: did not find expected node content"},
		"without kueue-trainer": {change: uninstalled, want: []string{running, permitted, enforced, external, unmanaged, gates, alike},
			reason: "kueue-trainer is not installed"},
		"without an answer to the TrainJob": {change: func(f *Facts) { f.Probed = nil }, want: []string{one, restarted},
			reason: "the API server gave no answer to a TrainJob made as a dry run"},
	}, func(t *testing.T, tc row) {
		f := with(t, tc.change)
		r := newReport(f)
		var want, got []string
		for _, check := range tc.want {
			want = append(want, "Could not check whether "+check+", because "+tc.reason+".")
			expect.That(t, !slices.Contains(r.Passed, check), "Called in order: %s", check)
		}
		for _, finding := range r.Findings {
			if finding.Reason == "NotChecked" {
				got = append(got, finding.Problem)
			}
		}
		expect.Same(t, "Unexpected remarks", want, got)
	})
}

// TestForbiddenIsNotMissing has nobody judge by what could not be read, and everybody told of that.
func TestForbiddenIsNotMissing(t *testing.T) {
	// Each takes away what could not be read.
	forget := map[Kind]func(*Facts){
		nodes:             func(f *Facts) { f.Nodes = nil },
		flavors:           func(f *Facts) { f.Flavors = nil },
		clusterQueues:     func(f *Facts) { f.ClusterQueues = nil },
		localQueues:       func(f *Facts) { f.LocalQueues = nil },
		crds:              func(f *Facts) { f.CRDs = nil },
		mutating:          func(f *Facts) { f.Mutating = nil },
		validating:        func(f *Facts) { f.Validating = nil },
		services:          func(f *Facts) { f.Services = nil },
		endpointSlices:    func(f *Facts) { f.EndpointSlices = nil },
		deployments:       func(f *Facts) { f.Deployments = nil },
		configMaps:        func(f *Facts) { f.ConfigMaps = nil },
		leases:            func(f *Facts) { f.Leases = nil },
		clusterRoles:      func(f *Facts) { f.Roles, f.RoleBindings = f.Roles[1:], f.RoleBindings[1:] },
		admissionPolicies: func(f *Facts) { f.Policies, f.PolicyBindings = nil, nil },
		roleBindings:      func(f *Facts) { f.Roles, f.RoleBindings = f.Roles[:1], f.RoleBindings[:1] },
		trainJobProbe:     func(f *Facts) { f.Probed = nil },
	}
	there := []Kind{pods, cohorts, workloads, trainJobs, jobSets, jobs, jobSetProbe, flavorProbe, schedulerView}
	ofPools := []string{"every flavor has nodes", "every GPU node is in a flavor", "quotas are there as nodes", "the taints of GPU nodes are tolerated"}
	for _, kind := range slices.AppendSeq(there, maps.Keys(forget)) {
		t.Run(string(kind), func(t *testing.T) {
			f := healthy(t)
			// What is right only by the manager's configuration.
			f.Leases[0].Name, f.Nodes[0] = "other", gpuNode("gpu-0", kit.H100, teamTaint)
			f.managerConfig("leaderElection: {resourceName: other}\ntolerationRules: [{resources: [nvidia.com/*], tolerations: [{key: team, operator: Exists}]}]")
			finds(t, f)
			f.Unread[kind] = notAllowedTo("list", string(kind))
			if forget[kind] != nil {
				forget[kind](f)
			}
			r := newReport(f)
			expect.Need(t, r.Errors+r.Warnings == 0 && len(r.Unseen) == 1, "Found what nobody could see, or more is unseen: %+v", r)
			for _, name := range ofPools {
				expect.That(t, !slices.Contains(pools, kind) || slices.Contains(r.Unseen[0].Checks, name), "Not told that it is not known whether %s", name)
			}
			var out strings.Builder
			expect.Same(t, "Unexpected exit code", exit.Unseen, exit.Code(report(&out, "", r)))
			checks := show.Count(len(r.Unseen[0].Checks), "check")
			want := fmt.Sprintf("Not known: %d checks made, nothing found; %d could not be made.\nunseen   %s (you may not %s): %s\n", r.Checks, r.NotMade, kind, kind.verb(), checks)
			expect.Same(t, "Unexpected text", want, out.String())
		})
	}
}

// notAllowedTo is what the API server answers to whom RBAC gives no right.
func notAllowedTo(verb, resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("User %q cannot %s resource %q in API group \"\" at the cluster scope", "jane", verb, resource))
}

func TestOnlyRightsAreToldAsRights(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "jobsets"}, "x", errors.New("exceeded quota: none, requested: count/jobsets=1"))
	type row struct {
		unread map[Kind]error
		reason string
		code   int
	}
	expect.Rows(t, map[string]row{
		"no right to make one":    {unread: map[Kind]error{jobSetProbe: notAllowedTo("create", "jobsets")}, reason: "you may not make one", code: exit.Unseen},
		"no right to list them":   {unread: map[Kind]error{nodes: notAllowedTo("list", "nodes")}, reason: "you may not list them", code: exit.Unseen},
		"a quota":                 {unread: map[Kind]error{jobSetProbe: quota}, reason: quota.Error(), code: exit.Failed},
		"a timeout":               {unread: map[Kind]error{nodes: apierrors.NewTimeoutError("slow", 1)}, reason: "Timeout: slow", code: exit.Failed},
		"a quota, beside a right": {unread: map[Kind]error{jobSetProbe: quota, flavorProbe: notAllowedTo("create", "resourceflavors")}, reason: quota.Error(), code: exit.Failed},
	}, func(t *testing.T, tc row) {
		f := healthy(t)
		f.Unread = tc.unread
		r := newReport(f)
		expect.That(t, slices.ContainsFunc(r.Unseen, func(u Unseen) bool { return u.Reason == tc.reason }), "The reason is not told: %+v", r.Unseen)
		err := report(io.Discard, "", r)
		expect.Same(t, "Unexpected exit code of error "+expect.Text(err), tc.code, exit.Code(err))
		expect.That(t, strings.Contains(err.Error(), "run doctor as somebody") == (tc.code == exit.Unseen), "The advice is not what helps: %v", err)
	})
}
