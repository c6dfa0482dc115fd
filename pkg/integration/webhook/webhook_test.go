// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var queue = kit.LocalQueue("ns", "q", "cq")

const self = "system:serviceaccount:kueue-trainer-system:kueue-trainer-controller-manager"

// newHandlers returns both webhooks on a cluster with objects, and one runtime of one replicated job, "node".
func newHandlers(tb testing.TB, objects ...client.Object) (*defaulter, *validator) {
	tb.Helper()
	c := inttest.Fake(append(objects, inttest.Runtime(), kit.Namespace("ns"))...).Build()
	settings := testenv.Kueue()
	h := &handler{decoder: admission.NewDecoder(c.Scheme()), Options: Options{
		Client: c, InTree: testenv.InTree(tb, false), Trainer: testenv.Served(tb, trainjob.Trainer23),
		Describer: testenv.Describer(tb, c), Queues: queues.New(c, c, settings), Kueue: settings, Self: self,
	}}
	return &defaulter{h}, &validator{h}
}

func request(user string, object, oldObject string) admission.Request {
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "ns", UserInfo: authenticationv1.UserInfo{Username: user},
		Object: runtime.RawExtension{Raw: []byte(object)},
	}}
	if oldObject != "" {
		req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: []byte(oldObject)}
	}
	return req
}

const (
	queued     = inttest.Queued
	gateJSON   = inttest.Gate
	placedJSON = `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"spec":{"nodeSelector":{"pool":"h100"}}}}}}]}}}}`
	emptyJSON  = `{"manager":"kueue.x-k8s.io/manager"}`
	unknown    = `{"manager":"example.com/me","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"none"}]}}}}`
	mine       = `{"manager":"example.com/me","future":{"zero":0,"empty":""}}`
	late       = `{"manager":"example.com/late"}`
)

// More of a spec than its runtime.
const (
	suspended    = `,"suspend":true`
	resumed      = `,"suspend":false`
	elsewhere    = `,"managedBy":"kueue.x-k8s.io/multikueue"`
	byTrainer    = `,"managedBy":"trainer.kubeflow.org/trainjob-controller"`
	withoutNodes = `,"trainer":{"numNodes":-1}`
)

// torch returns a spec of runtime "torch", with more in it, and with patch entries.
func torch(more string, entries ...string) string {
	spec := `{"runtimeRef":{"name":"torch"}` + more
	if len(entries) > 0 {
		spec += `,"runtimePatches":[` + strings.Join(entries, ",") + `]`
	}
	return spec + `}`
}

func inQueue(spec string, labels ...string) string {
	return inttest.Manifest(strings.Join(append([]string{queued}, labels...), ","), spec)
}

