// SPDX-License-Identifier: Apache-2.0

// Command doctordocs writes docs/doctor.md: what doctor finds, from the table by which it does.
//
//	go run ./hack/doctordocs docs/doctor.md
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"text/template"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/doctor"
)

//go:embed doctor.md.tmpl
var page string

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "doctordocs:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: doctordocs FILE")
	}
	parsed, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, doctor.Sections()); err != nil {
		return err
	}
	return os.WriteFile(args[0], out.Bytes(), 0o644)
}
