package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// source reads packages of one module from their sources, and those that they import from others as the compiler has
// left them: nothing of the module itself has to be compiled.
type source struct {
	fset    *token.FileSet
	outside map[string]*types.Package
}

// open finds the packages that match, with their tests, and what they need of the module, each after those that it
// imports.
func open(tags string, patterns ...string) (*source, []*packages.Package, error) {
	s := &source{fset: token.NewFileSet()}
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedModule | packages.NeedForTest | packages.NeedTypesSizes,
		Tests:      true,
		Fset:       s.fset,
		BuildFlags: []string{"-tags=" + tags},
	}, patterns...)
	if err != nil {
		return nil, nil, err
	}
	var own []*packages.Package
	imported := make(map[string]bool)
	packages.Visit(all, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
		if !ours(p) || strings.HasSuffix(p.PkgPath, ".test") { // the main program of tests is generated
			return
		}
		own = append(own, p)
		for _, dep := range p.Imports {
			if !ours(dep) {
				imported[dep.PkgPath] = true
			}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	s.outside, err = compiled(s.fset, tags, slices.Sorted(maps.Keys(imported)))
	return s, own, err
}

func ours(p *packages.Package) bool { return p.Module != nil && p.Module.Main }

// compiled has packages compiled, or finds that they are, and returns their types. All are read before any is used,
// since reading one changes others.
func compiled(fset *token.FileSet, tags string, paths []string) (map[string]*types.Package, error) {
	args := append([]string{"list", "-export", "-deps", "-tags=" + tags, "-f", "{{.ImportPath}} {{.Export}}"}, paths...)
	list := exec.Command("go", args...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w", err)
	}
	export := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		export[path] = file
	}
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(export[path]) })
	all := map[string]*types.Package{"unsafe": types.Unsafe}
	for _, path := range paths {
		if all[path], err = from.Import(path); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// read reads a package whose imports of the module have been read, and checks its types.
func (s *source) read(p *packages.Package) (err error) {
	p.Fset = s.fset
	for _, name := range p.CompiledGoFiles {
		file, err := parser.ParseFile(s.fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		p.Syntax = append(p.Syntax, file)
	}
	p.TypesInfo = &types.Info{
		Types:        make(map[ast.Expr]types.TypeAndValue),
		Instances:    make(map[*ast.Ident]types.Instance),
		Defs:         make(map[*ast.Ident]types.Object),
		Uses:         make(map[*ast.Ident]types.Object),
		Implicits:    make(map[ast.Node]types.Object),
		Selections:   make(map[*ast.SelectorExpr]*types.Selection),
		Scopes:       make(map[ast.Node]*types.Scope),
		FileVersions: make(map[*ast.File]string),
	}
	config := types.Config{
		Importer: importing(func(path string) (*types.Package, error) {
			switch dep := p.Imports[path]; {
			case dep == nil:
				return nil, fmt.Errorf("%s is not among the imports of %s", path, p.ID)
			case ours(dep):
				return dep.Types, nil
			default:
				return s.outside[dep.PkgPath], nil
			}
		}),
		Sizes:     p.TypesSizes,
		GoVersion: "go" + p.Module.GoVersion,
	}
	p.Types, err = config.Check(p.PkgPath, s.fset, p.Syntax, p.TypesInfo)
	return err
}

type importing func(path string) (*types.Package, error)

func (f importing) Import(path string) (*types.Package, error) { return f(path) }