func TestDefaulter(t *testing.T) {
	gpus := func(amount string) string {
		return torch(suspended+`,"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":`+amount+`}}}`, gateJSON)
	}
	type row struct {
		queue         string
		spec, oldSpec string
		user          string
		want          string
	}
	expect.Rows(t, map[string]row{
		"a queued job is suspended and gated, after the entries of others": {queue: queued, spec: torch("", mine), want: torch(suspended, mine, gateJSON)},
		"an entry of ours in an exported manifest is reset": {queue: queued,
			spec: torch(resumed, `{"manager":"kueue.x-k8s.io/manager","time":"2026-01-01T00:00:00Z"}`, mine), want: torch(suspended, mine, gateJSON)},
		"a job without a queue is left as it is":                 {spec: torch("", mine), want: torch("", mine)},
		"a job without a queue keeps no entry of ours":           {spec: torch("", gateJSON), want: torch("")},
		"an entry that a client's list does not have comes back": {queue: queued, oldSpec: torch(suspended, gateJSON), spec: torch(suspended, mine), want: torch(suspended, mine, gateJSON)},
		"our entry goes behind a later one":                      {queue: queued, oldSpec: torch(suspended, gateJSON), spec: torch(suspended, gateJSON, late), want: torch(suspended, late, gateJSON)},
		"nor does a later one get behind it by resuming the job": {queue: queued, oldSpec: torch(suspended, placedJSON), spec: torch(resumed, placedJSON, late),
			want: torch(resumed, late, placedJSON)},
		"a stop of a job without our entry is not in the way of Trainer's rule": {queue: queued, oldSpec: torch(resumed), spec: torch(suspended), want: torch(suspended)},
		"an amount that was only spelled again is put back":                     {queue: queued, user: self, oldSpec: gpus(`8`), spec: gpus(`"8"`), want: gpus(`8`)},
		"our own write never means the entries of others": {queue: queued, user: self, oldSpec: torch(suspended, mine, gateJSON),
			spec: torch(resumed, `{"manager":"example.com/me"}`, emptyJSON), want: torch(resumed, mine, emptyJSON)},
		"our own write never means what Trainer's types do not know":  {queue: queued, user: self, oldSpec: torch(`,"trainer":{"future":1}`), spec: torch(`,"trainer":{}`), want: torch(`,"trainer":{"future":1}`)},
		"a job that the manager makes, to ask what others do with it": {queue: queued, user: self, spec: torch(resumed), want: torch(resumed)},
		"our entry of a job without a queue may go":                   {oldSpec: torch(suspended, gateJSON), spec: torch(suspended), want: torch(suspended)},
		"a job that is resumed gets no gate":                          {queue: queued, oldSpec: torch(suspended), spec: torch(resumed), want: torch(resumed)},
		"the entries of a job that runs stay in their order":          {queue: queued, oldSpec: torch(resumed, placedJSON), spec: torch(resumed, placedJSON, late), want: torch(resumed, placedJSON, late)},
		"an amount that was changed is left to the API server":        {queue: queued, oldSpec: gpus(`8`), spec: gpus(`"4"`), want: gpus(`"4"`)},
	}, func(t *testing.T, tc row) {
		d, _ := newHandlers(t)
		wantDefaulted(t, d, tc.user, tc.queue, tc.oldSpec, tc.spec, tc.want)
	})
}

func TestDefaulterWarnsOfWhatItDrops(t *testing.T) {
	const marked = `{"runtimeRef":{"name":"torch"},"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],
		"metadata":{"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}},"spec":{"serviceAccountName":"mine","nodeSelector":{"a":"b"}}}]}`
	for _, queue := range []string{queued, ""} {
		d, _ := newHandlers(t)
		d.Trainer = testenv.Served(t, trainjob.Trainer21)
		response := d.Handle(t.Context(), request("user", inttest.Manifest(queue, marked), ""))
		want := "spec.podTemplateOverrides[0].spec.serviceAccountName is dropped"
		expect.That(t, len(response.Warnings) == 1 && strings.HasPrefix(response.Warnings[0], want), "Warnings in queue %q: %q", queue, response.Warnings)
		expect.That(t, !strings.Contains(patched(t, inttest.Manifest(queue, marked), response), "mine"), "It is not dropped in queue %q", queue)
	}
}

// wantDefaulted has the defaulter look at a TrainJob, after an older one if there is one, and fails
// where it does not have a spec afterwards.
func wantDefaulted(t *testing.T, d *defaulter, user, queue, oldSpec, spec, want string) {
	t.Helper()
	old, object := "", inttest.Manifest(queue, spec)
	if oldSpec != "" {
		old = inttest.Manifest(queue, oldSpec)
	}
	response := d.Handle(t.Context(), request(user, object, old))
	expect.Need(t, response.Allowed, "Refused: %v", response.Result)
	expect.Same(t, "It says what kind of patch it is", len(response.Patches) > 0, response.PatchType != nil)
	expect.Same(t, "Unexpected object", expect.FromJSON[any](t, inttest.Manifest(queue, want)), expect.FromJSON[any](t, patched(t, object, response)))
}

func patched(t *testing.T, object string, response admission.Response) string {
	t.Helper()
	data := expect.Must(json.Marshal(response.Patches))(t)
	out, err := expect.Must(jsonpatch.DecodePatch(data))(t).Apply([]byte(object))
	expect.Need(t, err == nil, "Patch %s does not apply: %v", data, err)
	return string(out)
}

