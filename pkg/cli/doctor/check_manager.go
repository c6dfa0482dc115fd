// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/config/policies"
	"github.com/kueue-trainer/kueue-trainer/config/rbac"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
)

const (
	skew = 30 * time.Second // how much the clocks of this machine and of the cluster may differ

	managerBinding = "kueue-trainer-manager-rolebinding"
)

var managerChecks = []check{{
	inOrder: "kueue-trainer is running", looksAt: []Kind{deployments, configMaps, leases, mutating, validating}, given: []condition{managerThere},
	wrong: func(f *Facts, found func(hit)) {
		if problem, commands := f.notRunning(); problem != "" {
			found(hit{Finding: Finding{Problem: problem, Commands: commands}})
		}
	},
	ID: "ManagerNotRunning", Severity: Error, When: "no replica is ready, or none leads: its Lease was given up or has run out",
	object: object("Deployment", managerPart.Namespace, managerPart.Deployment),
	effect: managerPart.without,
}, {
	inOrder: "kueue-trainer has its permissions", looksAt: []Kind{clusterRoles, roleBindings, deployments, mutating, validating}, given: []condition{managerThere}, wrong: permissions,
	ID: "PermissionsMissing", Severity: Error, When: "it is not granted all of `config/rbac`",
	problem: "The manager lacks permissions: {rules}.",
	effect:  "Reconciles that need them fail, with errors in the manager's log, and TrainJobs hang there.",
}, {
	inOrder: "kueue-trainer's policies are enforced", looksAt: []Kind{admissionPolicies, deployments, mutating, validating}, given: []condition{managerThere},
	wrong: func(f *Facts, found func(hit)) {
		for _, name := range policies.Names() {
			if problem := f.policyProblem(name); problem != "" {
				found(about("ValidatingAdmissionPolicy", "", name, "problem", problem, "enforce", f.apply("policies", "--set policies.enabled=true")))
			}
		}
	},
	ID: "PolicyNotEnforced", Severity: Warning, When: "a [policy](what-holds.md#policies) is not installed, or no binding of it denies",
	problem: "{problem}",
	effect:  "People with edit rights in a namespace can run pods without quota; docs/what-holds.md#policies says how.",
	advice:  "Unless it was switched off on purpose:", commands: []string{"{enforce}"},
}}

// notRunning looks at the Deployment, if there is one, since a manager can also run elsewhere, and at the lease.
func (f *Facts) notRunning() (problem string, commands []string) {
	commands = []string{managerPart.logs(), managerPart.restart()}
	d := f.deployment(managerPart)
	if d == nil || d.Status.ReadyReplicas > 0 {
		return f.notLed(), commands
	}
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	if replicas > 0 {
		return fmt.Sprintf("None of kueue-trainer's %d replicas is ready.", replicas),
			append([]string{fmt.Sprintf("kubectl -n %s describe pods", d.Namespace)}, commands...)
	}
	// A release would be refused the replicas that kubectl has set.
	scale := cmp.Or(f.upgrade("--set replicas=2"), fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=2", d.Namespace, d.Name))
	return "kueue-trainer was scaled to no replica.", []string{scale}
}

// notLed looks at the lease of the leader, which renews it all the time; empty: there is one.
func (f *Facts) notLed() string {
	cfg := f.managerConfiguration()
	if !*cfg.LeaderElection.LeaderElect {
		return ""
	}
	lease := inventory.Find(f.Leases, f.at(managerPart).Namespace, cfg.LeaderElection.ResourceName)
	if lease == nil {
		return "No replica of kueue-trainer has ever led: there is no Lease."
	}
	leader := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	expires := leader.RenewTime.Add(time.Duration(leader.LeaseDurationSeconds) * time.Second)
	switch {
	case leader.HolderIdentity == "":
		return fmt.Sprintf("No replica of kueue-trainer leads: the last one gave Lease %s up.", lease.Name)
	case f.Now.After(expires.Add(skew)):
		return fmt.Sprintf("No replica of kueue-trainer leads: Lease %s was renewed last at %s, by %s.",
			lease.Name, leader.RenewTime.UTC().Format(time.RFC3339), leader.HolderIdentity)
	}
	return ""
}

// permissions compares what the manager may do with what it needs.
func permissions(f *Facts, found func(hit)) {
	subjects := f.managerSubjects()
	if len(subjects) == 0 {
		found(hit{Finding: Finding{
			Object: object("ClusterRoleBinding", "", managerBinding), Problem: "The manager's permissions are bound to nobody.",
			Effect: "It can read and write nothing: " + managerPart.without, Commands: []string{f.apply("rbac")},
		}})
		return
	}
	for _, needed := range neededRoles() {
		if needed.Namespace != "" {
			needed.Namespace = f.at(managerPart).Namespace
		}
		if covered, missing := validation.Covers(f.granted(subjects, needed.Namespace), needed.Rules); !covered {
			h := about(needed.Kind, needed.Namespace, needed.Name, "rules", ruleNames(missing))
			h.Commands = f.grant(subjects, needed)
			found(h)
		}
	}
}

// grant are the commands that give the subjects a role. A binding stays as it is: the manager may run as somebody else.
func (f *Facts) grant(subjects []rbacv1.Subject, role rbacv1.Role) []string {
	if upgrade := f.upgrade(); upgrade != "" {
		return []string{upgrade}
	}
	commands := []string{"kubectl apply -f config/rbac/role.yaml"}
	if slices.ContainsFunc(f.boundTo(subjects, role.Namespace), func(ref rbacv1.RoleRef) bool { return ref.Kind == role.Kind && ref.Name == role.Name }) {
		return commands
	}
	create := fmt.Sprintf("kubectl create clusterrolebinding %s --clusterrole=%s", managerBinding, role.Name)
	if role.Namespace != "" {
		create = fmt.Sprintf("kubectl -n %s create rolebinding %s --role=%s", role.Namespace, managerBinding, role.Name)
	}
	for _, s := range subjects {
		create += " " + subjectFlag(s)
	}
	return append(commands, create+" --dry-run=client -o yaml | kubectl apply -f -")
}

// subjectFlag names a subject to kubectl create.
func subjectFlag(s rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return fmt.Sprintf("--serviceaccount=%s:%s", s.Namespace, s.Name)
	}
	return fmt.Sprintf("--%s=%s", strings.ToLower(s.Kind), quotedIfNeeded(s.Name))
}

