// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Facts are what the checks look at. Of an object that is not there, there is nothing.
type Facts struct {
	Now                  time.Time
	*inventory.Inventory                  // nodes, flavors, queues and Workloads
	Cluster              *explain.Cluster // the scheduler's view of them; nil where there is none

	Namespaces      []corev1.Namespace
	Events          []corev1.Event // warnings, and what kubelets say of images that they pull
	TrainJobs       []trainjob.TrainJob
	ProcessesByName map[string][]string           // names by namespace; no TrainJob here has what makes them so
	PriorityClasses []kueue.WorkloadPriorityClass // Kueue's
	JobSets         []jobsetapi.JobSet
	Jobs            []batchv1.Job // those of JobSets

	CRDs       []apiextensionsv1.CustomResourceDefinition
	Mutating   []admissionregistrationv1.MutatingWebhookConfiguration
	Validating []admissionregistrationv1.MutatingWebhookConfiguration // see asMutating

	Policies       []admissionregistrationv1.ValidatingAdmissionPolicy
	PolicyBindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding

	// Of the namespaces of the parts.
	Services       []corev1.Service
	EndpointSlices []discoveryv1.EndpointSlice
	Deployments    []appsv1.Deployment
	ConfigMaps     []corev1.ConfigMap
	Leases         []coordinationv1.Lease

	// Roles and RoleBindings of the manager's namespace, and those of the cluster, which have none.
	Roles        []rbacv1.Role
	RoleBindings []rbacv1.RoleBinding

	Probed   *trainjob.TrainJob // queued, as the webhooks of every part left it, and not stored; nil without an answer
	Refusals map[Kind]error     // why the object of a probe was refused

	// What a manager cluster of MultiKueue knows of workers; Workers have an entry for each MultiKueueCluster.
	MultiKueueClusters []kueue.MultiKueueCluster
	MultiKueueConfigs  []kueue.MultiKueueConfig
	Workers            []Worker
	Runtimes           []trainer.TrainingRuntime // those of all namespaces have none

	Unread map[Kind]error // what could not be read, and why
}

// Kind is what the loader reads in one go: a resource as RBAC names it, or a probe.
type Kind string

func (f *Facts) crd(name string) *apiextensionsv1.CustomResourceDefinition {
	return inventory.Find(f.CRDs, "", name)
}

// generation is that of the served Trainer; 0 where it is unknown.
func (f *Facts) generation() trainjob.TrainerVersion {
	crd := f.crd(trainjob.CRDName)
	if crd == nil {
		return 0
	}
	generation, _ := trainjob.TrainerVersionOf(crd)
	return generation
}

func (f *Facts) deployment(p *part) *appsv1.Deployment {
	return inventory.Find(f.Deployments, f.at(p).Namespace, p.Deployment)
}

// configMap returns the configuration of a part, or nil; of several with suffixes the mounted one, or else the newest.
func (f *Facts) configMap(p *part) *corev1.ConfigMap {
	at := f.at(p)
	elsewhere := func(cm corev1.ConfigMap) bool { return cm.Namespace != at.Namespace }
	return cluster.ConfigMapOf(f.deployment(p), slices.DeleteFunc(slices.Clone(f.ConfigMaps), elsewhere), at.ConfigMap)
}

// managerInstalled reports whether kueue-trainer is there, in whatever state.
func (f *Facts) managerInstalled() bool {
	return f.deployment(managerPart) != nil || slices.ContainsFunc(f.webhooks(), func(w webhook) bool { return w.part == managerPart })
}

// integration is who takes TrainJobs into queues, as far as the API server can tell.
type integration int

const (
	unknown integration = iota // without an answer to the probe
	nobody
	inTree
	external
)

// integrates tells by the probe who takes TrainJobs into queues. While both are active, it is the in-tree integration.
func (f *Facts) integrates() integration {
	job := f.Probed
	switch {
	case job == nil:
		return unknown
	case !job.Suspended() && f.leftOut(job.Namespace):
		return unknown
	case !job.Suspended():
		return nobody
	case patch.HoldsGate(&job.Spec):
		return external
	default:
		return inTree
	}
}