func TestValidator(t *testing.T) {
	const noLimit, ofJobSet = `"kueue.x-k8s.io/max-exec-time-seconds":"99999999999"`, `"kueue.x-k8s.io/prebuilt-workload-name":"jobset-w"`
	const label, limit, priority = `"a":"b"`, `"kueue.x-k8s.io/max-exec-time-seconds":"9"`, `"kueue.x-k8s.io/priority-class":"p"`
	gated, away := torch(suspended, gateJSON), torch(elsewhere+suspended)
	annotated := func(bytes int) string { return `"big":"` + strings.Repeat("x", bytes) + `"` }
	gone := func(more string) string { return `{"runtimeRef":{"name":"none"}` + more + `}` }
	broken, resumedBroken := torch(suspended+withoutNodes), torch(resumed+withoutNodes)
	ofLabel := func(name string) []string { return []string{"metadata.labels[kueue.x-k8s.io/" + name + "]"} }
	ourEntry := []string{"spec.runtimePatches[kueue.x-k8s.io/manager]"}
	type row struct {
		object, old string
		user        string
		want        []string
	}
	expect.Rows(t, map[string]row{
		"a job as the defaulter leaves it": {object: inQueue(gated)},
		"a runtime that is not there":      {object: inQueue(gone("")), want: []string{"spec.runtimeRef"}},
		"a runtime of a kind that is none": {object: inQueue(`{"runtimeRef":{"name":"torch","kind":"Pod"}}`), want: []string{"spec.runtimeRef"}},
		"a change of our entry by a user":  {old: inQueue(gated), object: inQueue(torch(suspended, emptyJSON)), want: ourEntry},
		"the same change by the manager":   {user: self, old: inQueue(gated), object: inQueue(torch(suspended, emptyJSON))},
		"an entry that comes while the job is resumed, for no job of the runtime": {
			old: inQueue(torch(suspended, placedJSON)), object: inQueue(torch(resumed, unknown, placedJSON)),
			want: []string{"spec.runtimePatches[example.com/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].name"}},
		"a stop of a job whose runtime is gone":                            {old: inQueue(gone("")), object: inQueue(gone(suspended))},
		"a resume of a job whose runtime is gone":                          {old: inQueue(gone(suspended)), object: inQueue(gone(resumed))},
		"a label on a running job without its runtime":                     {old: inQueue(gone("")), object: inQueue(gone(""), label)},
		"a prebuilt Workload for a running job, with a stop":               {old: inQueue(torch("")), object: inQueue(torch(suspended), prebuilt), want: ofLabel("prebuilt-workload-name")},
		"a prebuilt Workload for a waiting job":                            {old: inQueue(gated), object: inQueue(gated, prebuilt), want: ofLabel("prebuilt-workload-name")},
		"a queued job that leaves its queue":                               {old: inQueue(gated), object: inttest.Manifest(``, gated), want: ofLabel("queue-name")},
		"a job for another cluster that leaves its queue":                  {old: inQueue(away), object: inttest.Manifest(``, away), want: ofLabel("queue-name")},
		"one with the empty entry of Kueue's own integration, in no queue": {old: inttest.Manifest(``, torch(suspended, emptyJSON)), object: inttest.Manifest(label, torch(resumed, emptyJSON))},
		"a resume of one that waited without a queue, with the gate":       {old: inttest.Manifest(``, gated), object: inttest.Manifest(``, torch(resumed, gateJSON)), want: []string{"spec.suspend"}},
		"a label of such a job":                                            {old: inttest.Manifest(``, gated), object: inttest.Manifest(label, gated)},
		"a label of one that was resumed with a gate":                      {old: inttest.Manifest(``, torch(resumed, gateJSON)), object: inttest.Manifest(label, torch(resumed, gateJSON))},
		"one that was in none":                                             {old: inttest.Manifest(``, away), object: inttest.Manifest(label, away)},
		"an entry of ours by a user, for another cluster":                  {old: inQueue(away), object: inQueue(torch(elsewhere+suspended, gateJSON)), want: ourEntry},
		"an entry of an older release, for another cluster":                {old: inQueue(torch(elsewhere+suspended, gateJSON)), object: inQueue(torch(elsewhere+suspended, gateJSON), label)},
		"a prebuilt Workload that goes":                                    {old: inQueue(gated, prebuilt), object: inQueue(gated), want: ofLabel("prebuilt-workload-name")},
		"a prebuilt Workload for a new job":                                {object: inQueue(gated, prebuilt)},
		"a prebuilt Workload that is named like a JobSet's":                {object: inQueue(gated, ofJobSet), want: ofLabel("prebuilt-workload-name")},
		"the same of a job that comes into a queue":                        {old: inttest.Manifest(ofJobSet, torch(suspended)), object: inQueue(gated, ofJobSet), want: ofLabel("prebuilt-workload-name")},
		"an entry of others in a running job whose runtime is gone":        {old: inQueue(gone("")), object: inQueue(gone(`,"runtimePatches":[` + late + `]`))},
		"whatever is written of a deleted job":                             {old: inQueue(gated), object: deleting(inttest.Manifest(``, gated))},
		"annotations beyond what etcd takes, that stay":                    {old: inQueue(gated, annotated(maxBytes)), object: inQueue(gated, annotated(maxBytes))},
		"the same of a job that was in a queue before":                     {old: inQueue(torch(""), ofJobSet), object: inQueue(torch(suspended), ofJobSet)},
		"a prebuilt Workload that stays, and a stop":                       {old: inQueue(torch(""), prebuilt), object: inQueue(torch(suspended), prebuilt)},
		"a time limit for a running job, with a stop":                      {old: inQueue(torch("")), object: inQueue(torch(suspended), limit), want: ofLabel("max-exec-time-seconds")},
		"a time limit that Kueue takes for none":                           {object: inQueue(gated, noLimit), want: ofLabel("max-exec-time-seconds")},
		"the same of a job that has it already":                            {old: inQueue(gated, noLimit), object: inQueue(gated, noLimit+","+label)},
		"a priority for a running job":                                     {old: inQueue(torch("")), object: inQueue(torch(""), priority), want: ofLabel("priority-class")},
		"a priority for a running job, with a stop":                        {old: inQueue(torch("")), object: inQueue(torch(suspended), priority)},
		"a spec that is too large":                                         {object: inQueue(large(maxSpecBytes)), want: []string{"spec"}},
		"a large spec without a queue":                                     {object: inttest.Manifest(``, large(maxSpecBytes))},
		"a large spec that does not grow":                                  {old: inQueue(large(maxSpecBytes)), object: inQueue(large(maxSpecBytes), label)},
		"a large spec that shrinks":                                        {old: inQueue(large(2 * maxSpecBytes)), object: inQueue(large(maxSpecBytes))},
		"a large spec that grows":                                          {old: inQueue(large(maxSpecBytes)), object: inQueue(large(2 * maxSpecBytes)), want: []string{"spec"}},
		"a large spec that comes into a queue":                             {old: inttest.Manifest(``, large(maxSpecBytes)), object: inQueue(large(maxSpecBytes)), want: []string{"spec"}},
		"annotations beyond what etcd takes":                               {old: inQueue(gated), object: inQueue(gated, annotated(maxBytes)), want: []string{"metadata"}},
		"annotations that shrink to that":                                  {old: inQueue(gated, annotated(maxBytes+1)), object: inQueue(gated, annotated(maxBytes))},
		"a spec that is just not too large":                                {object: inQueue(large(maxSpecBytes - len(large(0))))},
		"fewer nodes than none":                                            {object: inQueue(broken), want: []string{"spec.trainer.numNodes"}},
		"fewer nodes than none, without a queue":                           {object: inttest.Manifest(``, torch(withoutNodes))},
		"a resume of a job that is broken":                                 {old: inQueue(broken), object: inQueue(resumedBroken)},
		"a label of a job that is broken":                                  {old: inQueue(broken), object: inQueue(broken, label)},
		"another queue for a running job":                                  {old: inQueue(torch("")), object: inttest.Manifest(`"kueue.x-k8s.io/queue-name":"other"`, torch("")), want: ofLabel("queue-name")},
	}, func(t *testing.T, tc row) {
		_, v := newHandlers(t)
		response := v.Handle(t.Context(), request(tc.user, tc.object, tc.old))
		var got []string
		if !response.Allowed {
			for _, cause := range response.Result.Details.Causes {
				got = append(got, cause.Field)
			}
		}
		expect.Same(t, "Unexpected fields refused", tc.want, got)
	})
}

