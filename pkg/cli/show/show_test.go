// SPDX-License-Identifier: Apache-2.0

package show

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// A log has a line now and then, of what takes longer only.
func TestProgressOfALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		bar := NewProgress(&out, "simulating")
		for n := range 8 {
			bar.At(float64(n) / 8)
			expect.Pass(10 * time.Second)
		}
		bar.Done()
		expect.Same(t, "Unexpected lines", "simulating: 38 %\nsimulating: 75 %\n", out.String())
	})
}

func TestTable(t *testing.T) {
	on := Paint{on: true}
	type row struct {
		rows  [][]any
		paint Paint
		hide  bool
		want  string
	}
	expect.Rows(t, map[string]row{
		"a heading alone":                          {want: "NAME   GPUS\n"},
		"columns are as wide as their widest cell": {rows: [][]any{{"h100", 32}, {"a-long-name", 8}}, want: "NAME          GPUS\nh100          32\na-long-name   8\n"},
		"colours and letters beyond ASCII have their own width": {rows: [][]any{{on.Red("h100"), 1}, {"größe", 2}},
			paint: on, want: "\x1b[1mNAME\x1b[0m    \x1b[1mGPUS\x1b[0m\n\x1b[31mh100\x1b[0m    1\ngröße   2\n"},
		"what others write is on its line, and moves no cursor": {rows: [][]any{{on.Red("a\nb"), "\x1b[2Jx\r\u009b1m"}}, paint: Paint{},
			want: "NAME   GPUS\n\x1b[31ma b\x1b[0m    \uFFFD[2Jx\uFFFD\uFFFD1m\n"},
		"no spaces at the end of a line": {rows: [][]any{{"h100", ""}}, want: "NAME   GPUS\nh100\n"},
		"a column that is hidden":        {rows: [][]any{{"h100", 32}}, hide: true, want: "GPUS\n32\n"},
	}, func(t *testing.T, tc row) {
		table := NewTable("NAME", "GPUS")
		for _, row := range tc.rows {
			table.Row(row...)
		}
		table.Hide(tc.hide, "NAME", "OTHER")
		var out strings.Builder
		expect.NoError(t, table.Print(&out, tc.paint))
		expect.Same(t, "Unexpected table", tc.want, out.String())
	})
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"größe ✓\n\tx":              "größe ✓\n\tx",
		Paint{on: true}.Red("red"):  "\x1b[31mred\x1b[0m",
		"\x1b[8mhidden\x1b[0m":      "\uFFFD[8mhidden\x1b[0m",
		"\x1b]0;title\a":            "\uFFFD]0;title\uFFFD",
		"over\rwritten\x7f\u009b2J": "over\uFFFDwritten\uFFFD\uFFFD2J",
		"a\u202eb":                  "a\uFFFDb",
		"\xff\xc3":                  "\xff\xc3",
	} {
		expect.Same(t, "What is seen", want, visible(text, "\n\t"))
	}
	expect.Same(t, "On a line", "a b \uFFFDc", Line("a\nb\r\n  \x1bc"))
}

func TestUnits(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	got := []string{Age(now, now.Add(-90*time.Second)), Age(now, time.Time{}), Count(1, "GPU"), Count(0, "GPU"), Count(16, "node")}
	expect.Same(t, "Unexpected units", []string{"90s", "<unknown>", "1 GPU", "0 GPUs", "16 nodes"}, got)
}

func TestEncode(t *testing.T) {
	value := map[string]any{"a": []string{"<b>"}}
	for format, want := range map[string]string{JSON: "{\n  \"a\": [\n    \"<b>\"\n  ]\n}\n", YAML: "a:\n- <b>\n", JSONPath + "{.a[0]}": "<b>", JSONPath + ".a[*]": "<b>", JSONPath + "{.none}": ""} {
		var out strings.Builder
		expect.NoError(t, Encode(&out, format, value))
		expect.Same(t, "Unexpected "+format, want, out.String())
	}
	var out strings.Builder
	expect.NoError(t, Encode(&out, JSONPath+"{[0].a[0]}", []any{value}))
	expect.Same(t, "Unexpected field of what stands in a list", "<b>", out.String())
}

func TestCheckFormat(t *testing.T) {
	type row struct {
		format string
		known  []string
		want   string
	}
	expect.Rows(t, map[string]row{
		"none":                    {known: []string{JSON}},
		"a known one":             {format: YAML, known: []string{Wide, JSON, YAML}},
		"the only one":            {format: "xml", known: []string{JSON}, want: "--output xml: there is no such format: use json or jsonpath=TEMPLATE"},
		"a JSONPath":              {format: "jsonpath={.a}", known: []string{Wide, JSON}},
		"one without JSON":        {format: "jsonpath={.a}", known: []string{Wide}, want: "--output jsonpath={.a}: there is no such format: use wide"},
		"one that cannot be read": {format: "jsonpath={.a", known: []string{JSON}, want: "--output jsonpath={.a: write a template such as jsonpath='{.name}': unclosed action"},
		"one of two":              {format: "xml", known: []string{JSON, YAML}, want: "--output xml: there is no such format: use json, yaml or jsonpath=TEMPLATE"},
		"one of three":            {format: "xml", known: []string{Wide, JSON, YAML}, want: "--output xml: there is no such format: use wide, json, yaml or jsonpath=TEMPLATE"},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected error", tc.want, expect.Text(checkFormat(tc.format, tc.known)))
	})
}

func TestFlagsTakeOneOfSomeWords(t *testing.T) {
	format, by := "", "queue"
	cmd := &cobra.Command{}
	OutputFlag(cmd, &format, Wide, JSON)
	OneOf(cmd, &by, "by", "queue or user", "queue", "user")
	for args, want := range map[[2]string]string{
		{"-o", "jsonpath={.a}"}: "", {"--by", "user"}: "", {"-o", "xml"}: "--output xml: there is no such format: use wide, json or jsonpath=TEMPLATE",
		{"--by", ""}: "--by : use queue or user",
	} {
		expect.Says(t, cmd.ParseFlags(args[:]), want)
	}
	expect.Same(t, "Unexpected values", []string{"jsonpath={.a}", "user"}, []string{format, by})
}

func TestColoursAreSwitchedOff(t *testing.T) {
	type row struct {
		noColor, term string
		want          bool
	}
	expect.Rows(t, map[string]row{
		"a terminal":                   {term: "xterm", want: true},
		"NO_COLOR":                     {noColor: "1", term: "xterm"},
		"a terminal without any":       {term: "dumb"},
		"an empty NO_COLOR is not set": {noColor: "", term: "xterm", want: true},
	}, func(t *testing.T, tc row) {
		t.Setenv("NO_COLOR", tc.noColor)
		t.Setenv("TERM", tc.term)
		expect.Same(t, "Unexpected colours", tc.want, wanted())
	})
}

func TestOnlyTerminalsArePainted(t *testing.T) {
	expect.Same(t, "Unexpected text", "text", Painter(&strings.Builder{}).Red("text"))
}
