// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// signature is the part of a credential that must be nowhere in what is kept of it.
const signature = "c2VjcmV0LXNpZ25hdHVyZQ"

var accountGroups = []string{"system:serviceaccounts", "system:serviceaccounts:kueue-system", "system:authenticated"}

func jwt(claims string) string {
	return strings.Join([]string{"e30", base64.RawURLEncoding.EncodeToString([]byte(claims)), signature}, ".")
}

// kubeconfigOf is one whose user "kueue" has these credentials.
func kubeconfigOf(t *testing.T, info clientcmdapi.AuthInfo) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["west"] = &clientcmdapi.Cluster{Server: "https://west:6443"}
	config.AuthInfos["kueue"], config.AuthInfos["other"] = &info, &clientcmdapi.AuthInfo{Token: jwt(`{"sub":"nobody","exp":1}`)}
	config.Contexts["west"], config.CurrentContext = &clientcmdapi.Context{Cluster: "west", AuthInfo: "kueue"}, "west"
	return expect.Must(clientcmd.Write(*config))(t)
}

func certificateOf(t *testing.T, subject pkix.Name, until time.Time) []byte {
	t.Helper()
	key := expect.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotAfter: until}
	der := expect.Must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestAccessBy(t *testing.T) {
	unclear := func(why string) Access { return Access{Unclear: why} }
	account := jwt(`{"sub":"system:serviceaccount:kueue-system:multikueue","exp":1893758400}`)
	cases := map[string]struct {
		info clientcmdapi.AuthInfo
		want Access
	}{
		"a token of a ServiceAccount": {info: clientcmdapi.AuthInfo{Token: account},
			want: Access{Credential: token, Until: time.Unix(1893758400, 0), User: "system:serviceaccount:kueue-system:multikueue", Groups: accountGroups}},
		"a token without an end": {info: clientcmdapi.AuthInfo{Token: jwt(`{"sub":"system:serviceaccount:kueue-system:multikueue"}`)},
			want: Access{Credential: token, User: "system:serviceaccount:kueue-system:multikueue", Groups: accountGroups}},
		"a token of somebody": {info: clientcmdapi.AuthInfo{Token: jwt(`{"sub":"jane","exp":1893758400.5}`)},
			want: Access{Credential: token, Until: time.Unix(1893758400, 0), Unclear: "its token is not of a ServiceAccount: only the worker knows whose it is"}},
		"a token that says nothing": {info: clientcmdapi.AuthInfo{Token: signature},
			want: unclear("its token is not a JWT: only the worker knows whose it is")},
		"a token that is cut": {info: clientcmdapi.AuthInfo{Token: "e30.e3." + signature}, want: unclear("its token cannot be decoded")},
		"a client certificate": {info: clientcmdapi.AuthInfo{ClientCertificateData: certificateOf(t, pkix.Name{CommonName: "kueue", Organization: []string{"managers"}}, now), ClientKeyData: []byte(signature)},
			want: Access{Credential: certificate, Until: now, User: "kueue", Groups: []string{"managers", "system:authenticated"}}},
		"a client certificate that is none": {info: clientcmdapi.AuthInfo{ClientCertificateData: []byte(signature)},
			want: unclear("its client certificate cannot be decoded")},
		"a command": {info: clientcmdapi.AuthInfo{Token: account, Exec: &clientcmdapi.ExecConfig{Command: "false", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}},
			want: unclear("its kubeconfig names a command that makes the credentials, which doctor does not run")},
		"a plugin": {info: clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "gcp"}},
			want: unclear("its kubeconfig names a command that makes the credentials, which doctor does not run")},
		"a file with a token": {info: clientcmdapi.AuthInfo{Token: account, TokenFile: "/etc/token"},
			want: unclear("its kubeconfig names a file with the credentials, which doctor does not open")},
		"a file with a certificate": {info: clientcmdapi.AuthInfo{ClientCertificate: "/etc/cert"},
			want: unclear("its kubeconfig names a file with the credentials, which doctor does not open")},
		"somebody else": {info: clientcmdapi.AuthInfo{Token: account, Impersonate: "jane"},
			want: unclear("its kubeconfig acts as somebody else than its credentials are for")},
		"two of them": {info: clientcmdapi.AuthInfo{Token: account, ClientCertificateData: []byte("x")},
			want: unclear("its kubeconfig has a token and a client certificate")},
		"a password": {info: clientcmdapi.AuthInfo{Username: "jane", Password: signature},
			want: unclear("its kubeconfig has neither a token nor a client certificate")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := accessBy(kubeconfigOf(t, tc.info))
			tc.want.Entry = "kueue"
			expect.Same(t, "Unexpected access", tc.want, got)
			expect.Same(t, "Unexpected sign of the credential in what is kept", false, strings.Contains(fmt.Sprintf("%+v", got), signature))
		})
	}
}