// deleting has somebody's finalizer keep a TrainJob.
func deleting(manifest string) string {
	return strings.Replace(manifest, `"metadata":{`, `"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z",`, 1)
}

// Until it is known which field the API server keeps, no job gets a gate. What is there can be stopped, and can go.
func TestTrainerThatIsUnknown(t *testing.T) {
	for old, want := range map[string]bool{"": false, inQueue(torch(resumed)): true} {
		d, v := newHandlers(t)
		d.Trainer.Set(t.Context(), 0, errors.New("there is no CRD"))
		for _, h := range []admission.Handler{d, v} {
			expect.Same(t, "It is allowed after "+old, want, h.Handle(t.Context(), request("user", inQueue(torch(suspended)), old)).Allowed)
		}
	}
}

func TestRefusalOfAnotherQueueSaysWhatToDo(t *testing.T) {
	_, v := newHandlers(t)
	for labels, want := range map[string]string{
		`"kueue.x-k8s.io/queue-name":"other"`: "it stops and queues there",
		``:                                    leaving,
	} {
		response := v.Handle(t.Context(), request("", inttest.Manifest(labels, torch(resumed, placedJSON)), inQueue(torch(resumed, placedJSON))))
		expect.Need(t, !response.Allowed, "It is allowed")
		expect.That(t, strings.Contains(response.Result.Message, want), "Unexpected message %q for labels %s", response.Result.Message, labels)
	}
}

