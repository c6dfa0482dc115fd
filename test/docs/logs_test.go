// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

// logging are the packages whose lines are the manager's log, without those of the plugin.
var logging = []string{"pkg", "cmd/kueue-trainer"}

// call is one that writes a line, or names a key of lines.
type call struct {
	at string
	// message is empty where it only names keys.
	message string
	keys    []string
	// faults are what is against the convention already as it is written.
	faults []string
}

// The manager's lines are written as Kubernetes writes them, have keys that docs/logging.md explains, and stand there.
func TestLogLines(t *testing.T) {
	calls := callsIn(t)
	expect.Need(t, len(calls) >= 40, "Only %d calls that log are found", len(calls))
	page := file(t, "docs/logging.md")
	explained, listed := firstColumn(pages.Section(page, "keys")), firstColumn(pages.Section(page, "messages"))
	used, said := map[string]bool{}, map[string]bool{}
	for _, c := range calls {
		faults := c.faults
		if c.message != "" {
			said[c.message] = true
			faults = append(faults, faultsOf(c.message)...)
			if !slices.Contains(listed, c.message) {
				faults = append(faults, "docs/logging.md does not list it")
			}
		}
		for _, key := range c.keys {
			used[key] = true
			if !slices.Contains(explained, key) {
				faults = append(faults, "docs/logging.md does not explain key "+key)
			}
		}
		for _, fault := range faults {
			t.Errorf("%s: %q: %s", c.at, c.message, fault)
		}
	}
	for _, key := range explained {
		// controller-runtime and Kueue's jobframework add the rest.
		expect.That(t, used[key] || slices.Contains([]string{"reconcileID", "logger", "job", "gvk"}, key),
			"docs/logging.md explains key %s, and nothing logs it", key)
	}
	for _, message := range listed {
		expect.That(t, said[message], "docs/logging.md lists %q, and nothing logs it", message)
	}
}

// What people are told to look for in the log and in the metrics is there.
func TestTroubleshootingQuotesTheLog(t *testing.T) {
	said := expect.Each(callsIn(t), func(c call) string { return c.message })
	page := file(t, "docs/troubleshooting.md")
	quoted := regexp.MustCompile(`"msg":"([^"]+)"`).FindAllStringSubmatch(page, -1)
	expect.That(t, len(quoted) >= 20, "Only %d lines are quoted", len(quoted))
	for _, q := range quoted {
		expect.That(t, slices.Contains(said, q[1]), "docs/troubleshooting.md quotes %q, and nothing logs it", q[1])
	}
	measured := expect.Each(metrics.All, func(m metrics.Metric) string { return m.Name })
	for _, named := range regexp.MustCompile(`\bkueue_trainer_\w+`).FindAllString(page, -1) {
		expect.That(t, slices.Contains(measured, named), "docs/troubleshooting.md names %s, which is no metric of the manager", named)
	}
}

// Whoever finds a reason in a list of jobs that do not run finds it in the page as well.
func TestTroubleshootingHasTheReasons(t *testing.T) {
	page, _, _ := strings.Cut(pages.Section(file(t, "docs/plugin.md"), "phases-and-reasons"), "| code |")
	named := regexp.MustCompile("`(\\w+)`")
	rows := regexp.MustCompile("(?m)^\\| `(?:Unqueued|Waiting|Reserved|Elsewhere|Starting)` \\| (.*) \\|$").FindAllStringSubmatch(page, -1)
	expect.That(t, len(rows) == 5, "%d phases in which a job does not run", len(rows))
	troubles := file(t, "docs/troubleshooting.md")
	for _, row := range rows {
		for _, reason := range named.FindAllStringSubmatch(row[1], -1) {
			expect.That(t, strings.Contains(troubles, reason[0]), "docs/troubleshooting.md has nothing on reason %s", reason[1])
		}
	}
}

func TestFaultsOfMessages(t *testing.T) {
	for message, want := range map[string]int{
		"Started TrainJob":         0,
		"Kueue's queue is gone":    0,
		"started TrainJob":         1,
		"Started TrainJob.":        1,
		"Started %s":               1,
		"Starting TrainJob":        1,
		"String of a list is long": 0,
	} {
		expect.Same(t, "Unexpected number of faults of "+message, want, len(faultsOf(message)))
	}
}

