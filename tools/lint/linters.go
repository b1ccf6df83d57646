package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"

	"4d63.com/gocheckcompilerdirectives/checkcompilerdirectives"
	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/ashanbrown/makezero/v2/makezero"
	"github.com/charithe/durationcheck"
	"github.com/curioswitch/go-reassign"
	"github.com/golangci/misspell"
	"github.com/golangci/unconvert"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/gostaticanalysis/nilerr"
	"github.com/karamaru-alpha/copyloopvar"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/sanposhiho/wastedassign/v2"
	"github.com/sashamelentyev/usestdlibvars/pkg/analyzer"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inline"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/quickfix"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// linter is what a //nolint names: some analyzers, and the files in which they are not asked.
type linter struct {
	analyzers []*analysis.Analyzer
	except    *regexp.Regexp // files in which it finds nothing, or nil
}

var tests = regexp.MustCompile(`_test\.go$`)

var linters = map[string]linter{
	"bodyclose":                 {analyzers: of(bodyclose.Analyzer), except: tests},
	"copyloopvar":               {analyzers: of(copyloopvar.NewAnalyzer())},
	"depguard":                  {analyzers: of(layers())},
	"durationcheck":             {analyzers: of(durationcheck.Analyzer), except: tests},
	"errcheck":                  {analyzers: of(unchecked), except: tests},
	"errorlint":                 {analyzers: of(errorlint.NewAnalyzer()), except: tests},
	"gocheckcompilerdirectives": {analyzers: of(checkcompilerdirectives.Analyzer())},
	"gochecknoinits":            {analyzers: of(inits), except: branches},
	"govet":                     {analyzers: append(vet.Suite, inline.Analyzer)},
	"ineffassign":               {analyzers: of(ineffassign.Analyzer)},
	"lll":                       {analyzers: of(long)},
	"makezero":                  {analyzers: of(zeros)},
	"misspell":                  {analyzers: of(spelling)},
	"nilerr":                    {analyzers: of(nilerr.Analyzer)},
	"nolintlint":                {analyzers: of(excuses)},
	"reassign":                  {analyzers: of(reassign.NewAnalyzer())},
	"revive":                    {analyzers: of(comments), except: tests},
	"staticcheck":               {analyzers: honnef()},
	"unconvert":                 {analyzers: of(conversions)},
	"unused":                    {analyzers: of(needless)},
	"usestdlibvars":             {analyzers: of(analyzer.New()), except: tests},
	"wastedassign":              {analyzers: of(wastedassign.Analyzer)},
}

// branches are the packages that must branch off before the rest of the program is set up (design: decision 11): the
// shim, the helper of the node namespace, process 1 of containers of images, and what works with the ids of pods.
var branches = regexp.MustCompile(
	`/(nodeagent/runtime/host/shim|nodeagent/network/nodens/internal/helper|cmd/ocihelper|nodeagent/subids)/`)

func of(a ...*analysis.Analyzer) []*analysis.Analyzer { return a }

// honnef returns what staticcheck looks for, but rules of form that we do not follow: where there must be comments
// (revive says so), initialisms in names, how errors begin, and which part of a selector could be left out.
func honnef() (found []*analysis.Analyzer) {
	no := []string{"ST1000", "ST1003", "ST1005", "QF1008"}
	all := [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers, quickfix.Analyzers}
	for _, a := range slices.Concat(all...) {
		if !slices.Contains(no, a.Analyzer.Name) {
			found = append(found, a.Analyzer)
		}
	}
	return found
}

// unchecked finds errors that nobody looks at. What is closed without a look was only read, or is being given up.
var unchecked = &analysis.Analyzer{
	Name: "errcheck",
	Doc:  "report unchecked errors",
	Run: func(pass *analysis.Pass) (any, error) {
		checker := errcheck.Checker{Exclusions: errcheck.Exclusions{
			BlankAssignments:       true,
			TypeAssertions:         true,
			SymbolRegexpsByPackage: map[string]*regexp.Regexp{},
			Symbols: append(slices.Clone(errcheck.DefaultExcludedSymbols),
				"fmt.Fprint", "fmt.Fprintf", "fmt.Fprintln"),
		}}
		found := checker.CheckPackage(&packages.Package{
			Fset: pass.Fset, Syntax: pass.Files, Types: pass.Pkg, TypesInfo: pass.TypesInfo,
		}).Unique()
		for _, u := range found.UncheckedErrors {
			if name := u.SelectorName + u.FuncName; !strings.Contains(name, ".Close") {
				reportAt(pass, u.Pos, "the error of "+u.FuncName+" is not checked")
			}
		}
		return nil, nil
	},
}