const prebuilt = `"kueue.x-k8s.io/prebuilt-workload-name":"w"`

// large returns a spec with so many characters more than it needs.
func large(more int) string {
	return torch(suspended + `,"trainer":{"args":["` + strings.Repeat("x", more) + `"]}`)
}

func TestManagedBy(t *testing.T) {
	away, here := torch(elsewhere+suspended, gateJSON), []client.Object{queue, inttest.ClusterQueue()}
	there := []client.Object{queue, inttest.ClusterQueue("other", "remote"),
		inttest.Check("other", "example.com/budget"), inttest.Check("remote", kueue.MultiKueueControllerName)}
	type row struct {
		objects     []client.Object
		object, old string
		served      trainjob.TrainerVersion
		refused     bool
	}
	expect.Rows(t, map[string]row{
		"a queue without checks":                        {objects: here, object: inQueue(away), refused: true},
		"a queue with MultiKueue":                       {objects: there, object: inQueue(away)},
		"a queue with MultiKueue, Trainer 2.2":          {objects: there, object: inQueue(away), served: trainjob.Trainer22, refused: true},
		"a LocalQueue that is not there":                {object: inQueue(away)},
		"a job of Trainer's":                            {objects: here, object: inQueue(torch(byTrainer))},
		"no queue":                                      {objects: here, object: inttest.Manifest(``, away)},
		"a move to such a queue":                        {objects: here, object: inQueue(away), old: inttest.Manifest(`"kueue.x-k8s.io/queue-name":"far"`, away), refused: true},
		"a job of Trainer's in a queue with MultiKueue": {objects: there, object: inQueue(torch(byTrainer)), refused: true},
		"a move of a job of this cluster to such a queue": {
			objects: there, object: inQueue(torch(byTrainer + suspended)), old: inttest.Manifest(`"kueue.x-k8s.io/queue-name":"near"`, torch(byTrainer+suspended)), refused: true},
		"a job of this cluster that is there": {objects: there, object: inQueue(torch(byTrainer), `"a":"b"`), old: inQueue(torch(byTrainer))},
		"a label of a job that is there":      {objects: here, object: inQueue(away, `"a":"b"`), old: inQueue(away)},
	}, func(t *testing.T, tc row) {
		_, v := newHandlers(t, tc.objects...)
		v.Trainer = testenv.Served(t, cmp.Or(tc.served, trainjob.Trainer23))
		response := v.Handle(t.Context(), request("user", tc.object, tc.old))
		expect.That(t, response.Allowed != tc.refused && (!tc.refused || response.Result.Code == 422 && strings.Contains(response.Result.Message, "spec.managedBy")),
			"allowed: %t, %v", response.Allowed, response.Result)
	})
}

