// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Commands on Kueue's configuration.
const (
	fixKueueConfig   = "kubectl trainjob doctor configmap kueue | kubectl replace -f -"
	quietKueueConfig = "kubectl trainjob doctor configmap kueue --without-jobsets | kubectl replace -f -"
	fixManagerConfig = "kubectl trainjob doctor configmap kueue-trainer | kubectl replace -f -"
)

var kueueConfigObject = object("ConfigMap", kueuePart.namespace, kueuePart.configMap)

// integrations finds none or two that look after TrainJobs, by what the API server makes
// of a queued one.
func integrations(f *Facts) []Finding {
	installed := f.managerInstalled()
	switch answer := f.integrates(); {
	case answer == unknown:
		return nil
	case answer == inTree && installed:
		return []Finding{{
			Severity: Error, Reason: "BothIntegrations", Object: "Kueue",
			Problem:  "Kueue's in-tree TrainJob integration is active, and kueue-trainer is installed as well.",
			Effect:   "kueue-trainer stands aside: all TrainJobs are in the in-tree integration's hands.",
			Advice:   "To keep the in-tree integration, uninstall kueue-trainer as docs/in-tree.md says. To go over to kueue-trainer:",
			Commands: []string{fixKueueConfig, kueuePart.restart()},
		}}
	case answer == inTree:
		return []Finding{{
			Severity: Info, Reason: "InTree", Object: "Kueue",
			Problem: "Kueue's in-tree integration looks after TrainJobs; kueue-trainer is not installed.",
		}}
	case answer == nobody && installed:
		return []Finding{{
			Severity: Error, Reason: "WebhookWithoutEffect", Object: object("MutatingWebhookConfiguration", "", managerPart.mutating),
			Problem:  "A TrainJob in a queue is not suspended when it is made, though kueue-trainer is installed.",
			Effect:   "New TrainJobs run at once, without quota, until the manager sees them.",
			Commands: []string{managerPart.logs(), f.install(managerPart)},
		}}
	case answer == nobody:
		return []Finding{{
			Severity: Error, Reason: "NoIntegration", Object: object("Deployment", managerPart.namespace, managerPart.deployment),
			Problem:  "Nobody looks after TrainJobs: kueue-trainer is not installed, and Kueue's in-tree integration is off.",
			Effect:   "A TrainJob in a queue runs at once, without quota.",
			Commands: []string{f.apply("default")},
		}}
	}
	return nil
}

// kueueConfiguration finds one that Kueue cannot read.
func kueueConfiguration(f *Facts) []Finding {
	if _, err := f.kueueSettings(); err != nil {
		return []Finding{{
			Severity: Error, Reason: "KueueConfiguration", Object: kueueConfigObject,
			Problem:  sentence(err.Error()),
			Effect:   "Kueue does not start with it.",
			Commands: []string{fmt.Sprintf("kubectl -n %s edit configmap %s", kueuePart.namespace, kueuePart.configMap), kueuePart.restart()},
		}}
	}
	return nil
}

// listed tells the ways apart in which Kueue can know of TrainJobs. Which one is active
// in-tree shows in the other checks.
func listed(f *Facts) []Finding {
	cfg, err := f.kueueSettings()
	switch {
	case err != nil:
		return nil
	case listsInTree(cfg) && listsExternal(cfg):
		return []Finding{{
			Severity: Error, Reason: "TrainJobListedTwice", Object: kueueConfigObject,
			Problem:  "Kueue's configuration lists TrainJob in integrations.frameworks and in integrations.externalFrameworks.",
			Effect:   "Kueue refuses the configuration and does not start with it.",
			Commands: []string{fixKueueConfig, kueuePart.restart()},
		}}
	case listsExternal(cfg):
		return f.noise(cfg)
	case !listsInTree(cfg):
		return []Finding{f.notListed(cfg)}
	}
	return nil
}

// noise tells of the errors that Kueue logs while it looks after JobSets as well, and how to
// be rid of most of them where no JobSet is queued by itself.
func (f *Facts) noise(cfg *configapi.Configuration) []Finding {
	if !slices.Contains(cfg.Integrations.Frameworks, jobSetFramework) {
		return nil
	}
	finding := Finding{
		Severity: Info, Reason: "KueueNoise", Object: kueueConfigObject,
		Problem: "Kueue logs errors about a missing index on ownerReferences for running TrainJobs: it sets none up for external kinds.",
		Effect:  "They are harmless, and cost some of Kueue's CPU.",
	}
	queued := f.queuedJobSet(cfg)
	switch {
	case f.Unread[jobSets] != nil:
	case queued != "":
		finding.Advice = queued + " is queued without a TrainJob, so Kueue has to look after JobSets."
	default:
		finding.Advice = "No JobSet is queued without a TrainJob. If none is going to be, take JobSets out of Kueue's frameworks, and two thirds of the errors go:"
		finding.Commands = []string{quietKueueConfig, kueuePart.restart()}
	}
	return []Finding{finding}
}

