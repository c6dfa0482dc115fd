// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// These are short: what takes minutes in production takes seconds here. The API server has ten thousand series to tell.
const (
	scrapeInterval    = 2 * time.Second
	apiServerInterval = 5 * time.Second
)

// server is a Prometheus that scrapes the control plane, and evaluates the rules.
type server struct {
	promv1.API
	address string
}

// startPrometheus starts bin/prometheus until the specs are over.
func startPrometheus(ctx context.Context, w *world.World) *server {
	dir := GinkgoT().TempDir()
	rules := specs.Must(yaml.Marshal(soon(rulesOf(filepath.Join(root, "config", "monitoring", "rules.yaml")))))
	for name, content := range map[string]string{"rules.yaml": string(rules), "token": w.Token(ctx, "kueue-trainer-metrics-reader"), "prometheus.yaml": scrapes()} {
		Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)).To(Succeed())
	}
	address := fmt.Sprintf("127.0.0.1:%d", world.FreePort())
	log := specs.Must(os.Create(filepath.Join(cluster.LocalDir(), "logs", "prometheus.log")))
	process := exec.Command(filepath.Join(root, "bin", "prometheus"), "--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.listen-address="+address)
	process.Dir = dir
	session, err := gexec.Start(process, log, log)
	Expect(err).NotTo(HaveOccurred(), "make monitoring-test builds it")
	DeferCleanup(func() { session.Terminate().Wait() })
	s := &server{API: promv1.NewAPI(specs.Must(api.NewClient(api.Config{Address: "http://" + address}))), address: address}
	Eventually(ctx, func(g Gomega) {
		targets, err := s.Targets(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(targets.Active).To(HaveLen(3))
		for _, target := range targets.Active {
			g.Expect(target.Health).To(Equal(promv1.HealthGood), "%s: %s", target.ScrapePool, target.LastError)
		}
	}).Should(Succeed())
	return s
}

// scrapeJob is what a monitor of the chart makes: with the target's namespace, but the labels of metrics come first.
const scrapeJob = `
- {job_name: %s, scrape_interval: %s, scrape_timeout: %[2]s, static_configs: [{targets: ["%s"], labels: {namespace: %s}}],
   scheme: https, honor_labels: true, authorization: {credentials_file: token}, tls_config: {insecure_skip_verify: true}}`

func scrapes() string {
	apiServer := specs.Must(url.Parse(cluster.Config.Host))
	return fmt.Sprintf("global: {evaluation_interval: %s}\nrule_files: [rules.yaml]\nscrape_configs:", scrapeInterval) +
		fmt.Sprintf(scrapeJob, "kueue-trainer-metrics-service", scrapeInterval, specs.Must(cluster.Address("kueue-trainer", "metrics")), "kueue-trainer-system") +
		fmt.Sprintf(scrapeJob, "kueue-controller-manager-metrics-service", scrapeInterval, specs.Must(cluster.Address("kueue", "metrics")), "kueue-system") +
		fmt.Sprintf(scrapeJob, "apiserver", apiServerInterval, apiServer.Host, "default")
}

// series returns what an expression gives over a time; warnings and errors fail the spec.
func (s *server) series(ctx context.Context, expr string, over promv1.Range) model.Matrix {
	value, warnings, err := s.QueryRange(ctx, expr, over)
	Expect(err).NotTo(HaveOccurred(), expr)
	Expect(warnings).To(BeEmpty(), expr)
	return value.(model.Matrix)
}

func (s *server) now(ctx context.Context, expr string, at time.Time) model.Vector {
	value, _, err := s.Query(ctx, expr, at)
	Expect(err).NotTo(HaveOccurred(), expr)
	return value.(model.Vector)
}

func (s *server) firing(ctx context.Context) []string {
	result := specs.Must(s.Alerts(ctx))
	var names []string
	for _, alert := range result.Alerts {
		if alert.State == promv1.AlertStateFiring {
			names = append(names, string(alert.Labels[model.AlertNameLabel]))
		}
	}
	return names
}

// selectors returns the series that an expression asks for, with any value of their labels: what fires need not be there.
func (s *server) selectors(ctx context.Context, expr string) []string {
	_, body, err := world.Ask(ctx, "http://"+s.address+"/api/v1/parse_query?query="+url.QueryEscape(expr), "")
	Expect(err).NotTo(HaveOccurred())
	var parsed struct {
		Data any `json:"data"`
	}
	Expect(json.Unmarshal([]byte(body), &parsed)).To(Succeed())
	return selectorsIn(parsed.Data)
}

func selectorsIn(node any) []string {
	var found []string
	switch n := node.(type) {
	case map[string]any:
		if n["type"] == "vectorSelector" || n["type"] == "matrixSelector" {
			found = append(found, withLabels(fmt.Sprint(n["name"]), n["matchers"]))
		}
		for _, child := range n {
			found = append(found, selectorsIn(child)...)
		}
	case []any:
		for _, child := range n {
			found = append(found, selectorsIn(child)...)
		}
	}
	return found
}

// withLabels selects a metric that has the labels of matchers, with any value.
func withLabels(name string, matchers any) string {
	selector := name + "{"
	for _, matcher := range matchers.([]any) {
		if label := matcher.(map[string]any)["name"]; label != model.MetricNameLabel {
			selector += fmt.Sprintf("%s!=\"\",", label)
		}
	}
	return selector + "}"
}

type groups struct {
	Groups []struct {
		Name  string           `json:"name"`
		Rules []map[string]any `json:"rules"`
	} `json:"groups"`
}

func rulesOf(file string) groups {
	var read groups
	Expect(yaml.UnmarshalStrict(specs.Must(os.ReadFile(file)), &read)).To(Succeed())
	return read
}

// soon has alerts fire when their condition has held for seconds, not for many minutes.
func soon(all groups) groups {
	for _, g := range all.Groups {
		for _, rule := range g.Rules {
			if rule["for"] != nil {
				rule["for"] = "10s"
			}
			rule["expr"] = strings.ReplaceAll(rule["expr"].(string), "[1h:1m])) >= 30", "[30s:1s])) >= 15")
		}
	}
	return all
}

type board struct {
	Panels     []panel `json:"panels"`
	Templating struct {
		List []variable `json:"list"`
	} `json:"templating"`
}

type variable struct {
	Name  string `json:"name"`
	Query any    `json:"query"`
}

type panel struct {
	Title   string `json:"title"`
	Panels  []panel
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// dashboard reads one by the name of its file, without .json.
func dashboard(name string) (read board) {
	Expect(json.Unmarshal(specs.Must(os.ReadFile(filepath.Join(root, "config", "monitoring", "dashboards", name+".json"))), &read)).To(Succeed(), name)
	return read
}
