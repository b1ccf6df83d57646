package host

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"monoplane.dev/internal/userids"
	"monoplane.dev/nodeagent/runtime/host/view"
)

// Without root, each pod of a runtime for images has a user namespace, in which this user is root:
//
//	the machine's ── the node's (package nodens) ── the pod's: shim, helpers and containers
//
// The node's belongs to the helper that holds the node namespace, so that it may connect the network namespaces of
// pods, which belong to those below. A container that has CAP_NET_ADMIN or CAP_SYS_ADMIN has them for its own pod
// alone. Where pods have no network of their own there is no node's, and the pod's is directly below the machine's.

// isRootless tells whether pods get such user namespaces.
func (r *Runtime) isRootless() bool { return r.oci != nil && !isRoot() }

// spawnBelow starts a shim in a user namespace of its own, as root there.
func (r *Runtime) spawnBelow(ctx context.Context, argv []string, attr *os.ProcAttr) (*os.Process, error) {
	var users *os.File
	if r.oci.Network != nil {
		var err error
		if users, err = r.oci.Network.Users(ctx); err != nil {
			return nil, fmt.Errorf("the user namespace of the node: %w", err)
		}
	}
	if users == nil {
		userids.Single().Prepare(attr.Sys)
		proc, err := os.StartProcess(self, argv, attr)
		if err != nil {
			return nil, fmt.Errorf("no user namespace can be made: %w; %s", err, view.Remedy)
		}
		return proc, nil
	}
	defer users.Close()
	program, err := os.Open(self)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	helper, err := r.oci.Helper()
	if err != nil {
		return nil, err
	}
	// Only a process with one thread can enter a user namespace, which a program of Go never is: the helper does it
	// before Go begins.
	first := len(attr.Files)
	attr.Files = append(attr.Files, users, program)
	enter := append([]string{helper.Name(), "enter", strconv.Itoa(first), strconv.Itoa(first + 1)}, argv...)
	return os.StartProcess(fmt.Sprintf("/proc/self/fd/%d", helper.Fd()), enter, attr)
}

// groupsNotGiven says which groups the processes of a container do not get, because the pod has one id only: who can
// give up no groups there may not take any either.
func (r *Runtime) groupsNotGiven(c *container) []string {
	groups := c.rec.config.GetLinux().GetSecurityContext().GetSupplementalGroups()
	if !r.isRootless() || len(groups) == 0 {
		return nil
	}
	r.mu.RLock()
	shim := c.sb.shim.PID
	r.mu.RUnlock()
	may, err := os.ReadFile(fmt.Sprintf("/proc/%d/setgroups", shim))
	if err != nil || strings.TrimSpace(string(may)) != "deny" {
		return nil
	}
	var names []string
	for _, g := range groups {
		names = append(names, strconv.FormatInt(g, 10))
	}
	return []string{fmt.Sprintf("the groups %s are not given to its processes: without root pods have one user and one "+
		"group, unless newuidmap and newgidmap are installed and there are ranges in /etc/subuid and /etc/subgid",
		strings.Join(names, ", "))}
}
