// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// answers is the check that the webhooks of a part answer, asked by a probe.
func answers(inOrder, when string, probe Kind) check {
	return check{
		inOrder: inOrder, looksAt: []Kind{mutating, validating, probe}, wrong: silentWebhooks(probe),
		ID: "WebhookSilent", Severity: Error, When: when,
		problem: "{part} does not answer: webhook {webhook}: {reason}", effect: "{without}", commands: []string{"{logs}", "{restart}"},
	}
}

var webhookChecks = []check{{
	inOrder: "the webhooks are installed", looksAt: []Kind{crds, deployments, mutating, validating}, wrong: missingWebhooks,
	ID: "WebhookMissing", Severity: Error, When: "a configuration is not installed, or empty",
	problem: "The webhooks of {part} are not installed.",
	effect:  "Objects of {part} are stored without defaults and unchecked, which its controllers do not expect.", advice: "{reinstall}", commands: []string{"{install}"},
}, {
	inOrder: "the webhooks' Services have endpoints", looksAt: []Kind{mutating, validating, services, endpointSlices}, wrong: webhookServices,
	ID: "WebhookService", Severity: Error, When: "its Service does not exist or has no ready endpoint, or its `caBundle` is empty",
	problem: "Webhook {webhook} of {part} {problem}", effect: "{without}",
	advice: "If {part} was uninstalled, this is left of it: kubectl delete {kind} {name}",
},
	answers("Kueue answers", "the API server cannot call it", flavorProbe),
	answers("JobSet answers", "", jobSetProbe),
	answers("Trainer and kueue-trainer answer", "", trainJobProbe),
	{
		inOrder: "kueue-trainer's webhooks see every TrainJob, and see it last", looksAt: []Kind{mutating, validating}, wrong: webhookPolicies,
		ID: "WebhookPolicy", Severity: Error, When: "ours has not `failurePolicy: Fail`",
		problem:  "Webhook {webhook} has failurePolicy {failure}.",
		effect:   "TrainJobs that are made while the manager is away run at once, without quota.",
		commands: []string{`kubectl patch {kind} {name} --type=json -p '[{"op":"replace","path":"/webhooks/{index}/failurePolicy","value":"Fail"}]'`},
	}, {
		ID: "WebhookOrder", Severity: Warning, When: "others are asked about TrainJobs after ours, which is not asked again",
		problem:  "Webhook {webhook} has reinvocationPolicy Never, and {later} is asked after it.",
		effect:   "What later webhooks put into a TrainJob is not seen: a queue given there comes without suspension and gate, an entry after ours wins over the placement.",
		commands: []string{`kubectl patch {kind} {name} --type=json -p '[{"op":"replace","path":"/webhooks/{index}/reinvocationPolicy","value":"IfNeeded"}]'`},
	}, {
		ID: "WebhookScope", Severity: Error, When: "ours is not asked about every TrainJob",
		problem: "Webhook {webhook} is not asked about every TrainJob: its rules, selectors or matchConditions were changed.",
		effect:  "TrainJobs that it does not see run at once, without quota, or can be changed while they wait.", commands: []string{"{reset}"},
	}}

// hit is a case of the webhook.
func (w webhook) hit(f *Facts, values ...any) hit {
	return about(w.kind, "", w.configuration.Name, slices.Concat(f.of(w.part), values, []any{"webhook", w.Name, "kind", strings.ToLower(w.kind), "index", w.index})...)
}

// missingWebhooks finds webhook configurations that are not there or hold nothing.
func missingWebhooks(f *Facts, found func(hit)) {
	all := f.webhooks()
	for _, p := range parts {
		for kind, name := range map[string]string{mutatingKind: p.mutating, validatingKind: p.validating} {
			if !f.expectsWebhook(p, kind) || slices.ContainsFunc(all, func(w webhook) bool { return w.part == p && w.kind == kind }) {
				continue
			}
			h := about(kind, "", name, f.of(p)...)
			if p == managerPart {
				h.Effect = "New TrainJobs of queues are refused or, without either configuration, run at once, without quota; users can take them out of the manager's hands."
			}
			found(h)
		}
	}
	ours := slices.DeleteFunc(all, func(w webhook) bool { return w.part != managerPart || w.kind != mutatingKind })
	if len(ours) > 0 && !slices.ContainsFunc(ours, func(w webhook) bool { return w.asksAbout("workloads") }) {
		h := ours[0].hit(f)
		h.Problem = "The webhook that puts deactivations off is not installed: the configuration is of an older release."
		h.Effect = "The quota of a job whose Workload is deactivated goes to others before its pods do."
		found(h)
	}
}

// expectsWebhook reports whether a part is there that has such a configuration: Trainer before 2.2 defaults nothing.
func (f *Facts) expectsWebhook(p *part, kind string) bool {
	switch p {
	case managerPart:
		return f.managerInstalled()
	case trainerPart:
		generation := f.generation()
		return generation >= trainjob.Trainer22 && !f.trainerBefore(trainjob.Trainer22) || generation != 0 && kind == validatingKind
	default:
		return f.crd(p.CRD) != nil
	}
}

