// Command lint looks at packages of the module, or workspace, with all linters of linters.go. It prints what they
// find, and fails if they find something. Its arguments are patterns of packages; -tags names build tags.
//
// It reads the module's own packages from their sources, in one process, and compiles only what they import from
// others, which a build has done already. Other drivers of linters, go vet among them, compile the module with all
// its tests once more: that took five minutes of processor time, and these linters take one and a half.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
)

func main() {
	tags := flag.String("tags", "", "build tags, separated by commas")
	flag.Parse()
	found, err := run(*tags, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, line := range found {
		fmt.Println(line)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// run returns what the linters find, a line each, in order.
func run(tags string, patterns []string) ([]string, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	source, all, err := open(tags, patterns...)
	if err != nil {
		return nil, err
	}
	names := make(map[*analysis.Analyzer]string)
	for name, l := range linters {
		for _, a := range l.analyzers {
			names[a] = name
		}
	}
	var mu sync.Mutex
	var lines []string
	d := &driver{
		source:   source,
		linters:  slices.Collect(maps.Keys(names)),
		objects:  make(map[reflect.Type]map[types.Object]analysis.Fact),
		packages: make(map[reflect.Type]map[*types.Package]analysis.Fact),
	}
	d.tell = telling(d.linters)
	d.report = func(p *packages.Package, a *analysis.Analyzer, found analysis.Diagnostic) {
		file := fileOf(p, found.Pos)
		at := p.Fset.Position(found.Pos)
		name := names[a]
		except := linters[name].except
		if file == nil || ast.IsGenerated(file) || except != nil && except.MatchString(at.Filename) ||
			isExcused(p.Fset, file, at.Line, name) {
			return
		}
		if rel, err := filepath.Rel(here, at.Filename); err == nil {
			at.Filename = rel
		}
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, fmt.Sprintf("%s: %s (%s)", at, found.Message, name))
	}
	if err := d.run(all); err != nil {
		return nil, err
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

func fileOf(p *packages.Package, at token.Pos) *ast.File {
	i := slices.IndexFunc(p.Syntax, func(f *ast.File) bool { return f.FileStart <= at && at <= f.FileEnd })
	if i < 0 {
		return nil
	}
	return p.Syntax[i]
}

// isExcused says whether a //nolint names the linter: on that line, or where something begins that ends on that line
// or after it, or above that where it stands alone.
func isExcused(fset *token.FileSet, file *ast.File, line int, linter string) bool {
	var at []int
	for _, group := range file.Comments {
		for _, c := range group.List {
			if m := excuse.FindStringSubmatch(c.Text); m != nil && slices.Contains(strings.Split(m[2], ","), linter) {
				at = append(at, fset.Position(c.Pos()).Line)
			}
		}
	}
	if slices.Contains(at, line) {
		return true
	}
	found := false
	begun := 0 // the line of what was seen last
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case nil, *ast.Comment, *ast.CommentGroup:
			return false
		case *ast.File:
			return len(at) > 0
		}
		first, last := fset.Position(n.Pos()).Line, fset.Position(n.End()).Line
		if last < line || line < first || found {
			return false
		}
		alone := begun < first && slices.Contains(at, first-1)
		begun = first
		found = alone || slices.Contains(at, first)
		return true
	})
	return found
}
