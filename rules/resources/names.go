// Package resources adds up what the containers of a pod ask for, to what the pod needs of its node (INIT-3), and
// knows the names that have rules of their own. By it the server checks and completes what is asked for the pod as a
// whole, the scheduler chooses a node, and the agent admits the pod.
//
// It guarantees the sums of Kubernetes: test/oracle compares them over random pods. They are exact, however large; a
// quantity that cannot be read, which the server refuses, counts as absent, and reading one takes bounded time
// whatever the text. What a pod that is being resized holds is Held. It knows nothing of nodes or of what is free on
// them.
package resources

import "strings"

// Names of resources that have rules of their own.
const (
	CPU              = "cpu"
	Memory           = "memory"
	EphemeralStorage = "ephemeral-storage"
	Storage          = "storage"
	// HugePagesPrefix begins the names of huge pages by size, such as "hugepages-2Mi".
	HugePagesPrefix = "hugepages-"
)

// IsHugePages says whether name is a size of huge pages.
func IsHugePages(name string) bool { return strings.HasPrefix(name, HugePagesPrefix) }

// IsNative says whether name belongs to Kubernetes itself: without a prefix, or in kubernetes.io.
func IsNative(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, "kubernetes.io/")
}

// CanOvercommit says whether requests may be lower than limits.
func CanOvercommit(name string) bool { return IsNative(name) && !IsHugePages(name) }

// ForPods says whether a resource can be requested for a pod as a whole.
func ForPods(name string) bool { return name == CPU || name == Memory || IsHugePages(name) }
