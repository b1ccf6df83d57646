package silent_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is what `go list` says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// list returns the packages of the patterns and all that they need.
func list(t *testing.T, root string, patterns ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-export",
		"-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, patterns...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// reads returns the fields of API messages that the code of the patterns mentions, by type and name, such as
// "monoplane.dev/api/core/v1.PodSpec.NodeName". Writing a field counts too.
func reads(t *testing.T, root string, patterns ...string) map[string]bool {
	t.Helper()
	fset := token.NewFileSet()
	exports := map[string]string{}
	packages := list(t, root, patterns...)
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser,
		error) {
		return os.Open(exports[path])
	})
	found := map[string]bool{}
	for _, p := range packages {
		if p.DepOnly {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, info); err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Selections {
			recv := s.Recv()
			if ptr, ok := recv.(*types.Pointer); ok {
				recv = ptr.Elem()
			}
			named, ok := recv.(*types.Named)
			if !ok || named.Obj().Pkg() == nil || !strings.HasPrefix(named.Obj().Pkg().Path(), "monoplane.dev/api/") {
				continue
			}
			found[named.Obj().Pkg().Path()+"."+named.Obj().Name()+"."+strings.TrimPrefix(s.Obj().Name(), "Get")] = true
		}
	}
	return found
}
