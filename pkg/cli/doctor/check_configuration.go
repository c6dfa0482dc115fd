// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Commands on Kueue's configuration.
const (
	fixKueueConfig   = "kubectl trainjob doctor configmap kueue | kubectl replace -f -"
	quietKueueConfig = "kubectl trainjob doctor configmap kueue --without-jobsets | kubectl replace -f -"
	fixManagerConfig = "kubectl trainjob doctor configmap kueue-trainer | kubectl replace -f -"
)

var editKueueConfig = fmt.Sprintf("kubectl -n %s edit configmap %s", kueuePart.Namespace, kueuePart.ConfigMap)

var kueueConfigObject = object("ConfigMap", kueuePart.Namespace, kueuePart.ConfigMap)

// restarted are the commands that correct Kueue's configuration and have it go by that.
var restarted = []string{fixKueueConfig, kueuePart.restart()}

var configurationChecks = []check{{
	inOrder: "Kueue's configuration can be read", looksAt: []Kind{configMaps, deployments}, given: []condition{kueueConfigMap},
	wrong: func(f *Facts, found func(hit)) {
		if _, err := f.kueueSettings(); err != nil {
			found(hit{values: []any{"problem", sentence(err.Error())}})
		}
	},
	ID: "KueueConfiguration", Severity: Error, When: "Kueue's cannot be decoded", object: kueueConfigObject,
	problem: "{problem}", effect: "Kueue does not start with it.",
	commands: []string{editKueueConfig, kueuePart.restart()},
}, {
	inOrder: "Kueue's configuration lists TrainJob as external", looksAt: []Kind{configMaps, mutating, validating, deployments, localQueues}, given: []condition{managerThere, kueueConfigured}, wrong: listed,
	ID: "TrainJobListedTwice", Severity: Error, When: "TrainJob is in `integrations.frameworks` and in `.externalFrameworks`: Kueue refuses that", object: kueueConfigObject,
	problem: "Kueue's configuration lists TrainJob in integrations.frameworks and in integrations.externalFrameworks.",
	effect:  "Kueue refuses the configuration and does not start with it.", commands: restarted,
}, {
	ID: "TrainJobNotListed", Severity: Warning, When: "TrainJob is in neither; an error where something gives child JobSets a queue, so that Kueue counts them a second time", object: kueueConfigObject,
	problem: "Kueue's configuration does not list TrainJob as an external framework.",
	effect:  "A child JobSet that is given a queue, by a LocalQueue named default or by manageJobsWithoutQueueName, is queued and counted a second time.", commands: restarted,
}, {
	ID: "KueueNoise", Severity: Info, When: "Kueue looks after JobSets too, and logs errors for running TrainJobs; with the command that ends most of them where no JobSet is queued without a TrainJob", object: kueueConfigObject,
	problem: "Kueue logs errors about a missing index on ownerReferences for running TrainJobs: it sets none up for external kinds.",
	effect:  "They are harmless, and cost some of Kueue's CPU.",
}, {
	inOrder: "Kueue leaves the manager's namespace alone", looksAt: []Kind{configMaps, namespaceKind, mutating, validating, deployments}, given: []condition{managerThere, kueueConfigured}, wrong: managedManager,
	ID: "ManagerManaged", Severity: Warning, When: "with `manageJobsWithoutQueueName`, Kueue holds back pods of the manager or the Job that `helm uninstall` waits for",
	object:  object("Namespace", "", managerPart.Namespace),
	problem: "Kueue's manageJobsWithoutQueueName is on, and its managedJobsNamespaceSelector has the manager's namespace.",
	effect:  "{effects}", commands: append(slices.Clone(restarted), managerPart.restart()),
}, {
	inOrder: "Kueue runs with the configuration it has", looksAt: []Kind{configMaps, deployments, trainJobProbe}, given: []condition{kueueConfigured, probeAnswered},
	wrong: func(f *Facts, found func(hit)) {
		switch {
		case f.listsOther() && f.integrates() == inTree:
			found(hit{}.as("KueueNotRestarted", Error))
		case f.listsOther():
			found(hit{})
		}
	},
	ID: "KueueNotRestarted", Severity: Warning, When: "Kueue's configuration lists the in-tree integration, which is not active", object: kueueConfigObject,
	problem: "Kueue's configuration lists TrainJob in integrations.frameworks, but the integration is not active: Kueue runs with an older configuration.",
	effect:  "The in-tree integration takes TrainJobs over at Kueue's next restart.",
	advice:  "If that is what you want, only restart Kueue.", commands: restarted,
}, {
	ID: "KueueNotRestarted", Severity: Error, When: "the in-tree integration is still active, though the configuration does not list it", object: kueueConfigObject,
	problem: "Kueue's in-tree integration is active, though its configuration does not list it: Kueue runs with an older configuration.",
	effect:  "kueue-trainer stands aside until Kueue is restarted.", commands: []string{kueuePart.restart()},
}, {
	inOrder: "Kueue has started with the configuration it has", looksAt: []Kind{configMaps, deployments, pods}, given: []condition{kueueConfigured},
	wrong: func(f *Facts, found func(hit)) {
		pod, changed := kueueconfig.Behind(f.configMap(kueuePart), f.Pods, f.Now)
		if pod != nil && !f.listsOther() {
			found(hit{values: []any{"pod", pod.Name, "changed", changed.UTC().Format(time.RFC3339)}})
		}
	},
	ID: "KueueNotRestarted", Severity: Warning, When: "the configuration changed after Kueue started", object: kueueConfigObject,
	problem: "Kueue's configuration changed at {changed}, after pod {pod} started: Kueue runs with an older one.",
	effect:  "Kueue goes by the former settings until it is restarted, and so does kueue-trainer, unless it started since.", commands: []string{kueuePart.restart()},
}, {
	inOrder: "feature gates are alike", looksAt: []Kind{configMaps, mutating, validating, deployments}, given: []condition{managerThere, kueueConfigured, managerConfigMap},
	wrong: func(f *Facts, found func(hit)) {
		f.differing(f.gateDifferences, found)
		cfg, _ := f.kueueSettings()
		if _, err := kueueconfig.Of(cfg, kueueconfig.Overrides{}); err != nil {
			found(hit{values: []any{"problem", strings.ReplaceAll(err.Error(), "\n", "; ")}}.as("FeatureGatesUnknown", Warning))
		}
	},
	ID: "FeatureGatesDiffer", Severity: Warning, When: "the manager overrides a gate of Kueue's with another value, or Kueue has one from a flag, which the manager does not see",
	problem:  "Feature gates differ: {differ}.",
	effect:   "Gates decide what stands in Workloads and on pods: one side undoes, or does not understand, what the other writes.",
	commands: []string{"{fix}", managerPart.restart()},
}, {
	ID: "FeatureGatesUnknown", Severity: Warning, When: "Kueue's configuration sets gates that the manager does not know or cannot change", object: kueueConfigObject,
	problem:  "Kueue's configuration sets feature gates that kueue-trainer leaves out: {problem}.",
	effect:   "TrainJobs are treated without them, otherwise than all other jobs. The rest of the configuration is in force.",
	advice:   "Install the kueue-trainer that is made for this Kueue; its configuration takes no such gate. Or do without them:",
	commands: []string{editKueueConfig, kueuePart.restart()},
}, {
	inOrder: "settings of the same name are alike", looksAt: []Kind{configMaps, mutating, validating, deployments}, given: []condition{managerThere, kueueConfigured, managerConfigMap},
	wrong: func(f *Facts, found func(hit)) { f.differing(kueueconfig.Differences, found) },
	ID:    "SettingsDiffer", Severity: Warning, When: "the manager overrides a [setting of Kueue's](operate.md#settings-of-kueues) with another value",
	problem: "kueue-trainer's configuration overrides Kueue's with other values for {differ}.",
	effect:  "TrainJobs are treated otherwise than all other jobs.", commands: []string{"{fix}", managerPart.restart()},
}}