// managerSubjects are who the manager runs as: the ServiceAccount of its Deployment, or whom its own binding names.
func (f *Facts) managerSubjects() []rbacv1.Subject {
	if d := f.deployment(managerPart); d != nil {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: d.Namespace, Name: d.Spec.Template.Spec.ServiceAccountName}}
	}
	return ptr.Deref(inventory.Find(f.RoleBindings, "", managerBinding), rbacv1.RoleBinding{}).Subjects
}

// granted returns the rules that the subjects have in a namespace; without one, everywhere.
func (f *Facts) granted(subjects []rbacv1.Subject, namespace string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, ref := range f.boundTo(subjects, namespace) {
		role := inventory.Find(f.Roles, map[string]string{"Role": namespace}[ref.Kind], ref.Name)
		rules = append(rules, ptr.Deref(role, rbacv1.Role{}).Rules...)
	}
	return rules
}

// boundTo returns the roles that the subjects have in a namespace; without one, everywhere.
func (f *Facts) boundTo(subjects []rbacv1.Subject, namespace string) []rbacv1.RoleRef {
	var refs []rbacv1.RoleRef
	for _, b := range f.RoleBindings {
		holds := b.Namespace == "" || b.Namespace == namespace
		if holds && slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return slices.Contains(subjects, s) }) {
			refs = append(refs, b.RoleRef)
		}
	}
	return refs
}

// neededRoles reads what this version of the manager is installed with.
func neededRoles() []rbacv1.Role { return rolesIn("config/rbac/role.yaml", rbac.Role) }

// rolesIn reads the roles of a file. Kind tells a ClusterRole from a Role, which have the same fields.
func rolesIn(file string, content []byte) []rbacv1.Role {
	var roles []rbacv1.Role
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
	for {
		var role rbacv1.Role
		switch err := decoder.Decode(&role); {
		case errors.Is(err, io.EOF):
			return roles
		case err != nil:
			panic(fmt.Sprintf("%s: %v", file, err)) // part of this program, and tested
		case role.Kind != "":
			roles = append(roles, role)
		}
	}
}

// ruleNames tells rules of one verb and resource each briefly, the first few of many.
func ruleNames(rules []rbacv1.PolicyRule) string {
	verbs := map[schema.GroupResource][]string{}
	for _, rule := range rules {
		resource := schema.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}
		verbs[resource] = append(verbs[resource], rule.Verbs[0])
	}
	var names []string
	for resource, may := range verbs {
		slices.Sort(may)
		names = append(names, strings.Join(slices.Compact(may), ",")+" "+resource.String())
	}
	slices.Sort(names)
	return few(names)
}

// policyProblem says why the API server does not enforce a policy; empty: it does.
func (f *Facts) policyProblem(name string) string {
	if inventory.Find(f.Policies, "", name) == nil {
		return "The policy is not installed."
	}
	if !slices.ContainsFunc(f.PolicyBindings, func(b admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == name && slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
	}) {
		return "No binding of the policy denies what it refuses."
	}
	return ""
}
