package configfile

import (
	"go.yaml.in/yaml/v3"

	"monoplane.dev/internal/strictyaml"
)

// Fault is one thing that is wrong in a configuration.
type Fault = strictyaml.Fault

// Faults are all that is wrong in a configuration, by line. It is the error that Parse returns.
type Faults = strictyaml.Faults

// report collects the faults of a file.
type report struct{ strictyaml.Report }

func newReport(file string, root *yaml.Node) *report {
	return &report{strictyaml.Report{File: file, Root: root}}
}

// leaves returns the errors that were joined in err. What wraps joined errors has something to say itself, and stays
// whole.
func leaves(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var list []error
	for _, e := range joined.Unwrap() {
		list = append(list, leaves(e)...)
	}
	return list
}