func TestDefaulterOfManagedNamespaces(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[*metav1.LabelSelector, string]{
		"a job without a queue waits for one where all are managed": {In: &metav1.LabelSelector{}, Want: torch(suspended, gateJSON)},
		"in a namespace that is left out it is left as it is":       {In: &metav1.LabelSelector{MatchLabels: map[string]string{"managed": "true"}}, Want: torch("")},
	}, func(t *testing.T, tc expect.Row[*metav1.LabelSelector, string]) {
		d, _ := newHandlers(t)
		d.Kueue = testenv.Kueue(func(settings *kueueconfig.Settings) {
			settings.ManageJobsWithoutQueueName, settings.ManagedJobsNamespaceSelector = true, tc.In
		})
		d.Queues = queues.New(d.Client, d.Client, d.Kueue)
		wantDefaulted(t, d, "user", "", "", torch(""), tc.Want)
		wantDefaulted(t, d, "user", queued, "", torch(""), tc.Want)
		wantDefaulted(t, d, "user", queued, "", torch("", gateJSON), tc.Want)
	})
}

// wantWarning has the validator allow a request, and fails where it warns of something, and should not, or the other way.
func wantWarning(t *testing.T, v *validator, of admission.Request, text string, want bool) {
	t.Helper()
	response := v.Handle(t.Context(), of)
	expect.Need(t, response.Allowed, "Refused: %v", response.Result)
	expect.That(t, strings.Contains(strings.Join(response.Warnings, "\n"), text) == want, "Warnings: %q", response.Warnings)
}

func TestQueueOfANamespaceThatKueueDoesNotManage(t *testing.T) {
	another := metav1.LabelSelector{MatchLabels: map[string]string{"managed": "true"}}
	type row struct {
		selector metav1.LabelSelector
		labels   string
		old      string
		spec     string
		want     bool
	}
	expect.Rows(t, map[string]row{
		"is told of when the job is created": {selector: another, labels: queued, want: true},
		"not where the job names none":       {selector: another},
		"not where the namespace is managed": {labels: queued},
		"not again when the job changes":     {selector: another, labels: queued, old: inQueue(torch(""))},
		"nor when the job leaves its queue":  {selector: another, old: inQueue(torch(suspended, gateJSON)), spec: torch(suspended, gateJSON)},
	}, func(t *testing.T, tc row) {
		_, v := newHandlers(t)
		v.Kueue = testenv.Kueue(func(settings *kueueconfig.Settings) { settings.ManagedJobsNamespaceSelector = &tc.selector })
		v.Queues = queues.New(v.Client, v.Client, v.Kueue)
		wantWarning(t, v, request("user", inttest.Manifest(tc.labels, cmp.Or(tc.spec, torch(""))), tc.old), "Kueue does not manage namespace ns", tc.want)
	})
}

