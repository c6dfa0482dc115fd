// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

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
