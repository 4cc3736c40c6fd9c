// SPDX-License-Identifier: Apache-2.0

package sum

import (
	"testing"
	"testing/fstest"
)

func TestOf(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	of := func(files fstest.MapFS) string {
		s, err := Of(files)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	was := of(fstest.MapFS{"a.c": file("int a;"), "lib/b.h": file("int b;")})
	if of(fstest.MapFS{"a.c": file("int a;"), "lib/b.h": file("int b;"), "lib/README.md": file("words")}) != was {
		t.Error("a file that is no source changes the sum")
	}
	for what, files := range map[string]fstest.MapFS{
		"changed": {"a.c": file("int a;"), "lib/b.h": file("int c;")},
		"new":     {"a.c": file("int a;"), "lib/b.h": file("int b;"), "lib/c.h": file("")},
		"removed": {"a.c": file("int a;")},
		"moved":   {"a.c": file("int a;"), "b.h": file("int b;")},
		"joined":  {"a.c": file("int a;\"lib/b.h\" 6\nint b;")},
	} {
		if of(files) == was {
			t.Errorf("a %s file does not change the sum", what)
		}
	}
}
