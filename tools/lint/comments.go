package main

import (
	"os"

	"github.com/mgechev/revive/lint"
	"github.com/mgechev/revive/rule"
	"golang.org/x/tools/go/analysis"
)

// forms are the rules of revive that we follow, with their arguments.
var forms = map[lint.Rule]lint.Arguments{
	&rule.ContextAsArgumentRule{}: {},
	&rule.ErrorStringsRule{}:      {},
	&rule.ExportedRule{}:          {"disableStutteringCheck"},
	&rule.PackageCommentsRule{}:   {},
	&rule.ReceiverNamingRule{}:    {},
	&rule.SuperfluousElseRule{}:   {},
	&rule.UnreachableCodeRule{}:   {},
}

// comments has revive, which reads the files itself, look at comments and a few forms.
var comments = &analysis.Analyzer{
	Name: "revive",
	Doc:  "report missing comments and forms that we avoid",
	Run: func(pass *analysis.Pass) (any, error) {
		const sure = 0.8
		var rules []lint.Rule
		for r, arguments := range forms {
			if c, ok := r.(lint.ConfigurableRule); ok {
				if err := c.Configure(arguments); err != nil {
					return nil, err
				}
			}
			rules = append(rules, r)
		}
		var names []string
		for _, file := range pass.Files {
			names = append(names, pass.Fset.File(file.FileStart).Name())
		}
		reader := lint.New(os.ReadFile, 0)
		failures, err := reader.Lint([][]string{names}, rules, lint.Config{Confidence: sure})
		if err != nil {
			return nil, err
		}
		for f := range failures {
			if f.Confidence >= sure {
				reportAt(pass, f.Position.Start, f.Failure)
			}
		}
		return nil, nil
	},
}