func TestReadAccess(t *testing.T) {
	secret := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: name}, Data: data}
	}
	info := clientcmdapi.AuthInfo{Token: jwt(`{"sub":"system:serviceaccount:kueue-system:multikueue","exp":1893758400}`)}
	withoutContext := clientcmdapi.NewConfig()
	withoutContext.AuthInfos["kueue"], withoutContext.Contexts["west"] = &info, &clientcmdapi.Context{AuthInfo: "kueue"}
	headless := expect.Must(clientcmd.Write(*withoutContext))(t)
	objects := []client.Object{
		secret("west", map[string][]byte{"kubeconfig": kubeconfigOf(t, info)}),
		secret("empty", map[string][]byte{"config": kubeconfigOf(t, info)}),
		secret("garbled", map[string][]byte{"kubeconfig": []byte(signature)}),
		secret("headless", map[string][]byte{"kubeconfig": headless}),
		secret("forbidden", nil),
	}
	named := func(name string) *kueue.KubeConfig {
		return &kueue.KubeConfig{LocationType: kueue.SecretLocationType, Location: name}
	}
	cases := map[string]struct {
		at     *kueue.KubeConfig
		want   *Access
		unread string
	}{
		"a Secret": {at: named("west"), want: &Access{
			Secret: "west", Entry: "kueue", Credential: token, Until: time.Unix(1893758400, 0), User: "system:serviceaccount:kueue-system:multikueue", Groups: accountGroups}},
		"no Secret":                     {at: named("nowhere"), want: &Access{Unclear: "there is no Secret kueue-system/nowhere"}},
		"a Secret without kubeconfig":   {at: named("empty"), want: &Access{Unclear: "Secret kueue-system/empty has no kubeconfig"}},
		"a kubeconfig that is none":     {at: named("garbled"), want: &Access{Secret: "garbled", Unclear: "its kubeconfig cannot be decoded"}},
		"no current context":            {at: named("headless"), want: &Access{Secret: "headless", Unclear: "its kubeconfig has no user in its current context"}},
		"a file":                        {at: &kueue.KubeConfig{LocationType: kueue.PathLocationType, Location: "/etc/west"}, want: &Access{Unclear: "its kubeconfig is not in a Secret"}},
		"a ClusterProfile":              {want: &Access{Unclear: "its kubeconfig is not in a Secret"}},
		"a Secret that may not be read": {at: named("forbidden"), unread: "you may not get them"},
	}
	c := kit.Fake(kit.Scheme(), objects...).WithInterceptorFuncs(kit.RefusingGet(func(_ client.Object, key client.ObjectKey) error {
		if key.Name == "forbidden" {
			return notAllowedTo("get", "secrets")
		}
		return nil
	})).Build()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &loader{client: c, facts: &Facts{Unread: map[Kind]error{}}}
			l.facts.MultiKueueClusters = []kueue.MultiKueueCluster{{ObjectMeta: metav1.ObjectMeta{Name: "west"}, Spec: kueue.MultiKueueClusterSpec{ClusterSource: kueue.ClusterSource{KubeConfig: tc.at}}}}
			l.access(t.Context())
			unread := ""
			if err := l.facts.Unread[secrets]; err != nil {
				unread = unreadKind(secrets, err).Reason
			}
			expect.Same(t, "Unexpected access", tc.want, l.facts.Access["west"])
			expect.Same(t, "Unexpected reason", tc.unread, unread)
		})
	}
}

