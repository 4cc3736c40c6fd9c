// SPDX-License-Identifier: Apache-2.0

// Genapi writes the OpenAPI description of the control socket into a file. It reads what the source says of types in the
// packages that follow.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"narthex/internal/daemon/openapi"
)

//go:generate go run . ../openapi.json ../../api ../../../adapt ../../../live ../../../policy ../../../datapath ../../../trial

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: genapi FILE PACKAGE...")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "genapi:", err)
		os.Exit(1)
	}
}

func write(file string, packages []string) error {
	comments := map[string]string{}
	for _, dir := range packages {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			collect(parsed, comments)
		}
	}
	text, err := openapi.Generate(comments)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// collect notes what is said of the types of a file and of their fields.
func collect(file *ast.File, comments map[string]string) {
	for _, d := range file.Decls {
		general, ok := d.(*ast.GenDecl)
		if !ok || general.Tok != token.TYPE {
			continue
		}
		for _, s := range general.Specs {
			spec := s.(*ast.TypeSpec)
			name := file.Name.Name + "." + spec.Name.Name
			comments[name] = said(spec.Doc, general.Doc)
			structure, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range structure.Fields.List {
				for _, id := range f.Names {
					comments[name+"."+id.Name] = said(f.Doc, f.Comment)
				}
			}
		}
	}
}

// said is the first comment that there is, in one line.
func said(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if g != nil {
			return strings.Join(strings.Fields(g.Text()), " ")
		}
	}
	return ""
}
