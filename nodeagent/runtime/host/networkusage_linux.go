package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/sys"
)

// podLink is what a pod's link to its network is called in it.
const podLink = "eth0"

// networkUse says what has gone over the links of the pod, except its loopback; nil when that is not known.
func networkUse(sb *sandbox, at int64) *runtimeapi.NetworkUsage {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", sb.shim.PID))
	if err != nil || !sys.IsAlive(sb.shim) { // Then it is another's, or nobody's.
		return nil
	}
	return parseLinks(string(text), at)
}

// parseLinks reads proc_pid_net(5), dev: two lines of headings, then a link in each.
func parseLinks(text string, at int64) *runtimeapi.NetworkUsage {
	out := &runtimeapi.NetworkUsage{Timestamp: at}
	for line := range strings.Lines(text) {
		name, counts, found := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		n := strings.Fields(counts)
		const rxBytes, rxErrors, txBytes, txErrors = 0, 2, 8, 10
		if !found || name == "lo" || len(n) <= txErrors {
			continue
		}
		count := func(i int) *runtimeapi.UInt64Value {
			v, _ := strconv.ParseUint(n[i], 10, 64) // The kernel writes numbers.
			return &runtimeapi.UInt64Value{Value: v}
		}
		link := &runtimeapi.NetworkInterfaceUsage{Name: name, RxBytes: count(rxBytes), RxErrors: count(rxErrors),
			TxBytes: count(txBytes), TxErrors: count(txErrors)}
		if name == podLink {
			out.DefaultInterface = link
		} else {
			out.Interfaces = append(out.Interfaces, link)
		}
	}
	return out
}
