// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// missingWebhooks finds webhook configurations that are not there or hold nothing.
// kueue-trainer's are missed only where it is installed.
func missingWebhooks(f *Facts) []Finding {
	all := f.webhooks()
	var findings []Finding
	for _, p := range parts {
		if p == managerPart && !f.managerInstalled() {
			continue
		}
		for _, missed := range []struct{ kind, name string }{
			{"MutatingWebhookConfiguration", p.mutating}, {"ValidatingWebhookConfiguration", p.validating},
		} {
			if !expectsWebhook(f, missed.name) || slices.ContainsFunc(all, func(w webhook) bool { return w.configuration == missed.name }) {
				continue
			}
			findings = append(findings, Finding{
				Severity: Error, Reason: "WebhookMissing", Object: object(missed.kind, "", missed.name),
				Problem:  fmt.Sprintf("The webhooks of %s are not installed.", p.name),
				Effect:   withoutWebhook(p),
				Commands: []string{f.install(p)},
			})
		}
	}
	if ours := f.managersWebhooks(); len(ours) > 0 && !slices.ContainsFunc(ours, func(w webhook) bool { return w.asksAbout("workloads") }) {
		findings = append(findings, Finding{
			Severity: Error, Reason: "WebhookMissing", Object: ours[0].object(),
			Problem:  "The webhook that puts deactivations off is not installed: the configuration is of an older release.",
			Effect:   "The quota of a job whose Workload is deactivated goes to others before its pods do.",
			Commands: []string{f.install(managerPart)},
		})
	}
	return findings
}

// managersWebhooks returns the mutating ones of the manager.
func (f *Facts) managersWebhooks() []webhook {
	return slices.DeleteFunc(f.webhooks(), func(w webhook) bool { return w.configuration != managerPart.mutating })
}

// expectsWebhook reports whether a configuration belongs to what is installed: Trainer
// before 2.2 has nothing to default, and a part that is not installed has no webhooks.
func expectsWebhook(f *Facts, configuration string) bool {
	switch p := partOf(configuration); p {
	case kueuePart:
		return f.crd(workloadCRD) != nil
	case jobSetPart:
		return f.crd(jobSetCRD) != nil
	case trainerPart:
		generation := f.generation()
		return generation >= trainjob.Trainer22 || generation == trainjob.Trainer21 && configuration == p.validating
	default:
		return true
	}
}

func withoutWebhook(p *part) string {
	if p == managerPart {
		return "New TrainJobs run at once, without quota, until the manager sees them; users can take them out of its hands."
	}
	return fmt.Sprintf("Objects of %s are stored without defaults and unchecked, which its controllers do not expect.", p.name)
}

// webhookServices finds webhooks whose Service is not there, or has nobody behind it, or
// which lack the authority of their certificate.
func webhookServices(f *Facts) []Finding {
	var findings []Finding
	seen := map[string]bool{}
	for _, w := range f.webhooks() {
		if w.client.Service == nil || seen[w.object()] {
			continue
		}
		problem, commands := f.serviceProblem(w)
		if problem == "" {
			continue
		}
		seen[w.object()] = true
		findings = append(findings, Finding{
			Severity: Error, Reason: "WebhookService", Object: w.object(),
			Problem: problem, Effect: w.part.without, Commands: commands,
			Advice: fmt.Sprintf("If %s was uninstalled, this is left of it: kubectl delete %s %s", w.part.name, strings.ToLower(w.kind), w.configuration),
		})
	}
	return findings
}

func (f *Facts) serviceProblem(w webhook) (problem string, commands []string) {
	service := w.client.Service
	of := fmt.Sprintf("Webhook %s of %s", w.name, w.part.name)
	switch {
	case len(w.client.CABundle) == 0:
		return of + " has no caBundle: the API server trusts no certificate of it.", []string{w.part.restart()}
	case !slices.Contains(namespaces(), service.Namespace):
		return "", nil
	case !slices.ContainsFunc(f.Services, func(s corev1.Service) bool {
		return s.Namespace == service.Namespace && s.Name == service.Name
	}):
		return fmt.Sprintf("%s is served by Service %s/%s, which does not exist.", of, service.Namespace, service.Name), []string{f.install(w.part)}
	case !slices.ContainsFunc(f.EndpointSlices, func(s discoveryv1.EndpointSlice) bool {
		return s.Namespace == service.Namespace && s.Labels[discoveryv1.LabelServiceName] == service.Name && anyReady(s)
	}):
		return fmt.Sprintf("%s is served by Service %s/%s, which has no ready endpoint.", of, service.Namespace, service.Name),
			[]string{w.part.logs(), w.part.restart()}
	}
	return "", nil
}

func anyReady(slice discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
}

// namespaces are those that were read.
func namespaces() []string {
	var all []string
	for _, p := range parts {
		all = append(all, p.namespace)
	}
	return all
}

// silentWebhooks finds the webhook that the API server could not ask about one of the
// probes. Kueue is asked about all of them, so of each part the first is enough.
func silentWebhooks(probe int) func(*Facts) []Finding {
	return func(f *Facts) []Finding {
		errs := f.Probes.all()
		w, reason := f.silent(errs[probe])
		if w == nil {
			return nil
		}
		for _, earlier := range errs[:probe] {
			if other, _ := f.silent(earlier); other != nil && other.part == w.part {
				return nil
			}
		}
		return []Finding{{
			Severity: Error, Reason: "WebhookSilent", Object: w.object(),
			Problem:  fmt.Sprintf("%s does not answer: webhook %s: %s", w.part.name, w.name, sentence(reason)),
			Effect:   w.part.without,
			Commands: []string{w.part.logs(), w.part.restart()},
		}}
	}
}