func TestDefaulterHandsToMultiKueue(t *testing.T) {
	const away = elsewhere + suspended
	type row struct{ spec, oldSpec, want string }
	expect.Rows(t, map[string]row{
		"a job whose queue leads there, without an entry of ours":               {spec: torch(""), want: torch(away)},
		"one that Trainer manages by default":                                   {spec: torch(byTrainer), want: torch(away)},
		"one whose user says so":                                                {spec: torch(elsewhere), want: torch(away)},
		"one with the entries of others":                                        {spec: torch("", mine), want: torch(away, mine)},
		"one without room for an entry of ours":                                 {spec: torch("", kit.Numbered(16, `{"manager":"example.com/m%d"}`)), want: torch(away, kit.Numbered(16, `{"manager":"example.com/m%d"}`))},
		"an exported one, without the entry that it had":                        {spec: torch(away, gateJSON, mine), want: torch(away, mine)},
		"but not one that somebody else manages":                                {spec: torch(`,"managedBy":"example.com/me"`), want: torch(`,"managedBy":"example.com/me"` + suspended)},
		"one that waits gets no entry later":                                    {oldSpec: torch(away), spec: torch(away, mine), want: torch(away, mine)},
		"one with an entry of an older release keeps it":                        {oldSpec: torch(away, gateJSON), spec: torch(away, mine), want: torch(away, mine, gateJSON)},
		"one that comes back to this cluster gets the gate with the same write": {oldSpec: torch(away), spec: torch(suspended), want: torch(suspended, gateJSON)},
	}, func(t *testing.T, tc row) {
		d, _ := newHandlers(t, queue, inttest.ClusterQueue("remote"), inttest.Check("remote", kueue.MultiKueueControllerName))
		wantDefaulted(t, d, "user", queued, tc.oldSpec, tc.spec, tc.want)
	})
}

// FuzzWebhooks looks for objects on which a webhook panics.
func FuzzWebhooks(f *testing.F) {
	for _, seed := range [][2]string{
		{inQueue(torch("", mine, gateJSON)), ""},
		{inQueue(torch(suspended)), inttest.Manifest(``, `{"suspend":true}`)},
		{inQueue(`{"runtimePatches":[null,7,{"manager":7},{"trainingRuntimeSpec":{"template":null}}]}`), inQueue(`{}`)},
		{`{"metadata":null,"spec":{"trainer":null,"initializer":{}}}`, `{"spec":null}`},
		{inQueue(`{"runtimeRef":{"name":"torch","kind":"Ünïcode"},"trainer":{"numNodes":-5,"command":[""]}}`), ""},
	} {
		f.Add(seed[0], seed[1])
	}
	d, v := newHandlers(f)
	f.Fuzz(func(t *testing.T, object, oldObject string) {
		d.Handle(t.Context(), request("user", object, oldObject))
		v.Handle(t.Context(), request("user", object, oldObject))
	})
}

func TestManagerAloneResumesWhatHoldsQuota(t *testing.T) {
	old, resumed := inQueue(torch(suspended, gateJSON)), inQueue(torch(resumed, gateJSON))
	workload := func(says ...func(*kueue.Workload)) []client.Object {
		job := expect.FromJSON[trainjob.TrainJob](t, old)
		job.Namespace = "ns"
		return []client.Object{inttest.WorkloadOf(&job, append(says, kit.Admitted)...)}
	}
	type row struct {
		there         []client.Object
		user          string
		wantSuspended bool
	}
	expect.Rows(t, map[string]row{
		"it was evicted":         {there: workload(kit.Is(kueue.WorkloadEvicted, "")), wantSuspended: true},
		"it is admitted":         {there: workload(), wantSuspended: true},
		"it has no Workload":     {},
		"the manager resumes it": {there: workload(), user: self},
	}, func(t *testing.T, tc row) {
		d, _ := newHandlers(t, tc.there...)
		response := d.Handle(t.Context(), request(cmp.Or(tc.user, "user"), resumed, old))
		after := expect.FromJSON[trainjob.TrainJob](t, patched(t, resumed, response))
		expect.That(t, after.Suspended() == tc.wantSuspended && len(response.Warnings) > 0 == tc.wantSuspended,
			"The job is suspended: %t, with warnings %q; want %t", after.Suspended(), response.Warnings, tc.wantSuspended)
	})
}

