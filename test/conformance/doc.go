// Package conformance runs scripts of kubectl commands against the monoplane program, and compares what they print
// with what they print against Kubernetes' own API server, controllers and scheduler.
//
// A script is a file in testdata/scripts: commands of bash, each followed by what it prints:
//
//	# Text for readers.
//	$ kubectl create configmap a --from-literal=k=v
//	    configmap/a created
//	$ kubectl get configmap b
//	    Error from server (NotFound): configmaps "b" not found
//	    [1]
//
// A line with "> " continues the command above it; a number in brackets is an exit code other than 0. Each script has
// a namespace of its own, named like the script, which is the default of its commands, and a copy of testdata/files as
// its working directory. Scripts run at the same time, those in testdata/scripts/alone one after the other afterwards:
// they change what the others see, such as nodes.
//
// What is random or tells of time and machine is replaced by a word before it is compared (see Normal).
//
// The outputs in the scripts are Kubernetes' own: `make golden` writes them. Where Monoplane prints something else on
// purpose, testdata/differences.txt holds its output and the reason; an entry there that is no longer needed fails the
// test. Kubernetes' kubelets are imitated there (see hollow), since what is compared is the API.
//
// The kubectl of the scripts is the unmodified one's code, in processes that stay (see package resident), since starts
// took most of the time; with -client, and where Kubernetes' outputs are written, it is the program itself.
//
// What becomes of streams on a node is in the scripts of testdata/scripts/host, which run on containers that are real
// processes. Kubernetes has nothing to run them on here: their outputs are stated, from what its kubectl and its
// components are written to say. The words of a runtime, such as those for a command that does not exist, are
// Monoplane's own.
package conformance