// silent returns the webhook that an error tells of, and why it was not asked, or nil.
// Webhooks of two parts may have the same name; then the address tells.
func (f *Facts) silent(err error) (*webhook, string) {
	name, reason := failedWebhook(err)
	var found *webhook
	for _, w := range f.webhooks() {
		if name == "" || w.name != name {
			continue
		}
		if strings.Contains(reason, w.address()) {
			return &w, reason
		}
		found = cmp.Or(found, &w)
	}
	return found, reason
}

// address is what the API server calls.
func (w webhook) address() string {
	if w.client.Service != nil {
		return fmt.Sprintf("https://%s.%s.svc:", w.client.Service.Name, w.client.Service.Namespace)
	}
	return ptr.Deref(w.client.URL, "")
}

// webhookPolicies finds our webhooks changed so that they miss TrainJobs or changes of
// them. Webhooks are asked in the order of their configurations' names; what comes after
// ours is seen by ours only when it is asked again.
func webhookPolicies(f *Facts) []Finding {
	var findings []Finding
	for _, w := range f.webhooks() {
		if w.part != managerPart {
			continue
		}
		ofWorkloads := w.asksAbout("workloads")
		if w.failure != admissionregistrationv1.Fail {
			effect := "TrainJobs that are made while the manager is away run at once, without quota."
			if ofWorkloads {
				effect = "The quota of a job whose Workload is deactivated while the manager is away goes to others before its pods do."
			}
			findings = append(findings, Finding{
				Severity: Error, Reason: "WebhookPolicy", Object: w.object(),
				Problem: fmt.Sprintf("Webhook %s has failurePolicy %s.", w.name, w.failure), Effect: effect,
				Commands: []string{w.replace("failurePolicy", string(admissionregistrationv1.Fail))},
			})
		}
		if ofWorkloads {
			continue
		}
		if later := f.askedAfter(w); w.reinvocation == admissionregistrationv1.NeverReinvocationPolicy && len(later) > 0 {
			findings = append(findings, Finding{
				Severity: Warning, Reason: "WebhookOrder", Object: w.object(),
				Problem:  fmt.Sprintf("Webhook %s has reinvocationPolicy Never, and %s is asked after it.", w.name, later[0]),
				Effect:   "What later webhooks put into a TrainJob is not seen: a queue given there comes without suspension and gate, an entry after ours wins over the placement.",
				Commands: []string{w.replace("reinvocationPolicy", string(admissionregistrationv1.IfNeededReinvocationPolicy))},
			})
		}
		if w.narrowed || !seesTrainJobs(w) || narrows(w.namespaces) && !f.managedBy(w.namespaces) {
			findings = append(findings, Finding{
				Severity: Error, Reason: "WebhookScope", Object: w.object(),
				Problem:  fmt.Sprintf("Webhook %s is not asked about every TrainJob: its rules, selectors or matchConditions were changed.", w.name),
				Effect:   "TrainJobs that it does not see run at once, without quota, or can be changed while they wait.",
				Commands: []string{f.apply("webhook", `--set-json 'webhooks={"matchConditions":[],"namespaceSelector":null}'`)},
			})
		}
	}
	return findings
}

// managedBy reports whether a selector is the one by which Kueue manages namespaces, as docs/operate.md#namespaces-that-opt-in gives it to the
// chart as well.
func (f *Facts) managedBy(selector *metav1.LabelSelector) bool {
	_, settings, err := f.settingsInForce()
	return err == nil && metav1.FormatLabelSelector(selector) == metav1.FormatLabelSelector(settings.ManagedJobsNamespaceSelector)
}

// replace is the command that sets a field of the webhook.
func (w webhook) replace(field, value string) string {
	return fmt.Sprintf(`kubectl patch %s %s --type=json -p '[{"op":"replace","path":"/webhooks/%d/%s","value":"%s"}]'`,
		strings.ToLower(w.kind), w.configuration, w.index, field, value)
}

// askedAfter names the mutating webhook configurations that are asked about TrainJobs
// after w, when w is a mutating one.
func (f *Facts) askedAfter(w webhook) []string {
	var later []string
	for i := range f.Mutating {
		configuration := &f.Mutating[i]
		asked := slices.ContainsFunc(configuration.Webhooks, func(o admissionregistrationv1.MutatingWebhook) bool { return concernsTrainJobs(o.Rules) })
		if w.reinvocation != "" && configuration.Name > w.configuration && asked {
			later = append(later, configuration.Name)
		}
	}
	slices.Sort(later)
	return later
}

func concernsTrainJobs(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool { return covers(rule.Rule) })
}

// seesTrainJobs reports whether the rules have creation and update of TrainJobs.
func seesTrainJobs(w webhook) bool {
	for _, operation := range []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update} {
		if !slices.ContainsFunc(w.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return covers(rule.Rule) && containsOr(rule.Operations, operation, admissionregistrationv1.OperationAll)
		}) {
			return false
		}
	}
	return true
}

func covers(rule admissionregistrationv1.Rule) bool {
	return containsOr(rule.APIGroups, trainjob.GVK.Group, "*") && containsOr(rule.APIVersions, trainjob.GVK.Version, "*") &&
		(containsOr(rule.Resources, "trainjobs", "*") || slices.Contains(rule.Resources, "*/*"))
}

func containsOr[T comparable](list []T, value, all T) bool {
	return slices.Contains(list, value) || slices.Contains(list, all)
}

// narrows reports whether a selector leaves anything out.
func narrows(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0
}
