// Package oracle compares defaulting, validation and the shared rules of pods with those of Kubernetes 1.36 (module
// k8s.io/kubernetes), object by object: a table of single faults and seeded random mutations.
//
// A test makes objects, asks Kubernetes' code about them (ask) and compares its answers with what Monoplane's code
// makes of the same objects. Without a build tag the answers are those that are recorded in testdata, for the objects
// of one seed: seconds, in CI, without compiling Kubernetes. With tag kubernetes (files *_live_test.go) Kubernetes'
// code answers, for objects of any seed; make oracle does that and then records the answers anew, and says which have
// changed. A question whose answer is not recorded fails, and so does an answer that no test asks for. What needs only
// small modules of Kubernetes (k8s.io/component-helpers, k8s.io/endpointslice, k8s.io/pod-security-admission and the
// like) runs against them in CI, too.
//
// These compare only with tag kubernetes:
//
//   - TestHTTPProbesAreJudgedAlike, TestTCPProbesAreJudgedAlike, TestExecProbesAreJudgedAlike and
//     TestGRPCProbesAreJudgedAlike: what is said of connections quotes the machine's addresses, resolver and ports, so
//     that both sides have to run on the same machine.
//   - The kinds with several versions in TestOwners and TestOwnersOfLongHistories: Kubernetes' field manager converts
//     objects between versions at every step, by its internal types.
//   - TestMetricsAreRecorded: it reads the lists in Kubernetes' source, and writes testdata/metrics.txt, with which
//     TestMetrics at the root compares what is served.
//
// The courses of DaemonSets and StatefulSets (steps-of-daemonsets, steps-of-statefulsets, templates-of-daemons) take
// another way at each recording, as those controllers choose by chance; all other answers are recorded the same again.
//
// Where Monoplane means to differ, the test says so:
//
//   - Paths that are wrong in Kubernetes are right here: "downwarAPI", "cephFS", and the first init container in place
//     of the one with the conflicting host port (intended).
//   - An update of a pod goes on after a container was added or removed, or its deadline is wrong, and lists
//     further faults (within).
//   - Phases never go back, and are one of those known (LIFE-1, LIFE-10); a node's addresses are looked at
//     on creation too; metadata is checked as a whole on every update.
//   - Messages that repeat a whole structure are shorter; the one for a forbidden pod update names the
//     changed fields.
//   - Values of more than 2 KiB are shortened, after 1000 faults no more are listed, equal ones are listed
//     once, and quantities with exponents of three digits or more are refused.
//   - What the support option refuses is not looked into (skipped in mutate_test.go): device claims,
//     scheduling groups, trust bundles and pod certificates. So is the old annotation with tolerations in JSON.
//   - An update without a resourceVersion is fine: the server fills it in (OBJ-2).
package oracle

import (
	"google.golang.org/protobuf/proto"
)

// upstream is what the generated types of k8s.io/api can do.
type upstream interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// ours turns an object of Kubernetes into Monoplane's, by way of their common protobuf encoding.
func ours[T proto.Message](from upstream, to T) (T, error) {
	data, err := from.Marshal()
	if err != nil {
		return to, err
	}
	return to, proto.Unmarshal(data, to)
}
