// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/config/rbac"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
)

const (
	// skew is how much the clocks of this machine and of the cluster may differ.
	skew = 30 * time.Second

	managerBinding = "kueue-trainer-manager-rolebinding"
)

var managerChecks = []check{{
	inOrder: "kueue-trainer is running", looksAt: []Kind{deployments, configMaps, leases, mutating, validating}, given: []condition{managerThere}, wrong: managerRunning,
	id: "ManagerNotRunning", severity: Error, when: "no replica is ready, or none leads: its Lease was given up or has run out",
	object: object("Deployment", managerPart.Namespace, managerPart.Deployment),
	effect: managerPart.without,
}, {
	inOrder: "kueue-trainer has its permissions", looksAt: []Kind{clusterRoles, roleBindings, deployments, mutating, validating}, given: []condition{managerThere}, wrong: permissions,
	id: "PermissionsMissing", severity: Error, when: "it is not granted all of `config/rbac`",
	problem: "The manager lacks permissions: {rules}.",
	effect:  "Reconciles that need them fail, with errors in the manager's log, and TrainJobs hang there.",
}, {
	inOrder: "kueue-trainer's policies are enforced", looksAt: []Kind{admissionPolicies, deployments, mutating, validating}, given: []condition{managerThere}, wrong: unenforcedPolicies,
	id: "PolicyNotEnforced", severity: Warning, when: "a [policy](what-holds.md#policies) is not installed, or no binding of it denies",
	problem: "{problem}",
	effect:  "People with edit rights in a namespace can run pods without quota; docs/what-holds.md#policies says how.",
	advice:  "Unless it was switched off on purpose:", commands: []string{"{enforce}"},
}}

// managerRunning finds a manager that is installed but does not run.
func managerRunning(f *Facts, found func(hit)) {
	if problem, commands := f.notRunning(); problem != "" {
		found(hit{Finding: Finding{Problem: problem, Commands: commands}})
	}
}

func (f *Facts) notRunning() (problem string, commands []string) {
	if problem, commands = f.notReady(); problem != "" {
		return problem, commands
	}
	return f.notLed()
}

// notReady looks at the Deployment, if there is one: a manager can also run elsewhere.
func (f *Facts) notReady() (problem string, commands []string) {
	d := f.deployment(managerPart)
	switch {
	case d == nil || d.Status.ReadyReplicas > 0:
		return "", nil
	case ptr.Deref(d.Spec.Replicas, 1) == 0:
		return "kueue-trainer was scaled to no replica.",
			[]string{f.scale(d)}
	default:
		return fmt.Sprintf("None of kueue-trainer's %d replicas is ready.", ptr.Deref(d.Spec.Replicas, 1)),
			[]string{fmt.Sprintf("kubectl -n %s describe pods", d.Namespace), managerPart.logs(), managerPart.restart()}
	}
}

// scale is the command that has the Deployment run again. A release would be refused the replicas
// that kubectl has set.
func (f *Facts) scale(d *appsv1.Deployment) string {
	if r := f.release(); r != nil {
		return r.upgrade("--set replicas=2")
	}
	return fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=2", d.Namespace, d.Name)
}

// notLed looks at the lease of the leader, which renews it all the time.
func (f *Facts) notLed() (problem string, commands []string) {
	cfg := f.managerConfiguration()
	if !*cfg.LeaderElection.LeaderElect {
		return "", nil
	}
	commands = []string{managerPart.logs(), managerPart.restart()}
	lease := inventory.Find(f.Leases, f.at(managerPart).Namespace, cfg.LeaderElection.ResourceName)
	switch {
	case lease == nil:
		return "No replica of kueue-trainer has ever led: there is no Lease.", commands
	case ptr.Deref(lease.Spec.HolderIdentity, "") == "":
		return fmt.Sprintf("No replica of kueue-trainer leads: the last one gave Lease %s up.", lease.Name), commands
	case lease.Spec.RenewTime == nil:
		return "", nil
	}
	expires := lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
	if f.Now.After(expires.Add(skew)) {
		return fmt.Sprintf("No replica of kueue-trainer leads: Lease %s was renewed last at %s, by %s.",
			lease.Name, lease.Spec.RenewTime.UTC().Format(time.RFC3339), *lease.Spec.HolderIdentity), commands
	}
	return "", nil
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
		needed = f.placed(needed)
		if covered, missing := validation.Covers(f.granted(subjects, needed.Namespace), needed.Rules); !covered {
			h := about(needed.Kind, needed.Namespace, needed.Name, "rules", ruleNames(missing))
			h.Commands = f.grant(subjects, needed)
			found(h)
		}
	}
}

