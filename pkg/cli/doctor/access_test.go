// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
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

// TestAccess reads what a Secret has of a credential, and keeps nothing of the credential itself.
func TestAccess(t *testing.T) {
	const subject = `{"sub":"system:serviceaccount:kueue-system:multikueue"`
	account := jwt(subject + `,"exp":1893758400}`)
	until := time.Unix(1893758400, 0)
	ofAccount := Access{Credential: token, Until: until, User: "system:serviceaccount:kueue-system:multikueue", Groups: accountGroups}
	at := func(kind kueue.LocationType, name string) *kueue.ClusterSource {
		return &kueue.ClusterSource{KubeConfig: &kueue.KubeConfig{LocationType: kind, Location: name}}
	}
	const (
		command = "its kubeconfig names a command that makes the credentials, which doctor does not run"
		file    = "its kubeconfig names a file with the credentials, which doctor does not open"
	)
	withoutContext := clientcmdapi.NewConfig()
	withoutContext.AuthInfos["kueue"], withoutContext.Contexts["west"] = &clientcmdapi.AuthInfo{Token: account}, &clientcmdapi.Context{AuthInfo: "kueue"}
	type row struct {
		// info is the user in the kubeconfig of Secret west; data is other data there, source another place.
		info   clientcmdapi.AuthInfo
		data   map[string][]byte
		source *kueue.ClusterSource
		want   Access
		unread string
	}
	expect.Rows(t, map[string]row{
		"a token of a ServiceAccount": {info: clientcmdapi.AuthInfo{Token: account}, want: ofAccount},
		"a token without an end": {info: clientcmdapi.AuthInfo{Token: jwt(subject + "}")},
			want: Access{Credential: token, User: ofAccount.User, Groups: accountGroups}},
		"a token of somebody": {info: clientcmdapi.AuthInfo{Token: jwt(`{"sub":"jane","exp":1893758400.5}`)},
			want: Access{Credential: token, Until: until, Unclear: "its token is not of a ServiceAccount: only the worker knows whose it is"}},
		"a token that says nothing": {info: clientcmdapi.AuthInfo{Token: signature}, want: Access{Unclear: "its token is not a JWT: only the worker knows whose it is"}},
		"a token that is cut":       {info: clientcmdapi.AuthInfo{Token: "e30.e3." + signature}, want: Access{Unclear: "its token cannot be decoded"}},
		"a client certificate": {info: clientcmdapi.AuthInfo{ClientCertificateData: certificateOf(t, pkix.Name{CommonName: "kueue", Organization: []string{"managers"}}, now), ClientKeyData: []byte(signature)},
			want: Access{Credential: certificate, Until: now, User: "kueue", Groups: []string{"managers", "system:authenticated"}}},
		"a client certificate that is none": {info: clientcmdapi.AuthInfo{ClientCertificateData: []byte(signature)}, want: Access{Unclear: "its client certificate cannot be decoded"}},
		"a command": {info: clientcmdapi.AuthInfo{Token: account, Exec: &clientcmdapi.ExecConfig{Command: "false", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}},
			want: Access{Unclear: command}},
		"a plugin":                  {info: clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "gcp"}}, want: Access{Unclear: command}},
		"a file with a token":       {info: clientcmdapi.AuthInfo{Token: account, TokenFile: "/etc/token"}, want: Access{Unclear: file}},
		"a file with a certificate": {info: clientcmdapi.AuthInfo{ClientCertificate: "/etc/cert"}, want: Access{Unclear: file}},
		"somebody else": {info: clientcmdapi.AuthInfo{Token: account, Impersonate: "jane"},
			want: Access{Unclear: "its kubeconfig acts as somebody else than its credentials are for"}},
		"two of them": {info: clientcmdapi.AuthInfo{Token: account, ClientCertificateData: []byte("x")}, want: Access{Unclear: "its kubeconfig has a token and a client certificate"}},
		"a password":  {info: clientcmdapi.AuthInfo{Username: "jane", Password: signature}, want: Access{Unclear: "its kubeconfig has neither a token nor a client certificate"}},

		"no Secret":                   {source: at(kueue.SecretLocationType, "nowhere"), want: Access{Unclear: "there is no Secret kueue-system/nowhere"}},
		"a Secret without kubeconfig": {data: map[string][]byte{"config": []byte(signature)}, want: Access{Unclear: "Secret kueue-system/west has no kubeconfig"}},
		"a kubeconfig that is none":   {data: map[string][]byte{"kubeconfig": []byte(signature)}, want: Access{Secret: "west", Unclear: "its kubeconfig cannot be decoded"}},
		"no current context": {data: map[string][]byte{"kubeconfig": expect.Must(clientcmd.Write(*withoutContext))(t)},
			want: Access{Secret: "west", Unclear: "its kubeconfig has no user in its current context"}},
		"a file":                        {source: at(kueue.PathLocationType, "/etc/west"), want: Access{Unclear: "its kubeconfig is not in a Secret"}},
		"a ClusterProfile":              {source: &kueue.ClusterSource{}, want: Access{Unclear: "its kubeconfig is not in a Secret"}},
		"a Secret that may not be read": {source: at(kueue.SecretLocationType, "forbidden"), unread: "you may not get them"},
	}, func(t *testing.T, tc row) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "west"}, Data: tc.data}
		if tc.data == nil && tc.source == nil {
			secret.Data = map[string][]byte{"kubeconfig": kubeconfigOf(t, tc.info)}
			tc.want.Secret, tc.want.Entry = "west", "kueue"
		}
		c := kit.Fake(kit.Scheme(), secret).WithInterceptorFuncs(kit.RefusingGet(func(_ client.Object, key client.ObjectKey) error {
			if key.Name == "forbidden" {
				return notAllowedTo("get", "secrets")
			}
			return nil
		})).Build()
		l := newLoader(c, now)
		got := l.access(t.Context(), cmp.Or(tc.source, at(kueue.SecretLocationType, "west")).KubeConfig)
		if tc.unread != "" {
			expect.Same(t, "Unexpected reason", tc.unread, unreadKind(secrets, l.facts.Unread[secrets]).Reason)
			return
		}
		expect.Same(t, "Unexpected access", &tc.want, got)
		expect.That(t, !strings.Contains(fmt.Sprintf("%+v", got), signature), "The credential is kept")
	})
}

