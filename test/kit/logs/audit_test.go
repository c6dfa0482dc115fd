// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const (
	dryRun   = `{"verb":"create","requestURI":"/apis/kueue.x-k8s.io/v1beta2/namespaces/jobs/workloads?dryRun=All","user":{"username":"kueue"},"objectRef":{"namespace":"jobs","resource":"workloads"},"responseStatus":{"code":201}}`
	start    = `{"verb":"patch","requestURI":"/x","user":{"username":"kueue-trainer"},"objectRef":{"namespace":"jobs","resource":"trainjobs"},"responseStatus":{"code":200},"responseObject":{"metadata":{"uid":"a","resourceVersion":"7"}}}`
	refused  = `{"verb":"patch","requestURI":"/x","user":{"username":"kueue-trainer"},"objectRef":{"namespace":"jobs","resource":"trainjobs"},"responseStatus":{"code":422}}`
	status   = `{"verb":"update","requestURI":"/x","user":{"username":"kueue"},"objectRef":{"namespace":"jobs","resource":"workloads","subresource":"status"},"responseStatus":{"code":409}}`
	snapshot = `{"verb":"get","requestURI":"/x","user":{"username":"kueue-trainer"},"objectRef":{"namespace":"jobs","resource":"configmaps"},"responseStatus":{"code":404}}`
	watching = `{"verb":"watch","requestURI":"/x","user":{"username":"kueue"},"objectRef":{"namespace":"jobs","resource":"pods"},"responseStatus":{"code":200}}`
	lease    = `{"verb":"update","requestURI":"/x","user":{"username":"kwok"},"objectRef":{"namespace":"jobs","resource":"leases"},"responseStatus":{"code":200}}`
	other    = `{"verb":"get","requestURI":"/x","user":{"username":"kueue"},"objectRef":{"namespace":"other","resource":"pods"},"responseStatus":{"code":200}}`
)

func TestCount(t *testing.T) {
	type row struct {
		lines     []string
		namespace string
		want      Counts
	}
	expect.Rows(t, map[string]row{
		"a dry run is apart": {
			lines: []string{dryRun},
			want:  Counts{{User: "kueue", Verb: "create", Resource: "workloads", DryRun: true, Outcome: Done}: 1},
		},
		"a write that makes no new version changes nothing": {
			lines: []string{start, start},
			want: Counts{
				{User: "kueue-trainer", Verb: "patch", Resource: "trainjobs", Outcome: Done}:     1,
				{User: "kueue-trainer", Verb: "patch", Resource: "trainjobs", Outcome: NoChange}: 1,
			},
		},
		"a failed test of a patch and a 409 are conflicts": {
			lines: []string{refused, status},
			want: Counts{
				{User: "kueue-trainer", Verb: "patch", Resource: "trainjobs", Outcome: Conflict}: 1,
				{User: "kueue", Verb: "update", Resource: "workloads/status", Outcome: Conflict}: 1,
			},
		},
		"what is not there is told": {
			lines: []string{snapshot},
			want:  Counts{{User: "kueue-trainer", Verb: "get", Resource: "configmaps", Outcome: Missing}: 1},
		},
		"watches, leases and other namespaces do not count": {
			lines: []string{watching, lease, other}, namespace: "jobs", want: Counts{},
		},
	}, func(t *testing.T, tc row) {
		path := filepath.Join(t.TempDir(), "audit.log")
		write(t, path, "before\n")
		log := expect.Must(OpenAudit(path))(t)
		for _, line := range tc.lines {
			write(t, path, line+"\n")
		}
		write(t, path, `{"verb":`)
		expect.Same(t, "Unexpected Count", tc.want, expect.Must(log.Count(tc.namespace))(t))
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f := expect.Must(os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
	defer f.Close()
	expect.Must(f.WriteString(text))(t)
}