// queuedJobSet names a JobSet of no TrainJob that Kueue manages, or is empty.
func (f *Facts) queuedJobSet(cfg *configapi.Configuration) string {
	for i := range f.JobSets {
		js := &f.JobSets[i]
		owner := metav1.GetControllerOfNoCopy(js)
		if owner != nil && owner.Kind == trainjob.GVK.Kind {
			continue
		}
		if cfg.ManageJobsWithoutQueueName || js.Labels[constants.QueueLabel] != "" {
			return object("JobSet", js.Namespace, js.Name)
		}
	}
	return ""
}

// notListed is the case of TrainJob in neither list: quiet and right, until something
// gives a child JobSet a queue.
func (f *Facts) notListed(cfg *configapi.Configuration) Finding {
	finding := Finding{
		Severity: Warning, Reason: "TrainJobNotListed", Object: kueueConfigObject,
		Problem:  "Kueue's configuration does not list TrainJob as an external framework.",
		Effect:   "A child JobSet that is given a queue, by a LocalQueue named default or by manageJobsWithoutQueueName, is queued and counted a second time.",
		Commands: []string{fixKueueConfig, kueuePart.restart()},
	}
	if misnamed := misnamedExternal(cfg); misnamed != "" {
		finding.Problem = fmt.Sprintf("Kueue's configuration lists %s as an external framework, which Kueue takes and does not know for the kind TrainJob; its name is %s.", misnamed, externalFramework)
		finding.Advice = "Where an operator writes this ConfigMap, change the operator's resource instead, as docs/install.md#openshift says."
	}
	if why := f.givesQueues(cfg); why != "" {
		finding.Severity = Error
		finding.Effect = fmt.Sprintf("Child JobSets are queued and counted a second time, because %s.", why)
	}
	return finding
}

// misnamedExternal returns an external framework that is meant to be TrainJob, by the name of its resource, say,
// as OpenShift's operator writes it; empty: there is none.
func misnamedExternal(cfg *configapi.Configuration) string {
	i := slices.IndexFunc(cfg.Integrations.ExternalFrameworks, func(name string) bool {
		return name != externalFramework && strings.HasSuffix(name, "."+trainjob.GVK.Group) && strings.HasPrefix(strings.ToLower(name), "trainjob")
	})
	if i < 0 {
		return ""
	}
	return cfg.Integrations.ExternalFrameworks[i]
}

// givesQueues tells what gives JobSets a queue that name none, or is empty.
func (f *Facts) givesQueues(cfg *configapi.Configuration) string {
	if !slices.Contains(cfg.Integrations.Frameworks, jobSetFramework) {
		return ""
	}
	if cfg.ManageJobsWithoutQueueName {
		return "manageJobsWithoutQueueName is on"
	}
	for i := range f.LocalQueues {
		if q := &f.LocalQueues[i]; q.Name == string(constants.DefaultLocalQueueName) {
			return fmt.Sprintf("namespace %s has a LocalQueue named %s", q.Namespace, q.Name)
		}
	}
	return ""
}

// managedManager finds a Kueue that holds the manager's own pods and Jobs back, since it
// manages what names no queue in the manager's namespace too.
func managedManager(f *Facts) []Finding {
	cfg, err := f.kueueSettings()
	if err != nil || !f.managesNamespace(cfg, managerPart.namespace) {
		return nil
	}
	var effects []string
	for _, held := range []struct{ framework, effect string }{
		{"pod", "New pods of the manager wait for quota, and may never start."},
		{"batch/job", "The Job that frees TrainJobs before an uninstall waits for quota, and helm uninstall fails."},
	} {
		if slices.Contains(cfg.Integrations.Frameworks, held.framework) {
			effects = append(effects, held.effect)
		}
	}
	if len(effects) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Reason: "ManagerManaged", Object: object("Namespace", "", managerPart.namespace),
		Problem:  "Kueue's manageJobsWithoutQueueName is on, and its managedJobsNamespaceSelector has the manager's namespace.",
		Effect:   strings.Join(effects, " "),
		Commands: []string{fixKueueConfig, kueuePart.restart()},
	}}
}

