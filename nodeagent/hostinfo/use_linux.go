package hostinfo

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func booted() time.Time {
	seconds, err := strconv.ParseInt(strings.TrimSpace(field("/proc/stat", "btime ")), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

func memoryInUse() MemoryUse {
	counted := func(name string) int64 {
		n, err := strconv.ParseInt(field("/proc/vmstat", name+" "), 10, 64)
		if err != nil {
			return -1
		}
		return n
	}
	return MemoryUse{
		Used: memory("MemTotal:") - memory("MemFree:"), Anonymous: memory("AnonPages:"),
		Faults: counted("pgfault"), MajorFaults: counted("pgmajfault"),
		SwapTotal: memory("SwapTotal:"), SwapFree: memory("SwapFree:"),
	}
}

func interfaces() []Interface {
	counts, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil
	}
	routes, _ := os.ReadFile("/proc/net/route") // without it none comes first
	return parseInterfaces(string(counts), string(routes))
}

// parseInterfaces reads what the kernel has counted, and its routes of IPv4.
func parseInterfaces(counts, routes string) []Interface {
	var out []Interface
	for line := range strings.Lines(counts) {
		name, rest, ok := strings.Cut(line, ":")
		// Eight columns of what was received, bytes and packets and errors first, then eight of what was sent.
		const sent, errors = 8, 2
		f := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(f) < 2*sent {
			continue
		}
		i := Interface{Name: name}
		for column, to := range map[int]*int64{0: &i.RxBytes, errors: &i.RxErrors, sent: &i.TxBytes,
			sent + errors: &i.TxErrors} {
			*to, _ = strconv.ParseInt(f[column], 10, 64) // the kernel writes numbers
		}
		out = append(out, i)
	}
	main := ""
	for line := range strings.Lines(routes) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "00000000" {
			main = f[0]
			break
		}
	}
	slices.SortStableFunc(out, func(a, b Interface) int {
		switch {
		case a.Name == main && b.Name != main:
			return -1
		case b.Name == main && a.Name != main:
			return 1
		default:
			return 0
		}
	})
	return out
}
