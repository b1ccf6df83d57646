//go:build rootonly

// Package cridiff_test gives the same CRI calls to containerd and to the runtime "oci", and compares what they answer
// and what containers see (spec: CTR-4, CTR-5, CTR-6, SEC-1, LIFE-12).
//
//	go test -tags rootonly ./cridiff                              the table (cases_test.go, scripts_test.go)
//	go test -tags rootonly ./cridiff -short                       every sixth case of it, as in make test-root
//	go test -tags rootonly ./cridiff -run Random -cases 300       so many random configurations (-caseseed N)
//
// A case is played to both at once (play_test.go), each with directories of its own. What comes of it is a set of
// names with values: codes of answers, fields of statuses, the view of the program `inside` from within the container
// and from a command executed in it, and the cgroups and namespaces of its process as the machine sees them. What has
// to be different, ids and times and directories, is replaced by words. The two sets have to be the same, but for the
// rows of wanted (wanted_test.go), each of which says why. A row that fits nothing any more fails the table.
//
// The tests run in a network namespace and a mount namespace of their own (main_test.go), so that nothing of either
// runtime's network touches the machine's.
package cridiff_test