// managesNamespace reports whether Kueue manages jobs without a queue in a namespace.
func (f *Facts) managesNamespace(cfg *configapi.Configuration, name string) bool {
	selector, err := metav1.LabelSelectorAsSelector(cfg.ManagedJobsNamespaceSelector)
	if err != nil || !cfg.ManageJobsWithoutQueueName {
		return false
	}
	selected, known := f.selected(selector, name)
	return known && selected
}

// selected reports whether a selector takes a namespace, and whether the namespace is there.
func (f *Facts) selected(selector labels.Selector, name string) (selected, known bool) {
	i := slices.IndexFunc(f.Namespaces, func(ns corev1.Namespace) bool { return ns.Name == name })
	if i < 0 {
		return false, false
	}
	return selector.Matches(labels.Set(f.Namespaces[i].Labels)), true
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

// unmanagedQueues finds namespaces with queues that Kueue leaves alone.
func unmanagedQueues(f *Facts) []Finding {
	_, settings, err := f.settingsInForce()
	if err != nil {
		return nil
	}
	effect := "Its TrainJobs run at once, outside of all quotas, whatever queue they name."
	if pod, _ := kueueconfig.Behind(f.configMap(kueuePart), f.Pods, f.Now); pod != nil {
		effect = "When Kueue is restarted, its TrainJobs run at once, outside of all quotas, whatever queue they name."
	}
	var findings []Finding
	for i := range f.LocalQueues {
		queue := &f.LocalQueues[i]
		where := object("Namespace", "", queue.Namespace)
		if selected, known := f.selected(settings.NamespaceSelector(), queue.Namespace); selected || !known ||
			slices.ContainsFunc(findings, func(found Finding) bool { return found.Object == where }) {
			continue
		}
		findings = append(findings, Finding{
			Severity: Warning, Reason: "NamespaceNotManaged", Object: where,
			Problem: fmt.Sprintf("It has LocalQueue %s, and managedJobsNamespaceSelector (%s) leaves it out.",
				queue.Name, metav1.FormatLabelSelector(settings.ManagedJobsNamespaceSelector)),
			Effect:   effect,
			Advice:   "Label the namespace so that the selector takes it in, see docs/operate.md#namespaces-that-opt-in, or delete the queue:",
			Commands: []string{cmp.Or(settings.LabelCommand(queue.Namespace), fmt.Sprintf("kubectl -n %s delete localqueue %s", queue.Namespace, queue.Name))},
		})
	}
	return findings
}

// kueueBehind finds a Kueue that started before its configuration changed.
func kueueBehind(f *Facts) []Finding {
	pod, changed := kueueconfig.Behind(f.configMap(kueuePart), f.Pods, f.Now)
	if pod == nil || len(kueueRestart(f)) > 0 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Reason: "KueueNotRestarted", Object: kueueConfigObject,
		Problem:  fmt.Sprintf("Kueue's configuration changed at %s, after pod %s started: Kueue runs with an older one.", changed.UTC().Format(time.RFC3339), pod.Name),
		Effect:   "Kueue goes by the former settings until it is restarted, and so does kueue-trainer, unless it started since.",
		Commands: []string{kueuePart.restart()},
	}}
}

// kueueRestart finds a Kueue that runs with an older configuration than it has.
func kueueRestart(f *Facts) []Finding {
	cfg, err := f.kueueSettings()
	answer := f.integrates()
	if err != nil || listsInTree(cfg) && listsExternal(cfg) || listsInTree(cfg) == (answer == inTree) {
		return nil
	}
	finding := Finding{
		Severity: Warning, Reason: "KueueNotRestarted", Object: kueueConfigObject,
		Problem:  "Kueue's configuration lists TrainJob in integrations.frameworks, but the integration is not active: Kueue runs with an older configuration.",
		Effect:   "The in-tree integration takes TrainJobs over at Kueue's next restart.",
		Advice:   "If that is what you want, only restart Kueue.",
		Commands: []string{fixKueueConfig, kueuePart.restart()},
	}
	if answer == inTree {
		finding.Severity = Error
		finding.Problem = "Kueue's in-tree integration is active, though its configuration does not list it: Kueue runs with an older configuration."
		finding.Effect = "kueue-trainer stands aside until Kueue is restarted."
		finding.Advice, finding.Commands = "", []string{kueuePart.restart()}
	}
	return []Finding{finding}
}