// listed tells the ways apart in which Kueue can know of TrainJobs. Which one is active in-tree shows in the other checks.
func listed(f *Facts, found func(hit)) {
	switch cfg, _ := f.kueueSettings(); {
	case listsInTree(cfg) && listsExternal(cfg):
		found(hit{})
	case listsExternal(cfg) && slices.Contains(cfg.Integrations.Frameworks, jobSetFramework):
		found(f.noise(cfg))
	case !listsInTree(cfg) && !listsExternal(cfg):
		found(f.notListed(cfg))
	}
}

// noise tells of the errors that Kueue logs while it looks after JobSets as well, and how to be rid of most of them.
func (f *Facts) noise(cfg *configapi.Configuration) hit {
	h := hit{}.as("KueueNoise", Info)
	queued := slices.IndexFunc(f.JobSets, func(js jobsetapi.JobSet) bool {
		return controllerOf(&js).Kind != trainjob.GVK.Kind && (cfg.ManageJobsWithoutQueueName || js.Labels[constants.QueueLabel] != "")
	})
	switch {
	case f.Unread[jobSets] != nil:
	case queued >= 0:
		h.Advice = object("JobSet", f.JobSets[queued].Namespace, f.JobSets[queued].Name) + " is queued without a TrainJob, so Kueue has to look after JobSets."
	default:
		h.Advice = "No JobSet is queued without a TrainJob. If none is going to be, take JobSets out of Kueue's frameworks, and two thirds of the errors go:"
		h.Commands = []string{quietKueueConfig, kueuePart.restart()}
	}
	return h
}

