package main

import (
	"fmt"
	"go/types"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
)

// driver gives packages to analyzers, as x/tools' checker does; other than that, it keeps of a package that has been
// looked at only its types and what analyzers told of it to those of other packages ("facts"). With their syntax, the
// packages of this module would take 20 GB.
type driver struct {
	source   *source
	linters  []*analysis.Analyzer
	tell     []*analysis.Analyzer // those with facts, among the linters and what they require
	report   func(*packages.Package, *analysis.Analyzer, analysis.Diagnostic)
	mu       sync.Mutex
	objects  map[reflect.Type]map[types.Object]analysis.Fact
	packages map[reflect.Type]map[*types.Package]analysis.Fact
}

// run looks at packages, each of which comes after those that it imports.
func (d *driver) run(all []*packages.Package) error {
	tested := make(map[string]bool) // are looked at together with their tests
	done := make(map[*packages.Package]chan struct{})
	for _, p := range all {
		done[p] = make(chan struct{})
		if p.ForTest == p.PkgPath {
			tested[p.PkgPath] = true
		}
	}
	errs := make([]error, len(all))
	turns := make(chan struct{}, runtime.NumCPU())
	for i, p := range all {
		go func() {
			defer close(done[p])
			for _, dep := range p.Imports {
				if done[dep] != nil {
					<-done[dep]
				}
			}
			turns <- struct{}{}
			defer func() { <-turns }()
			if errs[i] = d.source.read(p); errs[i] != nil {
				return
			}
			switch {
			case p.ForTest == "" && tested[p.PkgPath]:
				errs[i] = d.analyze(p, d.tell, false)
			case p.ForTest == "" || p.PkgPath == p.ForTest || p.PkgPath == p.ForTest+"_test":
				errs[i] = d.analyze(p, d.linters, true)
			}
			p.Syntax, p.TypesInfo = nil, nil
		}()
	}
	for i, p := range all {
		if <-done[p]; errs[i] != nil {
			return fmt.Errorf("%s: %w", p.ID, errs[i])
		}
	}
	return nil
}

// analyze runs analyzers, and those that they require, on a package.
func (d *driver) analyze(p *packages.Package, analyzers []*analysis.Analyzer, report bool) error {
	results := make(map[*analysis.Analyzer]any)
	var run func(a *analysis.Analyzer) error
	run = func(a *analysis.Analyzer) error {
		if _, ok := results[a]; ok {
			return nil
		}
		pass := d.pass(p, a)
		for _, r := range a.Requires {
			if err := run(r); err != nil {
				return err
			}
			pass.ResultOf[r] = results[r]
		}
		if report && slices.Contains(analyzers, a) {
			pass.Report = func(found analysis.Diagnostic) { d.report(p, a, found) }
		}
		var err error
		results[a], err = a.Run(pass)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		return nil
	}
	for _, a := range analyzers {
		if err := run(a); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) pass(p *packages.Package, a *analysis.Analyzer) *analysis.Pass {
	return &analysis.Pass{
		Analyzer: a, Fset: p.Fset, Files: p.Syntax, Pkg: p.Types, TypesInfo: p.TypesInfo, TypesSizes: p.TypesSizes,
		Module:   &analysis.Module{Path: p.Module.Path, GoVersion: p.Module.GoVersion},
		ResultOf: make(map[*analysis.Analyzer]any),
		ReadFile: os.ReadFile,
		Report:   func(analysis.Diagnostic) {},
		ImportObjectFact: func(of types.Object, fact analysis.Fact) bool {
			return recall(d, d.objects, of, fact)
		},
		ImportPackageFact: func(of *types.Package, fact analysis.Fact) bool {
			return recall(d, d.packages, of, fact)
		},
		ExportObjectFact:  func(of types.Object, fact analysis.Fact) { keep(d, d.objects, of, fact) },
		ExportPackageFact: func(fact analysis.Fact) { keep(d, d.packages, p.Types, fact) },
		AllObjectFacts: func() (all []analysis.ObjectFact) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, f := range a.FactTypes {
				for of, fact := range d.objects[reflect.TypeOf(f)] {
					all = append(all, analysis.ObjectFact{Object: of, Fact: fact})
				}
			}
			return all
		},
		AllPackageFacts: func() (all []analysis.PackageFact) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, f := range a.FactTypes {
				for of, fact := range d.packages[reflect.TypeOf(f)] {
					all = append(all, analysis.PackageFact{Package: of, Fact: fact})
				}
			}
			return all
		},
	}
}

func keep[K comparable](d *driver, facts map[reflect.Type]map[K]analysis.Fact, of K, fact analysis.Fact) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kind := reflect.TypeOf(fact)
	if facts[kind] == nil {
		facts[kind] = make(map[K]analysis.Fact)
	}
	facts[kind][of] = fact
}

func recall[K comparable](d *driver, facts map[reflect.Type]map[K]analysis.Fact, of K, into analysis.Fact) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	fact, ok := facts[reflect.TypeOf(into)][of]
	if ok {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(fact).Elem())
	}
	return ok
}

// telling returns those of analyzers, and of what they require, that have facts.
func telling(analyzers []*analysis.Analyzer) []*analysis.Analyzer {
	seen := make(map[*analysis.Analyzer]bool)
	var visit func(a *analysis.Analyzer)
	visit = func(a *analysis.Analyzer) {
		if _, ok := seen[a]; !ok {
			seen[a] = len(a.FactTypes) > 0
			for _, r := range a.Requires {
				visit(r)
			}
		}
	}
	for _, a := range analyzers {
		visit(a)
	}
	maps.DeleteFunc(seen, func(_ *analysis.Analyzer, facts bool) bool { return !facts })
	return slices.Collect(maps.Keys(seen))
}
