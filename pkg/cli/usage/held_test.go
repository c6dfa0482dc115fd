// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"compress/gzip"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// savedLedger began an hour before noon. An evicted run of ann's and a deleted job of bob's are in it.
func savedLedger(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	const (
		gpus  = `"clusterQueue":"gpus","localQueue":"q","flavor":"h100","resource":"nvidia.com/gpu"`
		saved = `{"format":1,"writer":"w","began":"2030-01-01T11:00:00Z","saved":"2030-01-01T12:00:00Z","open":[],"closed":[],` +
			`"held":[{` + gpus + `,"namespace":"team","user":"ann","is":"running","seconds":7200},{` + gpus + `,"namespace":"other","user":"bob","is":"running","seconds":9}],` +
			`"ended":[{` + gpus + `,"namespace":"team","user":"ann","is":"lost","seconds":7200},{` + gpus + `,"namespace":"other","user":"bob","is":"deleted","seconds":9}]}`
	)
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	expect.Must(zip.Write([]byte(saved)))(t)
	expect.NoError(t, zip.Close())
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: ledger.ConfigMapName}, BinaryData: map[string][]byte{"ledger.json.gz": zipped.Bytes()},
	}
}

// runsInWorker is a job of MultiKueue with 8 GPUs since half an hour after noon, and its Workload.
func runsInWorker() []client.Object {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "llm", Labels: map[string]string{"user": "ann"}}}
	job.Spec.ManagedBy = new(kueue.MultiKueueControllerName)
	wl := kit.With(kit.Workload("team", "wl", "q", noon, kit.PodSet("node", 1, "nvidia.com/gpu", "8")), kit.Runs("gpus", "h100", at(30)))
	wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}
	return []client.Object{job, wl}
}