// notListed is the case of TrainJob in neither list: quiet and right, until something gives a child JobSet a queue.
func (f *Facts) notListed(cfg *configapi.Configuration) hit {
	h := hit{}.as("TrainJobNotListed", Warning)
	// By the name of the resource, say, as OpenShift's operator writes it.
	misnamed := slices.IndexFunc(cfg.Integrations.ExternalFrameworks, func(name string) bool {
		return strings.HasSuffix(name, "."+trainjob.GVK.Group) && strings.HasPrefix(strings.ToLower(name), "trainjob")
	})
	if misnamed >= 0 {
		h.Problem = fmt.Sprintf("Kueue's configuration lists %s as an external framework, which Kueue takes and does not know for the kind TrainJob; its name is %s.",
			cfg.Integrations.ExternalFrameworks[misnamed], externalFramework)
		h.Advice = "Where an operator writes this ConfigMap, change the operator's resource instead, as docs/install.md#openshift says."
	}
	if why := f.givesQueues(cfg); why != "" {
		h.Severity = Error
		h.Effect = fmt.Sprintf("Child JobSets are queued and counted a second time, because %s.", why)
	}
	return h
}

// givesQueues tells what gives JobSets a queue that name none, or is empty.
func (f *Facts) givesQueues(cfg *configapi.Configuration) string {
	if !slices.Contains(cfg.Integrations.Frameworks, jobSetFramework) {
		return ""
	}
	if cfg.ManageJobsWithoutQueueName {
		return "manageJobsWithoutQueueName is on"
	}
	for _, q := range f.LocalQueues {
		if q.Name == string(constants.DefaultLocalQueueName) {
			return fmt.Sprintf("namespace %s has a LocalQueue named %s", q.Namespace, q.Name)
		}
	}
	return ""
}

// listsOther reports whether Kueue's configuration has another integration than is active.
func (f *Facts) listsOther() bool {
	cfg, _ := f.kueueSettings()
	return !(listsInTree(cfg) && listsExternal(cfg)) && listsInTree(cfg) != (f.integrates() == inTree)
}

// differing is about the manager's ConfigMap, suffix included, where it has other settings hold than Kueue's.
func (f *Facts) differing(of func(kueues, here *kueueconfig.Settings) []kueueconfig.Difference, found func(hit)) {
	kueues, managers, _ := f.settingsInForce()
	var differ []string
	for _, d := range of(kueues, managers) {
		text := d.Setting
		if gate, is := strings.CutPrefix(text, "featureGates."); is {
			text = fmt.Sprintf("%s is %t in Kueue and %t in kueue-trainer", gate, d.Kueue, d.Here)
		}
		differ = append(differ, text)
	}
	if len(differ) == 0 {
		return
	}
	fix := cmp.Or(f.upgrade(configure(f.valuesLikeKueue())), fixManagerConfig)
	found(about("ConfigMap", managerPart.Namespace, f.configMap(managerPart).Name, "differ", strings.Join(differ, ", "), "fix", fix))
}

// gateDifferences are of gates whose value in Kueue is known: another release may have another default.
func (f *Facts) gateDifferences(kueues, managers *kueueconfig.Settings) []kueueconfig.Difference {
	differ := kueueconfig.GateDifferences(kueues, managers)
	if minor := cluster.MinorOf(f.version(kueuePart)); minor == "" || minor == cluster.KueueMinor {
		return differ
	}
	cfg, _ := f.kueueSettings()
	flags := f.kueueGateFlags()
	return slices.DeleteFunc(differ, func(d kueueconfig.Difference) bool {
		gate := strings.TrimPrefix(d.Setting, "featureGates.")
		_, named := cfg.FeatureGates[gate]
		_, flagged := flags[gate]
		return !named && !flagged
	})
}

// managedManager finds a Kueue that holds the manager's own pods and Jobs back, which name no queue.
func managedManager(f *Facts, found func(hit)) {
	cfg, _ := f.kueueSettings()
	if !f.managesNamespace(cfg, f.at(managerPart).Namespace) {
		return
	}
	var effects []string
	if slices.Contains(cfg.Integrations.Frameworks, "pod") {
		effects = append(effects, "New pods of the manager wait for quota, and may never start.")
	}
	if slices.Contains(cfg.Integrations.Frameworks, "batch/job") {
		effects = append(effects, "The Job that frees TrainJobs before an uninstall waits for quota, and helm uninstall fails.")
	}
	if len(effects) > 0 {
		found(hit{values: []any{"effects", strings.Join(effects, " ")}})
	}
}
