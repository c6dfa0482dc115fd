// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/config/multikueue"
)

const (
	secrets       Kind = "secrets"                                   // those with which Kueue reaches its workers; no other is read
	accessReviews Kind = "subjectaccessreviews.authorization.k8s.io" // what somebody may do in a worker
)

// Access is how Kueue of a manager cluster gets into a worker, by its Secret, without the credential itself.
type Access struct {
	Secret, Entry string    // Secret has the kubeconfig, Entry is its user there
	Credential    string    // what it is; empty where doctor cannot tell
	Until         time.Time // when it ends; zero for never
	User          string    // User and Groups are who Kueue is in the worker; User is empty where doctor cannot tell
	Groups        []string
	Unclear       string // why doctor cannot tell
}

// What a credential may be.
const (
	token       = "token"
	certificate = "client certificate"
)

// access reads the Secret of a worker; nil where it may not be read.
func (l *loader) access(ctx context.Context, at *kueue.KubeConfig) *Access {
	if at == nil || at.LocationType != kueue.SecretLocationType {
		return &Access{Unclear: "its kubeconfig is not in a Secret"}
	}
	key := client.ObjectKey{Namespace: l.facts.at(kueuePart).Namespace, Name: at.Location}
	var secret corev1.Secret
	err := l.client.Get(ctx, key, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return &Access{Unclear: fmt.Sprintf("there is no Secret %s", key)}
	case err != nil:
		l.facts.Unread[secrets] = err
		return nil
	case len(secret.Data[kueue.MultiKueueConfigSecretKey]) == 0:
		return &Access{Unclear: fmt.Sprintf("Secret %s has no %s", key, kueue.MultiKueueConfigSecretKey)}
	}
	a := &Access{Secret: at.Location}
	if unclear := a.read(secret.Data[kueue.MultiKueueConfigSecretKey]); unclear != nil {
		a.Unclear = unclear.Error()
	}
	return a
}

// read looks into a kubeconfig. A client of it would run commands and open files that somebody in the cluster chose.
func (a *Access) read(kubeconfig []byte) error {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return errors.New("its kubeconfig cannot be decoded") // err may quote what is in it
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return errors.New("its kubeconfig has no user in its current context")
	}
	a.Entry = current.AuthInfo
	switch info := config.AuthInfos[a.Entry]; {
	case info.Exec != nil || info.AuthProvider != nil:
		return errors.New("its kubeconfig names a command that makes the credentials, which doctor does not run")
	case info.TokenFile != "" || info.ClientCertificate != "":
		return errors.New("its kubeconfig names a file with the credentials, which doctor does not open")
	case info.Impersonate != "" || len(info.ImpersonateGroups) > 0 || info.ImpersonateUID != "" || len(info.ImpersonateUserExtra) > 0:
		return errors.New("its kubeconfig acts as somebody else than its credentials are for")
	case info.Token != "" && len(info.ClientCertificateData) > 0:
		return errors.New("its kubeconfig has a token and a client certificate")
	case info.Token != "":
		return a.readToken(info.Token)
	case len(info.ClientCertificateData) > 0:
		return a.readCertificate(info.ClientCertificateData)
	}
	return errors.New("its kubeconfig has neither a token nor a client certificate")
}

// readToken looks into a JWT. That it is genuine the worker has to tell, to Kueue.
func (a *Access) readToken(jwt string) error {
	var claims struct {
		Subject string  `json:"sub"`
		Expires float64 `json:"exp"`
	}
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return errors.New("its token is not a JWT: only the worker knows whose it is")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return errors.New("its token cannot be decoded")
	}
	a.Credential = token
	if claims.Expires > 0 {
		a.Until = time.Unix(int64(claims.Expires), 0)
	}
	namespace, _, err := serviceaccount.SplitUsername(claims.Subject)
	if err != nil {
		return errors.New("its token is not of a ServiceAccount: only the worker knows whose it is")
	}
	a.User = claims.Subject
	a.Groups = append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated)
	return nil
}

func (a *Access) readCertificate(data []byte) error {
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return errors.New("its client certificate cannot be decoded")
	}
	leaf := certificates[0]
	a.Credential, a.Until = certificate, leaf.NotAfter
	a.User, a.Groups = leaf.Subject.CommonName, append(slices.Clone(leaf.Subject.Organization), user.AllAuthenticated)
	return nil
}

// lacks returns what Kueue needs in a worker and may not do there, everywhere or, as far as that is enough, in each of the
// namespaces.
//
// The worker is asked about the user, with the rights of whoever runs doctor. To ask with the credential itself would send
// it to wherever a context leads, past proxies and gateways that take only their own logins, and their "Unauthorized" would
// look like a bad token. That a token was revoked does not show this way; Kueue says so itself when it connects.
func (a *Access) lacks(ctx context.Context, c client.Writer, namespaces []string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	for _, rule := range neededInWorkers() {
		granted, err := a.may(ctx, c, rule, namespaces)
		if err != nil {
			return nil, err
		}
		if !granted {
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

// may asks first about all namespaces. Kueue lists and watches all at once, and does the rest where there are jobs.
func (a *Access) may(ctx context.Context, c client.Writer, rule rbacv1.PolicyRule, namespaces []string) (bool, error) {
	granted, err := a.mayIn(ctx, c, rule, metav1.NamespaceAll)
	if granted || err != nil || rule.Verbs[0] == "list" || rule.Verbs[0] == "watch" {
		return granted, err
	}
	for _, namespace := range namespaces {
		if granted, err = a.mayIn(ctx, c, rule, namespace); !granted || err != nil {
			return false, err
		}
	}
	return granted, nil
}

func (a *Access) mayIn(ctx context.Context, c client.Writer, rule rbacv1.PolicyRule, namespace string) (bool, error) {
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: a.User, Groups: a.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, err
	}
	if !review.Status.Allowed && review.Status.EvaluationError != "" {
		return false, fmt.Errorf("the API server cannot tell: %s", review.Status.EvaluationError)
	}
	return review.Status.Allowed, nil
}

// neededInWorkers are the rules of config/multikueue for TrainJobs and Workloads, one for each verb and
// resource. Kinds of other jobs are left out: which of them it takes, Kueue's frameworks in the
// manager cluster say, and Kueue does not connect without.
func neededInWorkers() []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, role := range rolesIn("config/multikueue/role.yaml", multikueue.Role) {
		for _, rule := range role.Rules {
			rules = append(rules, validation.BreakdownRule(rule)...)
		}
	}
	return slices.DeleteFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return rule.APIGroups[0] != kueue.SchemeGroupVersion.Group && rule.APIGroups[0] != trainer.GroupVersion.Group
	})
}

// namespacesOf are those with queues that lead to a worker.
func (f *Facts) namespacesOf(worker string) []string {
	var names []string
	for i := range f.LocalQueues {
		if queue := &f.LocalQueues[i]; f.leadsTo(queue, worker) {
			names = append(names, queue.Namespace)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
