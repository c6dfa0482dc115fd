// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

const unknown = "NOASSERTION"

// bill returns what a program is made of, in SPDX: the modules that Go's linker wrote into it.
func bill(artefact, binary string, r *release) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: artefact, DocumentNamespace: downloads + r.version + "/" + artefact + ".spdx.json",
		CreationInfo: &spdx.CreationInfo{
			Created:  r.date.UTC().Format(time.RFC3339),
			Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "kueue-trainer-dist"}},
		},
	}
	own := module(0, info.Main.Path, r.version)
	own.PackageLicenseDeclared, own.PrimaryPackagePurpose = "Apache-2.0", "APPLICATION"
	doc.Packages = []*spdx.Package{own, module(1, "stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for i, dep := range info.Deps {
		doc.Packages = append(doc.Packages, module(i+2, used(dep).Path, used(dep).Version))
	}
	doc.Relationships = []*spdx.Relationship{{RefA: common.MakeDocElementID("", "DOCUMENT"),
		RefB: common.MakeDocElementID("", string(own.PackageSPDXIdentifier)), Relationship: "DESCRIBES"}}
	for _, p := range doc.Packages[1:] {
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{RefA: common.MakeDocElementID("", string(own.PackageSPDXIdentifier)),
			RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)), Relationship: "DEPENDS_ON"})
	}
	var out bytes.Buffer
	err = json.Write(doc, &out, json.Indent("  "))
	return out.Bytes(), err
}

// used is the module that stands in for another.
func used(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

func module(i int, path, version string) *spdx.Package {
	return &spdx.Package{
		PackageName: path, PackageVersion: version, PackageSPDXIdentifier: spdx.ElementID(fmt.Sprintf("Package-%d", i)),
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: "PACKAGE-MANAGER", RefType: "purl", Locator: "pkg:golang/" + path + "@" + url.QueryEscape(version),
		}},
	}
}