// Trainer's webhook refuses another entry while JobSet counts pods, and with it whatever is written.
func TestJobWhosePodsEndGetsNoGate(t *testing.T) {
	old, labelled := inQueue(torch(suspended)), inQueue(torch(suspended), `"a":"b"`)
	jobSet := func(active int32) []client.Object {
		job := expect.FromJSON[trainjob.TrainJob](t, old)
		job.Namespace = "ns"
		js := inttest.JobSetOf(&job, true)
		js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Name: "node", Active: active}}
		return []client.Object{js}
	}
	expect.Rows(t, map[string]expect.Row[[]client.Object, string]{
		"its pods end":       {In: jobSet(1), Want: torch(suspended)},
		"they have ended":    {In: jobSet(0), Want: torch(suspended, gateJSON)},
		"it has not had any": {Want: torch(suspended, gateJSON)},
	}, func(t *testing.T, tc expect.Row[[]client.Object, string]) {
		d, _ := newHandlers(t, tc.In...)
		got := patched(t, labelled, d.Handle(t.Context(), request("user", labelled, old)))
		expect.Same(t, "Unexpected object", expect.FromJSON[any](t, inQueue(tc.Want, `"a":"b"`)), expect.FromJSON[any](t, got))
	})
}

func TestPriorityClassThatIsMissingIsToldAtOnce(t *testing.T) {
	labelled := func(class string) string {
		return inttest.Manifest(queued+`,"kueue.x-k8s.io/priority-class":"`+class+`"`, torch(suspended, gateJSON))
	}
	type row struct {
		object, old string
		want        bool
	}
	expect.Rows(t, map[string]row{
		"a class that is missing":       {object: labelled("missing"), want: true},
		"a class that is there":         {object: labelled("there")},
		"one that the job has long had": {object: labelled("missing"), old: labelled("missing")},
		"one that the job gets":         {object: labelled("missing"), old: labelled("there"), want: true},
		"a job in no queue":             {object: inttest.Manifest(`"kueue.x-k8s.io/priority-class":"missing"`, torch(suspended))},
	}, func(t *testing.T, tc row) {
		_, v := newHandlers(t, kit.Priority("there", 1))
		wantWarning(t, v, request("user", tc.object, tc.old), "no WorkloadPriorityClass missing", tc.want)
	})
}

// The API server would say that there is one more than the user has written.
func TestATrainJobWithoutRoomForOurEntryIsRefused(t *testing.T) {
	for count, want := range map[int]bool{15: true, 16: false} {
		spec := torch("", kit.Numbered(count, `{"manager":"example.com/m%d"}`))
		d, _ := newHandlers(t)
		expect.That(t, d.Handle(t.Context(), request("user", inttest.Manifest("", spec), "")).Allowed, "It is refused without a queue")
		response := d.Handle(t.Context(), request("user", inQueue(spec), ""))
		expect.That(t, response.Allowed == want && (want || response.Result.Code == 422 && strings.Contains(response.Result.Message, "spec.runtimePatches: Too many: 16: must have at most 15 items")),
			"%d entries: %+v", count, response)
	}
}

// No patch of the API server adds to what is not there.
func TestATrainJobWithoutASpecIsRefused(t *testing.T) {
	for _, spec := range []string{"", `,"spec":null`} {
		for _, old := range []string{"", inttest.Manifest(queued, torch(suspended, gateJSON))} {
			d, _ := newHandlers(t)
			response := d.Handle(t.Context(), request("user", `{"metadata":{"name":"job","namespace":"ns","labels":{`+queued+`}}`+spec+`}`, old))
			expect.That(t, d.Handle(t.Context(), request("user", `{"metadata":{"name":"job","namespace":"ns"}`+spec+`}`, "")).Allowed, "It is refused without a queue")
			expect.That(t, !response.Allowed && response.Result.Code == 422 && strings.Contains(response.Result.Message, "is invalid: spec"), "%q: %+v", spec, response)
		}
	}
}
