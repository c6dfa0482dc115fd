// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// groups are rules as Prometheus reads them.
type groups struct {
	Groups []group `json:"groups"`
}

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func rulesOf(file string) groups {
	var read groups
	Expect(yaml.UnmarshalStrict(must(os.ReadFile(file)), &read)).To(Succeed())
	return read
}

// soon has alerts fire when their condition has held for seconds, not for many minutes. What else stands
// in the expressions is left as it is.
func soon(all groups) groups {
	for _, g := range all.Groups {
		for i := range g.Rules {
			if g.Rules[i].For != "" {
				g.Rules[i].For = "10s"
			}
			g.Rules[i].Expr = strings.ReplaceAll(g.Rules[i].Expr, "[1h:1m])) >= 30", "[30s:1s])) >= 15")
		}
	}
	return all
}

// board is what is read of a dashboard.
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

// boards returns the dashboards by the name of their file, without .json.
func boards() map[string]board {
	all := map[string]board{}
	for _, file := range must(filepath.Glob(filepath.Join("..", "..", "config", "monitoring", "dashboards", "*.json"))) {
		var read board
		Expect(json.Unmarshal(must(os.ReadFile(file)), &read)).To(Succeed(), file)
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = read
	}
	return all
}