func TestBillOfCluster(t *testing.T) {
	const (
		only  = "this is only what the Workloads in the cluster tell now"
		all   = "this is all since 2030-01-01T11:00:00Z, when the manager's ledger began"
		head  = "RESOURCE UNIT HELD WAITING RUNNING STOPPING USEFUL LOST FAILED DELETED\n"
		alone = "CLUSTERQUEUE QUEUE " + head + "gpus team/q nvidia.com/gpu GPU-hours 4.00 ? 4.00 ? ? ? ? ?\n"
		ofAnn = " nvidia.com/gpu GPU-hours 6.00 0.00 6.00 0.00 0.00 2.00 0.00 0.00\n"
		ofBob = " nvidia.com/gpu GPU-hours <0.01 0.00 <0.01 0.00 0.00 0.00 0.00 <0.01\n"
	)
	told := kit.ConfigMap(config.Namespace, cluster.ManagerConfigMap, cluster.ManagerConfigKey, "metrics: {userLabel: user}")
	untold := kit.ConfigMap(config.Namespace, cluster.ManagerConfigMap, cluster.ManagerConfigKey, "{}")
	type row struct {
		options              options
		namespace, want, err string
		objects              []client.Object
		forbidden            bool
		code                 int
		notes                []string
	}
	expect.Rows(t, map[string]row{
		"of the ledger": {objects: []client.Object{savedLedger(t)}, notes: []string{all},
			want: "CLUSTERQUEUE QUEUE " + head + "gpus other/q" + ofBob + "gpus team/q" + ofAnn},
		"of the ledger and a namespace": {objects: []client.Object{savedLedger(t)}, namespace: "team", notes: []string{all},
			want: "CLUSTERQUEUE QUEUE " + head + "gpus team/q" + ofAnn},
		"of the ledger and all namespaces, which goes before one": {objects: []client.Object{savedLedger(t)}, options: options{all: true}, namespace: "team",
			notes: []string{all}, want: "CLUSTERQUEUE QUEUE " + head + "gpus other/q" + ofBob + "gpus team/q" + ofAnn},
		"of the ledger, for a time from before it": {objects: []client.Object{savedLedger(t)}, options: options{since: "4w"}, namespace: "none",
			notes: []string{all}, want: "Nothing was used since 2030-01-01T11:00:00Z.\n"},
		"of the ledger by user": {objects: []client.Object{savedLedger(t), told}, options: options{by: byUser}, notes: []string{all},
			want: "USER " + head + "ann" + ofAnn + "bob" + ofBob},
		"of a part of the ledger's time": {objects: []client.Object{savedLedger(t)}, options: options{since: "1h"}, want: alone,
			notes: []string{only, "the manager's ledger has totals since 2030-01-01T11:00:00Z, and not of a part of that time"}},
		"without a ledger": {want: alone, notes: []string{only, "there is no ConfigMap kueue-trainer-system/kueue-trainer-ledger"}},
		"without the right to read it": {objects: []client.Object{savedLedger(t)}, forbidden: true, want: alone, code: exit.Unseen,
			notes: []string{only, "you may not get ConfigMap kueue-trainer-system/kueue-trainer-ledger"}},
		"by user without a label of users": {objects: []client.Object{savedLedger(t), untold}, options: options{by: byUser}, code: exit.Failed,
			err: "--user-label or in the manager's configuration (metrics.userLabel)"},
		"by user without the right to read it": {objects: []client.Object{savedLedger(t)}, forbidden: true, options: options{by: byUser}, code: exit.Unseen,
			err: "--by user: you may not get ConfigMap kueue-trainer-system/kueue-trainer-ledger, where the manager's ledger is, with the bill since it began: " +
				"ask an admin for ClusterRole kueue-trainer-queues-viewer; or name the label"},
		"by user of a label, without the right to read it": {objects: []client.Object{savedLedger(t)}, forbidden: true, options: options{by: byUser, userLabel: "user"},
			notes: []string{only, "you may not get ConfigMap"}, want: "USER " + head + "ann nvidia.com/gpu GPU-hours 4.00 ? 4.00 ? ? ? ? ?\n"},
		"by user of a label": {objects: []client.Object{savedLedger(t), told}, options: options{by: byUser, userLabel: "user"}, notes: []string{only},
			want: "USER " + head + "ann nvidia.com/gpu GPU-hours 4.00 ? 4.00 ? ? ? ? ?\n"},
	}, func(t *testing.T, tc row) {
		o := tc.options
		if o.by == "" {
			o.by = byQueue
		}
		o.flags = cluster.Flags{ConfigFlags: &genericclioptions.ConfigFlags{Namespace: &tc.namespace}}
		c := kit.Fake(cluster.Scheme(), append(tc.objects, runsInWorker()...)...).WithInterceptorFuncs(kit.RefusingGet(func(_ client.Object, key client.ObjectKey) error {
			if tc.forbidden && key.Namespace == config.Namespace {
				return kit.Forbidden("configmaps")
			}
			return nil
		})).Build()
		from, to, err := o.check(at(60))
		expect.NoError(t, err)
		bill := Bill{From: from, To: to, By: o.by}
		totals, _, err := o.ofCluster(t.Context(), c, &bill)
		if tc.err != "" {
			expect.Says(t, err, tc.err)
			expect.Same(t, "Unexpected exit code", tc.code, exit.Code(err))
			return
		}
		expect.NoError(t, err)
		bill.sum(totals)
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		o.streams = streams
		expect.Same(t, "Unexpected exit code", tc.code, exit.Code(o.print(bill)))
		expect.Same(t, "Unexpected bill", tc.want, regexp.MustCompile(" +").ReplaceAllString(out.String(), " "))
		for i, note := range bill.Notes {
			expect.That(t, i < len(tc.notes) && strings.HasPrefix(note, tc.notes[i]), "Unexpected note %q", note)
		}
		expect.Same(t, "Unexpected count of notes", len(tc.notes), len(bill.Notes))
	})
}
