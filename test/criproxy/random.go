package criproxy

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// faultsOf are the faults that a call of a method may meet. A list that is old is one that a runtime may give from its
// memory. Commands in containers are only refused: one that is late has failed, and not the runtime.
func faultsOf(method string) []Fault {
	switch {
	case method == "ExecSync":
		return []Fault{Refused}
	case strings.HasPrefix(method, "List"):
		return []Fault{Slow, Refused, Dropped, Stale, Stale}
	case slices.Contains([]string{"Version", "Status", "ContainerStatus", "PodSandboxStatus", "ImageStatus"}, method):
		return []Fault{Slow, Mute, Refused, Dropped}
	default:
		return []Fault{Slow, Mute, DoneMute, Refused, DoneRefused, Twice, Dropped, DoneDropped}
	}
}

// AtRandom lets one call in five of those that do something meet a fault, and one in twenty of those that ask.
func AtRandom(random *rand.Rand) func(method string) Fault {
	return func(method string) Fault {
		all := faultsOf(method)
		n, one := random.IntN(20), 1
		if slices.Contains(all, Twice) {
			one = 4
		}
		if n >= one {
			return None
		}
		return all[random.IntN(len(all))]
	}
}
