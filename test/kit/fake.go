// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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

// Fake starts a client of a cluster that has those objects. Status is a subresource where the caller says so.
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

// Forbidden is what the API server answers to whom RBAC gives no right.
func Forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
}

// Unreadable starts an API server for a client over HTTP, and returns where. To everything but its answers, by path, it says
// that the user has no right to it.
func Unreadable(t testing.TB, answers map[string]any) string {
	t.Helper()
	for _, served := range []struct{ version, resource, kind string }{
		{"apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition"},
		{"trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime"},
	} {
		answers["/apis/"+served.version] = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: served.version,
			APIResources: []metav1.APIResource{{Name: served.resource, Kind: served.kind, Verbs: metav1.Verbs{"get"}}}}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !found {
			w.WriteHeader(http.StatusForbidden)
			answer = apierrors.NewForbidden(schema.GroupResource{Resource: r.URL.Path}, "", nil).Status()
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Refusing has an API server refuse a get or list where refuse says an error. A list has its namespace alone as key.
func Refusing(refuse func(object any, key client.ObjectKey) error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			return unless(refuse(into, key), func() error { return c.Get(ctx, key, into, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			of := (&client.ListOptions{}).ApplyOptions(opts)
			return unless(refuse(list, client.ObjectKey{Namespace: of.Namespace}), func() error { return c.List(ctx, list, opts...) })
		},
	}
}

// RefusingGet has an API server refuse what is got alone.
func RefusingGet(refuse func(object client.Object, key client.ObjectKey) error) interceptor.Funcs {
	return Refusing(func(object any, key client.ObjectKey) error {
		if got, is := object.(client.Object); is {
			return refuse(got, key)
		}
		return nil
	})
}

// ErrAnswered is what a hook of Gets, Lists or Writes returns where it has done itself what was asked for.
var ErrAnswered = errors.New("answered")

// Gets has a hook see what a client gets; its error is the answer.
func Gets(c client.Reader, hook func(client.Object, client.ObjectKey) error) client.WithWatch {
	return interceptor.NewClient(c.(client.WithWatch), RefusingGet(hook))
}

// Lists has a hook see what a client lists; its error is the answer.
func Lists(c client.Reader, hook func(client.ObjectList) error) client.WithWatch {
	return interceptor.NewClient(c.(client.WithWatch), Refusing(func(object any, _ client.ObjectKey) error {
		if list, is := object.(client.ObjectList); is {
			return hook(list)
		}
		return nil
	}))
}

// Write is a request that changes an object.
type Write struct {
	// Verb is that of RBAC: create, update, patch or delete.
	Verb   string
	Object client.Object
	// SubResource is nothing where the object itself is written.
	SubResource string
	// Patch is what a patch sends.
	Patch client.Patch
}

// Writes has a hook see what a client writes; its error is the answer.
func Writes(c client.Reader, hook func(Write) error) client.WithWatch {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return unless(hook(Write{Verb: "create", Object: obj}), func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return unless(hook(Write{Verb: "update", Object: obj}), func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return unless(hook(Write{Verb: "patch", Object: obj, Patch: p}), func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return unless(hook(Write{Verb: "delete", Object: obj}), func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return unless(hook(Write{Verb: "update", Object: obj, SubResource: sub}), func() error { return c.SubResource(sub).Update(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return unless(hook(Write{Verb: "patch", Object: obj, SubResource: sub, Patch: p}), func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
	})
}

// unless answers a request, where a hook has not.
func unless(answer error, request func() error) error {
	switch {
	case errors.Is(answer, ErrAnswered):
		return nil
	case answer != nil:
		return answer
	}
	return request()
}