// grant are the commands that give the subjects a role. A binding that has them stays as it is: whom the
// manager runs as may not be what config/rbac says.
func (f *Facts) grant(subjects []rbacv1.Subject, role rbacv1.Role) []string {
	if r := f.release(); r != nil {
		return []string{r.upgrade()}
	}
	commands := []string{"kubectl apply -f config/rbac/role.yaml"}
	refs := f.boundTo(subjects, role.Namespace)
	if slices.ContainsFunc(refs, func(ref rbacv1.RoleRef) bool { return ref.Kind == role.Kind && ref.Name == role.Name }) {
		return commands
	}
	create := fmt.Sprintf("kubectl create clusterrolebinding %s --clusterrole=%s", managerBinding, role.Name)
	if role.Namespace != "" {
		create = fmt.Sprintf("kubectl -n %s create rolebinding %s --role=%s", role.Namespace, managerBinding, role.Name)
	}
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			create += fmt.Sprintf(" --serviceaccount=%s:%s", s.Namespace, s.Name)
		default:
			create += fmt.Sprintf(" --%s=%s", strings.ToLower(s.Kind), quotedIfNeeded(s.Name))
		}
	}
	return append(commands, create+" --dry-run=client -o yaml | kubectl apply -f -")
}

// managerSubjects are who the manager runs as: the ServiceAccount of its Deployment, or
// whom its own binding names.
func (f *Facts) managerSubjects() []rbacv1.Subject {
	if d := f.deployment(managerPart); d != nil {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: d.Namespace, Name: d.Spec.Template.Spec.ServiceAccountName}}
	}
	if binding := inventory.Find(f.ClusterRoleBindings, "", managerBinding); binding != nil {
		return binding.Subjects
	}
	return nil
}

// granted returns the rules that the subjects have in a namespace; without one, everywhere.
func (f *Facts) granted(subjects []rbacv1.Subject, namespace string) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, ref := range f.boundTo(subjects, namespace) {
		rules = append(rules, f.rules(ref, namespace)...)
	}
	return rules
}

// boundTo returns the roles that the subjects have in a namespace; without one, everywhere.
func (f *Facts) boundTo(subjects []rbacv1.Subject, namespace string) []rbacv1.RoleRef {
	concerned := func(bound []rbacv1.Subject) bool {
		return slices.ContainsFunc(bound, func(b rbacv1.Subject) bool {
			return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
				return b.Kind == s.Kind && b.Namespace == s.Namespace && b.Name == s.Name
			})
		})
	}
	var refs []rbacv1.RoleRef
	for i := range f.ClusterRoleBindings {
		if b := &f.ClusterRoleBindings[i]; concerned(b.Subjects) {
			refs = append(refs, b.RoleRef)
		}
	}
	for i := range f.RoleBindings {
		if b := &f.RoleBindings[i]; b.Namespace == namespace && concerned(b.Subjects) {
			refs = append(refs, b.RoleRef)
		}
	}
	return refs
}

// rules returns those of the role that a binding in namespace refers to.
func (f *Facts) rules(ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	if role := inventory.Find(f.ClusterRoles, "", ref.Name); ref.Kind == "ClusterRole" && role != nil {
		return role.Rules
	}
	if role := inventory.Find(f.Roles, namespace, ref.Name); ref.Kind == "Role" && role != nil {
		return role.Rules
	}
	return nil
}

// neededRoles reads what this version of the manager is installed with.
func neededRoles() []rbacv1.Role { return rolesIn("config/rbac/role.yaml", rbac.Role) }

// rolesIn reads the roles of a file. Kind tells a ClusterRole from a Role, which have the same
// fields.
func rolesIn(file string, content []byte) []rbacv1.Role {
	var roles []rbacv1.Role
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return roles
		}
		var role rbacv1.Role
		if err == nil {
			err = yaml.Unmarshal(document, &role)
		}
		if err != nil {
			panic(fmt.Sprintf("%s: %v", file, err)) // part of this program, and tested
		}
		if role.Kind != "" {
			roles = append(roles, role)
		}
	}
}

// ruleNames tells rules briefly, the first few of many.
func ruleNames(rules []rbacv1.PolicyRule) string {
	const most = 4
	var names []string
	for _, rule := range rules {
		name := strings.Join(rule.Verbs, ",") + " " + strings.Join(rule.Resources, ",")
		if group := strings.Join(rule.APIGroups, ","); group != "" {
			name += "." + group
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}