// webhookServices finds webhooks without a Service, anybody behind it, or the authority of their certificate.
func webhookServices(f *Facts, found func(hit)) {
	seen := map[string]bool{}
	for _, w := range f.webhooks() {
		if w.ClientConfig.Service == nil || seen[w.object()] {
			continue
		}
		if problem, commands := f.serviceProblem(w); problem != "" {
			seen[w.object()] = true
			h := w.hit(f, "problem", problem)
			h.Commands = commands
			found(h)
		}
	}
}

func (f *Facts) serviceProblem(w webhook) (problem string, commands []string) {
	service := w.ClientConfig.Service
	served := fmt.Sprintf("is served by Service %s/%s, which", service.Namespace, service.Name)
	switch {
	case len(w.ClientConfig.CABundle) == 0:
		return "has no caBundle: the API server trusts no certificate of it.", []string{w.part.restart()}
	case !slices.ContainsFunc(parts, func(p *part) bool { return f.at(p).Namespace == service.Namespace }):
		return "", nil // it was not read
	case inventory.Find(f.Services, service.Namespace, service.Name) == nil:
		return served + " does not exist.", []string{f.install(w.part)}
	case !slices.ContainsFunc(f.EndpointSlices, func(s discoveryv1.EndpointSlice) bool {
		return s.Namespace == service.Namespace && s.Labels[discoveryv1.LabelServiceName] == service.Name &&
			slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
	}):
		return served + " has no ready endpoint.", []string{w.part.logs(), w.part.restart()}
	}
	return "", nil
}

// silentWebhooks finds the webhook that was not asked about a probe. Of each part, all of which ask Kueue, the first is enough.
func silentWebhooks(probe Kind) func(*Facts, func(hit)) {
	return func(f *Facts, found func(hit)) {
		w, reason := f.silent(f.Refusals[probe])
		told := w != nil && slices.ContainsFunc(probes[:slices.Index(probes, probe)], func(earlier Kind) bool {
			other, _ := f.silent(f.Refusals[earlier])
			return other != nil && other.part == w.part
		})
		if w != nil && !told {
			found(w.hit(f, "reason", sentence(reason)))
		}
	}
}

// silent returns the webhook that an error tells of, and why it was not asked, or nil. Of two of one name the address tells.
func (f *Facts) silent(err error) (*webhook, string) {
	name, reason := failedWebhook(err)
	named := slices.DeleteFunc(f.webhooks(), func(w webhook) bool { return w.Name != name })
	if len(named) == 0 {
		return nil, reason
	}
	at := slices.IndexFunc(named, func(w webhook) bool { return strings.Contains(reason, w.address()) })
	return &named[max(at, 0)], reason
}

// webhookPolicies finds our webhooks changed so that they miss TrainJobs or changes of them. Webhooks are asked in the order
// of their configurations' names; what comes after ours is seen by ours only when it is asked again.
func webhookPolicies(f *Facts, found func(hit)) {
	for _, w := range f.webhooks() {
		if w.part != managerPart {
			continue
		}
		ofWorkloads := w.asksAbout("workloads")
		if failure := ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail); failure != admissionregistrationv1.Fail {
			h := w.hit(f, "failure", failure)
			if ofWorkloads {
				h.Effect = "The quota of a job whose Workload is deactivated while the manager is away goes to others before its pods do."
			}
			found(h)
		}
		if ofWorkloads {
			continue
		}
		if later := f.askedAfter(w); ptr.Deref(w.ReinvocationPolicy, "") != admissionregistrationv1.IfNeededReinvocationPolicy && later != "" {
			found(w.hit(f, "later", later).as("WebhookOrder", Warning))
		}
		if w.narrowed() || !asked(w.Rules, admission.Create) || !asked(w.Rules, admission.Update) || narrows(w.NamespaceSelector) && !w.declares("namespaceSelector") && !f.managedBy(w.NamespaceSelector) {
			reset := f.apply("webhook", `--set-json 'webhooks={"matchConditions":[],"namespaceSelector":null}'`)
			found(w.hit(f, "reset", reset).as("WebhookScope", Error))
		}
	}
}

// managedBy reports whether a selector is the one by which Kueue manages namespaces, which the chart may have as well.
func (f *Facts) managedBy(selector *metav1.LabelSelector) bool {
	_, settings, err := f.settingsInForce()
	return err == nil && metav1.FormatLabelSelector(selector) == metav1.FormatLabelSelector(settings.ManagedJobsNamespaceSelector)
}

// askedAfter names the first mutating webhook configuration that is asked about TrainJobs after w; empty: there is none.
func (f *Facts) askedAfter(w webhook) string {
	for _, configuration := range f.Mutating {
		if configuration.Name > w.configuration.Name && slices.ContainsFunc(configuration.Webhooks, func(o admissionregistrationv1.MutatingWebhook) bool {
			return asked(o.Rules, admission.Create) || asked(o.Rules, admission.Update)
		}) {
			return configuration.Name
		}
	}
	return ""
}

// asked reports whether rules have an operation on TrainJobs.
func asked(of []admissionregistrationv1.RuleWithOperations, operation admission.Operation) bool {
	job := admission.NewAttributesRecord(nil, nil, trainjob.GVK, metav1.NamespaceDefault, "", trainjob.GVK.GroupVersion().WithResource("trainjobs"), "", operation, nil, false, nil)
	return slices.ContainsFunc(of, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: rule, Attr: job}).Matches()
	})
}