// faults are in what a message is not as Kubernetes' conventions have it.
var faults = map[string]*regexp.Regexp{
	"does not begin with a capital":        regexp.MustCompile(`^[^A-Z]`),
	"ends with a full stop":                regexp.MustCompile(`\.$`),
	"has a verb of a format":               regexp.MustCompile(`%`),
	"does not say what was done, or is so": regexp.MustCompile(`^[^ ]{4,}ing( |$)`),
}

func faultsOf(message string) []string {
	var found []string
	for fault, pattern := range faults {
		if pattern.MatchString(message) {
			found = append(found, fault)
		}
	}
	return found
}

var lowerCamel = regexp.MustCompile(`^[a-z][a-zA-Z]*(ID)?$`)

// callsIn finds the calls of the manager's packages, and the messages of its events.
func callsIn(t *testing.T) []call {
	t.Helper()
	var calls []call
	files := token.NewFileSet()
	for _, dir := range logging {
		expect.NoError(t, filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (strings.HasSuffix(path, "pkg/cli") || strings.HasSuffix(path, "internal")):
				// That does not run in the manager.
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.CallExpr:
					if c, ok := callOf(node); ok {
						c.at = files.Position(node.Pos()).String()
						calls = append(calls, c)
					}
				case *ast.ValueSpec:
					for _, message := range messagesOf(node) {
						calls = append(calls, call{at: files.Position(node.Pos()).String(), message: message})
					}
				}
				return true
			})
			return nil
		}))
	}
	return calls
}

// callOf returns a call of a logger: Info and Error with a message, WithValues, and ForController,
// whose last argument is a key. A sink passes on what was written elsewhere, and http.Error answers.
func callOf(node *ast.CallExpr) (call, bool) {
	selector, ok := node.Fun.(*ast.SelectorExpr)
	if !ok || isSink(selector.X) || isNamed(selector.X, "http") {
		return call{}, false
	}
	args := node.Args
	switch name := selector.Sel.Name; {
	case name == "Info" && len(args) > 0:
		return line(args[0], args[1:]), true
	case name == "Error" && len(args) > 1:
		return line(args[1], args[2:]), true
	case name == "WithValues":
		return call{}.withKeys(args), true
	case name == "ForController":
		return call{}.withKeys(args[len(args)-1:]), true
	}
	return call{}, false
}

func isSink(x ast.Expr) bool {
	selector, ok := x.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "LogSink"
}

func line(message ast.Expr, keysAndValues []ast.Expr) call {
	c := call{}
	if text, ok := literal(message); ok {
		c.message = text
	} else if of, ok := message.(*ast.CallExpr); !ok || !isNamed(of.Fun, "messageOf") {
		c.faults = append(c.faults, "the message is not a constant text")
	}
	return c.withKeys(keysAndValues)
}

func (c call) withKeys(keysAndValues []ast.Expr) call {
	for i := 0; i < len(keysAndValues); i += 2 {
		key, ok := literal(keysAndValues[i])
		switch {
		case !ok && !isNamed(keysAndValues[i], "key"):
			c.faults = append(c.faults, "a key is not a constant text")
		case ok && !lowerCamel.MatchString(key):
			c.faults = append(c.faults, "key "+key+" is not lowerCamelCase")
		case ok:
			c.keys = append(c.keys, key)
		}
	}
	return c
}

func isNamed(x ast.Expr, name string) bool {
	ident, ok := x.(*ast.Ident)
	return ok && ident.Name == name
}

func literal(x ast.Expr) (string, bool) {
	lit, ok := x.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// messagesOf returns the values of the map of messages by reason, and the one for other reasons.
func messagesOf(spec *ast.ValueSpec) (messages []string) {
	if len(spec.Names) != 1 || !slices.Contains([]string{"messages", "otherMessage"}, spec.Names[0].Name) {
		return nil
	}
	ast.Inspect(spec, func(node ast.Node) bool {
		x, _ := node.(ast.Expr)
		if message, ok := literal(x); ok {
			messages = append(messages, message)
		}
		return true
	})
	return messages
}

// firstColumn returns what stands in backquotes in the first column of tables.
func firstColumn(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || !isRow {
			continue
		}
		for _, quoted := range name.FindAllStringSubmatch(cell, -1) {
			out = append(out, quoted[1])
		}
	}
	return out
}