// needless finds what nothing uses, and nothing outside its package can use.
var needless = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "report unused constants, variables, functions and types",
	Requires: of(unused.Analyzer.Analyzer),
	Run: func(pass *analysis.Pass) (any, error) {
		results := pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result)
		for _, o := range results.Unused {
			used := slices.ContainsFunc(results.Used, func(u unused.Object) bool {
				return u.Name == o.Name && u.Position == o.Position
			})
			if o.Kind != "type param" && !used {
				reportAt(pass, o.Position, o.Kind+" "+o.Name+" is unused")
			}
		}
		return nil, nil
	},
}

var conversions = &analysis.Analyzer{
	Name: "unconvert",
	Doc:  "report conversions to the type that a value has",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, at := range unconvert.Run(pass) {
			reportAt(pass, at, "unnecessary conversion")
		}
		return nil, nil
	},
}

var zeros = &analysis.Analyzer{
	Name: "makezero",
	Doc:  "report appends to slices that were made with a length",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			found, err := makezero.NewLinter(false).Run(pass.Fset, pass.TypesInfo, file)
			if err != nil {
				return nil, err
			}
			for _, issue := range found {
				pass.Reportf(issue.Pos(), "%s", issue.Details())
			}
		}
		return nil, nil
	},
}

var spelling = &analysis.Analyzer{
	Name: "misspell",
	Doc:  "report misspelled words in comments",
	Run: func(pass *analysis.Pass) (any, error) {
		words := misspell.New()
		words.Compile()
		for _, file := range pass.Files {
			text, err := pass.ReadFile(pass.Fset.File(file.FileStart).Name())
			if err != nil {
				return nil, err
			}
			_, diffs := words.ReplaceGo(string(text))
			for _, d := range diffs {
				pass.Reportf(pass.Fset.File(file.FileStart).LineStart(d.Line), "%q is misspelled: %q", d.Original, d.Corrected)
			}
		}
		return nil, nil
	},
}

var inits = &analysis.Analyzer{
	Name: "gochecknoinits",
	Doc:  "report init functions",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			for _, decl := range file.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "init" && f.Recv == nil {
					pass.Reportf(f.Pos(), "no init functions")
				}
			}
		}
		return nil, nil
	},
}

// quoted is text that a test compares or sends, and that begins the line: a string, JSON, YAML, a command's output.
var quoted = regexp.MustCompile(`^\s*(["0-9?]|- \{|\{"\w+":)`)

var long = &analysis.Analyzer{
	Name: "lll",
	Doc:  "report lines that do not end before column 120",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, f := range pass.Files {
			file := pass.Fset.File(f.FileStart)
			text, err := pass.ReadFile(file.Name())
			if err != nil {
				return nil, err
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				n++
				line = strings.TrimRight(line, "\n")
				if len([]rune(line)) < 120 || strings.HasPrefix(line, "//go:") || strings.HasPrefix(line, "import") {
					continue
				}
				if !tests.MatchString(file.Name()) || !quoted.MatchString(line) {
					pass.Reportf(file.LineStart(n), "the line must end before column 120")
				}
			}
		}
		return nil, nil
	},
}

// excuse is a comment that says which linters are not to look at what follows it, and why.
var excuse = regexp.MustCompile(`^//nolint(:([\w,]+))?(\s+// .+)?`)

var excuses = &analysis.Analyzer{
	Name: "nolintlint",
	Doc:  "report //nolint without a name or a reason",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				for _, c := range group.List {
					if m := excuse.FindStringSubmatch(c.Text); m != nil && (m[2] == "" || m[3] == "") {
						pass.Reportf(c.Pos(), "say which linter, and why: //nolint:name // reason")
					}
				}
			}
		}
		return nil, nil
	},
}

// reportAt reports what is known by its position only.
func reportAt(pass *analysis.Pass, at token.Position, message string) {
	for _, f := range pass.Files {
		if file := pass.Fset.File(f.FileStart); file.Name() == at.Filename && at.Line <= file.LineCount() {
			pass.Reportf(file.LineStart(at.Line)+token.Pos(at.Column-1), "%s", message)
			return
		}
	}
}
