// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
)

// Scheme holds every kind that tests look at. Whose type a TrainJob is, the caller says:
// trainer.AddToScheme for those who write as users do, trainjob.AddToScheme for the manager's
// own code and the plugin's. It panics where a scheme cannot be built, which no test survives.
func Scheme(add ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, jobsetapi.AddToScheme, kueue.AddToScheme, visibility.AddToScheme,
	}, add...) {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// Fake starts a client of a cluster that is not there and has those objects. Status is a
// subresource of none of them, unless the caller says so.
func Fake(scheme *runtime.Scheme, objects ...client.Object) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
}

// Run executes a command of the plugin, and returns what it wrote to standard output.
func Run[F any](
	t testing.TB, command func(F, genericiooptions.IOStreams) *cobra.Command, flags F, stdin string, args ...string,
) (string, error) {
	t.Helper()
	streams, in, out, _ := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	cmd := command(flags, streams)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Prometheus starts one that answers queries, of a range or not, with results in JSON, and nobody with another authorization.
func Prometheus(t testing.TB, authorization string, results func(query string, ranged bool) string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != authorization {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		kind, ranged := "vector", strings.HasSuffix(r.URL.Path, "/query_range")
		if ranged {
			kind = "matrix"
		}
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"` + kind + `","result":[` + results(r.FormValue("query"), ranged) + `]}}`))
	}))
	t.Cleanup(server.Close)
	return server
}