// TestNeededInWorkers compares config/multikueue with what Kueue 0.19 does in workers: its
// pkg/controller/admissionchecks/multikueue has all writes, and what reads a TrainJob is there, in
// externalframeworks and in jobframework's ValidateRemoteObjectOwnership.
func TestNeededInWorkers(t *testing.T) {
	want := []rbacv1.PolicyRule{
		// get: readGroup. list: runGC. watch: establishWatcher. create: nominateAndSynchronizeWorkers.
		// update: the finalizer in RemoveRemoteObjects, and priorities. delete: RemoveRemoteObjects, runGC.
		{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads"}, Verbs: []string{"create", "delete", "get", "list", "update", "watch"}},
		// patch: SetDeactivationTarget on an eviction. update: gate MultiKueueOrchestratedPreemption.
		{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads/status"}, Verbs: []string{"patch", "update"}},
		// The adapter's SyncJob and DeleteRemoteObject, and its watch. It is never listed, and the
		// status comes with the TrainJob.
		{APIGroups: []string{"trainer.kubeflow.org"}, Resources: []string{"trainjobs"}, Verbs: []string{"create", "delete", "get", "watch"}},
	}
	expect.Same(t, "Unexpected rules", want, neededInWorkers())
}

func TestLacking(t *testing.T) {
	cases := map[string]struct {
		// denied are "VERB RESOURCE NAMESPACE".
		denied     []string
		namespaces []string
		says       string
		want       []string
	}{
		"nothing": {},
		"a verb":  {denied: []string{"delete trainjobs "}, want: []string{"delete trainjobs.trainer.kubeflow.org"}},
		"verbs": {denied: []string{"create workloads ", "delete workloads ", "patch workloads/status "},
			want: []string{"create,delete workloads.kueue.x-k8s.io", "patch workloads/status.kueue.x-k8s.io"}},
		"what is granted where there are queues": {denied: []string{"delete trainjobs "}, namespaces: []string{"jobs", "ml"}},
		"what is granted in one of two namespaces": {denied: []string{"delete trainjobs ", "delete trainjobs ml"}, namespaces: []string{"jobs", "ml"},
			want: []string{"delete trainjobs.trainer.kubeflow.org"}},
		"a watch of all namespaces": {denied: []string{"watch trainjobs "}, namespaces: []string{"jobs"}, want: []string{"watch trainjobs.trainer.kubeflow.org"}},
		"a list of all namespaces":  {denied: []string{"list workloads "}, namespaces: []string{"jobs"}, want: []string{"list workloads.kueue.x-k8s.io"}},
		"what an authorizer cannot tell": {denied: []string{"delete trainjobs "}, says: "webhook is down",
			want: []string{"the API server cannot tell: webhook is down"}},
	}
	a := &Access{User: "system:serviceaccount:kueue-system:multikueue", Groups: accountGroups}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := kit.Writes(kit.Fake(kit.Scheme()).Build(), func(w kit.Write) error {
				review := w.Object.(*authorizationv1.SubjectAccessReview)
				expect.Same(t, "Unexpected review", authorizationv1.SubjectAccessReviewSpec{User: a.User, Groups: a.Groups}, review.Spec,
					cmpopts.IgnoreFields(authorizationv1.SubjectAccessReviewSpec{}, "ResourceAttributes"))
				asked := review.Spec.ResourceAttributes
				resource := strings.TrimSuffix(asked.Resource+"/"+asked.Subresource, "/")
				review.Status.Allowed = !slices.Contains(tc.denied, asked.Verb+" "+resource+" "+asked.Namespace)
				review.Status.EvaluationError = tc.says
				return kit.Answered
			})
			rules, err := lacking(t.Context(), c, a, tc.namespaces)
			var got []string
			for _, rule := range rules {
				got = append(got, ruleNames([]rbacv1.PolicyRule{rule}))
			}
			if err != nil {
				got = []string{err.Error()}
			}
			expect.Same(t, "Unexpected rights", tc.want, got)
		})
	}
}

func TestNamespacesOf(t *testing.T) {
	f := with(t, inTheFleet)
	f.ClusterQueues = append(f.ClusterQueues, clusterQueue("here", "h100", "8"))
	f.LocalQueues = append(f.LocalQueues, localQueue("ml", "queue", "gpus"), localQueue("jobs", "second", "gpus"), localQueue("own", "queue", "here"))
	for worker, want := range map[string][]string{"west": {"jobs", "ml"}, "east": nil} {
		expect.Same(t, "Unexpected namespaces of "+worker, want, f.namespacesOf(worker))
	}
}