// failedWebhook returns the name of the webhook that did not answer, and why; empty when err is of another kind.
func failedWebhook(err error) (name, reason string) {
	_, rest, _ := strings.Cut(fmt.Sprint(err), `failed calling webhook "`)
	name, reason, _ = strings.Cut(rest, `": `)
	return name, strings.TrimPrefix(reason, "failed to call webhook: ")
}

// How Kueue's configuration names TrainJobs.
const (
	inTreeFramework   = kueueconfig.InTreeFramework
	externalFramework = "TrainJob.v1alpha1.trainer.kubeflow.org"
	jobSetFramework   = "jobset.x-k8s.io/jobset"
)

// kueueSettings is Kueue's configuration with its defaults, without fields that are not known here.
func (f *Facts) kueueSettings() (*configapi.Configuration, error) {
	cm := f.configMap(kueuePart)
	if cm == nil {
		return nil, f.withoutConfigMap(kueuePart)
	}
	cfg, err := kueueconfig.Decode([]byte(cm.Data[f.at(kueuePart).configKey]), cm.Namespace)
	if err != nil {
		return nil, fmt.Errorf("Kueue's configuration cannot be read: %w", err)
	}
	return cfg, nil
}

// settingsInForce returns the settings that Kueue goes by, and the manager: Kueue's ConfigMap under its own overrides.
func (f *Facts) settingsInForce() (kueues, managers *kueueconfig.Settings, err error) {
	cfg, err := f.kueueSettings()
	if err != nil {
		return nil, nil, err
	}
	running := cfg.DeepCopy()
	running.FeatureGates = map[string]bool{}
	maps.Copy(running.FeatureGates, cfg.FeatureGates)
	maps.Copy(running.FeatureGates, f.kueueGateFlags())
	// Gates that this version does not know have the same value on both sides.
	kueues, _ = kueueconfig.Of(running, kueueconfig.Overrides{})
	managers, _ = kueueconfig.Of(cfg, f.managerConfiguration().Overrides)
	return kueues, managers, nil
}

// managerConfiguration is the manager's with its defaults; these alone where there is none that can be read.
func (f *Facts) managerConfiguration() *managerconfig.Configuration {
	return cluster.WithDefaults(cluster.ManagerConfigurationIn(f.configMap(managerPart)))
}

// listsInTree and listsExternal report where Kueue's configuration has TrainJobs.
func listsInTree(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.Frameworks, inTreeFramework)
}

func listsExternal(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.ExternalFrameworks, externalFramework)
}

// kueueGateFlags are the feature gates that Kueue's Deployment sets by a flag, which the manager does not see.
func (f *Facts) kueueGateFlags() map[string]bool {
	gates := map[string]bool{}
	flag := cliflag.NewMapStringBool(&gates)
	for _, container := range ptr.Deref(f.deployment(kueuePart), appsv1.Deployment{}).Spec.Template.Spec.Containers {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if list, found := strings.CutPrefix(strings.TrimLeft(arg, "-"), "feature-gates="); found {
				_ = flag.Set(list) // Kueue does not start with what this does not take.
			}
		}
	}
	return gates
}

// managesNamespace reports whether Kueue manages jobs without a queue in a namespace.
func (f *Facts) managesNamespace(cfg *configapi.Configuration, name string) bool {
	selector, _ := metav1.LabelSelectorAsSelector(cfg.ManagedJobsNamespaceSelector) // Who decoded it has looked.
	selected, _ := f.selected(selector, name)
	return cfg.ManageJobsWithoutQueueName && selected
}

// selected reports whether a selector takes a namespace, and whether the namespace is there.
func (f *Facts) selected(selector labels.Selector, name string) (selected, known bool) {
	namespace := inventory.Find(f.Namespaces, "", name)
	return namespace != nil && selector.Matches(labels.Set(namespace.Labels)), namespace != nil
}

// leftOut reports whether Kueue is known to leave a namespace alone: then so does everybody.
func (f *Facts) leftOut(namespace string) bool {
	_, settings, err := f.settingsInForce()
	if err != nil {
		return false
	}
	selected, known := f.selected(settings.NamespaceSelector(), namespace)
	return known && !selected
}