// TestNeededInWorkers compares config/multikueue with what Kueue 0.19 does in workers: its
// pkg/controller/admissionchecks/multikueue has all writes, and what reads a TrainJob is there, in
// externalframeworks and in jobframework's ValidateRemoteObjectOwnership.
func TestNeededInWorkers(t *testing.T) {
	want := []string{
		// get: readGroup. list: runGC. watch: establishWatcher. create: nominateAndSynchronizeWorkers.
		// update: the finalizer in RemoveRemoteObjects, and priorities. delete: RemoveRemoteObjects, runGC.
		"create,delete,get,list,update,watch workloads.kueue.x-k8s.io",
		// The adapter's SyncJob and DeleteRemoteObject, and its watch. It is never listed, and the
		// status comes with the TrainJob.
		"create,delete,get,watch trainjobs.trainer.kubeflow.org",
		// patch: SetDeactivationTarget on an eviction. update: gate MultiKueueOrchestratedPreemption.
		"patch,update workloads/status.kueue.x-k8s.io",
	}
	expect.Same(t, "Unexpected rules", strings.Join(want, ", "), ruleNames(neededInWorkers()))
}

func TestAccessLacks(t *testing.T) {
	a := &Access{User: "system:serviceaccount:kueue-system:multikueue", Groups: accountGroups}
	type row struct {
		denied     []string // "VERB RESOURCE NAMESPACE"
		namespaces []string
		says       string
		want       string
	}
	expect.Rows(t, map[string]row{
		"nothing": {},
		"a verb":  {denied: []string{"delete trainjobs "}, want: "delete trainjobs.trainer.kubeflow.org"},
		"verbs": {denied: []string{"create workloads ", "delete workloads ", "patch workloads/status "},
			want: "create,delete workloads.kueue.x-k8s.io, patch workloads/status.kueue.x-k8s.io"},
		"what is granted where there are queues": {denied: []string{"delete trainjobs "}, namespaces: []string{"jobs", "ml"}},
		"what is granted in one of two namespaces": {denied: []string{"delete trainjobs ", "delete trainjobs ml"}, namespaces: []string{"jobs", "ml"},
			want: "delete trainjobs.trainer.kubeflow.org"},
		"a watch of all namespaces":      {denied: []string{"watch trainjobs "}, namespaces: []string{"jobs"}, want: "watch trainjobs.trainer.kubeflow.org"},
		"a list of all namespaces":       {denied: []string{"list workloads "}, namespaces: []string{"jobs"}, want: "list workloads.kueue.x-k8s.io"},
		"what an authorizer cannot tell": {denied: []string{"delete trainjobs "}, says: "webhook is down", want: "the API server cannot tell: webhook is down"},
	}, func(t *testing.T, tc row) {
		c := kit.Writes(kit.Fake(kit.Scheme()).Build(), func(w kit.Write) error {
			review := w.Object.(*authorizationv1.SubjectAccessReview)
			expect.Same(t, "Unexpected review", authorizationv1.SubjectAccessReviewSpec{User: a.User, Groups: a.Groups}, review.Spec,
				cmpopts.IgnoreFields(authorizationv1.SubjectAccessReviewSpec{}, "ResourceAttributes"))
			asked := review.Spec.ResourceAttributes
			resource := strings.TrimSuffix(asked.Resource+"/"+asked.Subresource, "/")
			review.Status.Allowed = !slices.Contains(tc.denied, asked.Verb+" "+resource+" "+asked.Namespace)
			review.Status.EvaluationError = tc.says
			return kit.ErrAnswered
		})
		rules, err := a.lacks(t.Context(), c, tc.namespaces)
		expect.Same(t, "Unexpected rights, or error", tc.want, cmp.Or(ruleNames(rules), expect.Text(err)))
	})
}

func TestNamespacesOf(t *testing.T) {
	f := with(t, inTheFleet)
	f.ClusterQueues = append(f.ClusterQueues, clusterQueue("here", "h100", "8"))
	f.LocalQueues = append(f.LocalQueues, localQueue("ml", "queue", "gpus"), localQueue("jobs", "second", "gpus"), localQueue("own", "queue", "here"))
	for worker, want := range map[string][]string{"west": {"jobs", "ml"}, "east": nil} {
		expect.Same(t, "Unexpected namespaces of "+worker, want, f.namespacesOf(worker))
	}
}
