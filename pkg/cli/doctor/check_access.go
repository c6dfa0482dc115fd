// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

const (
	// renewWithin is how long before its end a credential is to be renewed: time enough for
	// whoever looks once a week.
	renewWithin = 7 * 24 * time.Hour

	// workerRole and workerAccount are what config/multikueue installs.
	workerRole    = "kueue-trainer-multikueue"
	workerAccount = "multikueue"
)

// endingAccess finds workers that Kueue reaches not much longer, or no more.
func endingAccess(f *Facts, found func(hit)) {
	for i := range f.Workers {
		w := &f.Workers[i]
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

// renew puts a new token of the same ServiceAccount into the kubeconfig, and leaves the rest of it
// as it is: the manager cluster may reach the worker by another address than its admins. Where no
// token is to be had, the old one stays.
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
