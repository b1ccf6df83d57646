//go:build rootonly

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/client"
)

// verify checks what must hold after a restart: no address has two pods, a pod can be made, and out of it every pod
// that is ready is reached by its address, and the Service, which is reached from the machine too.
func (n *network) verify(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	if _, err := n.serve(ctx, c); err != nil {
		return fmt.Errorf("the Service: %w", err)
	}
	n.probed++
	probe, err := n.create(ctx, c, fmt.Sprintf("probe-%d", n.probed))
	if err != nil {
		return fmt.Errorf("the pod that is to look around: %w", err)
	}
	if err := soon(ctx, func() error { return n.reach(ctx, c, probe.GetMetadata().GetUid()) }); err != nil {
		return err
	}
	_, err = c.Pods.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: probe.GetMetadata().GetName()})
	return errors.Join(err, n.seen())
}

// soon is eventually, and returns what was wrong before the time was over, not that it was.
func soon(ctx context.Context, f func() error) error {
	var last error
	err := eventually(ctx, func() error {
		err := f()
		if ctx.Err() == nil {
			last = err
		}
		return err
	})
	if err != nil {
		return errors.Join(last, context.Cause(ctx))
	}
	return nil
}

// reach looks once, out of a pod.
func (n *network) reach(ctx context.Context, c *client.Client, uid string) error {
	list, err := c.Pods.List(ctx, &metav1.ListRequest{Namespace: "default"})
	if err != nil {
		return err
	}
	owners, ready := map[string]string{}, map[string]string{} // uids by address
	for _, p := range list.GetItems() {
		ip, id := p.GetStatus().GetPodIP(), p.GetMetadata().GetUid()
		if phase := p.GetStatus().GetPhase(); ip == "" || phase == "Succeeded" || phase == "Failed" {
			continue
		}
		if other := owners[ip]; other != "" {
			n.violated(fmt.Errorf("the pods %s and %s have the address %s", other, id, ip))
		}
		owners[ip] = id
		if isReady(p) {
			ready[ip] = id
		}
	}
	running, err := workloads(n.dir)
	if err != nil {
		return err
	}
	procs := running[uid]
	if len(procs) == 0 || !slices.Contains(slices.Collect(maps.Values(ready)), uid) {
		return fmt.Errorf("the pod %s is not ready", uid)
	}
	if err := n.published(ctx, c, ready); err != nil {
		return err
	}
	service, err := n.serve(ctx, c)
	if err != nil {
		return err
	}
	port := service.GetSpec().GetPorts()[0]
	err = inNetworkOf(procs[0], func() error {
		for ip, want := range ready {
			got, err := ask(net.JoinHostPort(ip, fmt.Sprint(peerPort)))
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("at the address %s of pod %s is %q", ip, want, got)
			}
		}
		return n.askService(net.JoinHostPort(service.GetSpec().GetClusterIP(), fmt.Sprint(port.GetPort())), ready)
	})
	if err != nil {
		return fmt.Errorf("from pod %s: %w", uid, err)
	}
	if err := n.askService(fmt.Sprintf("127.0.0.1:%d", port.GetNodePort()), ready); err != nil {
		return fmt.Errorf("from the machine: %w", err)
	}
	return n.violation()
}

func isReady(p *corev1.Pod) bool {
	return p.GetMetadata().GetDeletionTimestamp() == nil && slices.ContainsFunc(p.GetStatus().GetConditions(),
		func(c *corev1.PodCondition) bool { return c.GetType() == "Ready" && c.GetStatus() == "True" })
}

// published says whether the Service's ready endpoints are the addresses of the pods that are ready.
func (n *network) published(ctx context.Context, c *client.Client, ready map[string]string) error {
	published, err := c.EndpointSlices.List(ctx, &metav1.ListRequest{
		Namespace: "default", LabelSelector: "kubernetes.io/service-name=" + serviceName,
	})
	if err != nil {
		return err
	}
	var have []string
	for _, s := range published.GetItems() {
		for _, e := range s.GetEndpoints() {
			if e.GetConditions().GetReady() {
				have = append(have, e.GetAddresses()...)
			}
		}
	}
	slices.Sort(have)
	if want := slices.Sorted(maps.Keys(ready)); !slices.Equal(have, want) {
		return fmt.Errorf("the Service's endpoints are %v, ready are %v", have, want)
	}
	return nil
}

// askService asks a Service several times: a pod that is ready answers each.
func (n *network) askService(address string, ready map[string]string) error {
	all := slices.Collect(maps.Values(ready))
	for range 5 {
		got, err := ask(address)
		if err != nil {
			return fmt.Errorf("the Service at %s: %w", address, err)
		}
		if !slices.Contains(all, got) {
			return fmt.Errorf("the Service at %s leads to %q; ready are %v", address, got, all)
		}
	}
	return nil
}

func ask(address string) (string, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = fmt.Errorf("%s says nothing", address)
	}
	return string(answer), err
}

// inNetworkOf does something in the network namespace of a process, on a thread that ends with it.
func inNetworkOf(p process, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if now, e := identify(p.PID); err == nil && (e != nil || now != p) {
			err = errEnded
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// nothingLeft counts what is left when there is no pod any more, while the server runs: processes, shims, sandboxes,
// roots, mounts, control groups, addresses, links, rules, and descriptors of namespaces.
func (n *network) nothingLeft() error {
	running, err := workloads(n.dir)
	if err != nil {
		return err
	}
	below, err := shims(n.dir)
	if err != nil {
		return err
	}
	held, err := nodes(n.data)
	if err != nil {
		return err
	}
	if len(running) > 0 || len(below) > 0 || len(held) != 2 {
		return fmt.Errorf("there are processes %v, shims %v and helpers %v", running, below, held)
	}
	for _, pattern := range []string{
		filepath.Join(n.data, "nodes", "*", "pods", "pods", "*"), filepath.Join(n.data, "nodes", "*", "pods-data", "*"),
		filepath.Join(n.images, "roots", "*"),
	} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			return fmt.Errorf("directories are left: %v, %v", left, err)
		}
	}
	if err := errors.Join(n.mounts(), n.groups(), n.addresses()); err != nil {
		return err
	}
	for _, p := range held {
		if open := namespacesOpen(p); len(open) > 0 {
			return fmt.Errorf("the helper %v holds the namespaces %v", p, open)
		}
	}
	return inNetworkOf(held[0], n.rules)
}

// mounts looks for mounts of the run in all mount namespaces of the machine.
func (n *network) mounts() error {
	var found error
	err := eachProcess(func(pid int) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)) // it may have ended
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 4 && strings.HasPrefix(fields[4], n.dir+"/") && (fields[4] != n.data || n.data == n.backing) {
				found = fmt.Errorf("a mount is left, which process %d sees: %s", pid, line)
			}
		}
	})
	return errors.Join(err, found)
}

// groups looks for control groups of sandboxes.
func (n *network) groups() error {
	return filepath.WalkDir("/sys/fs/cgroup", func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil //nolint:nilerr // somebody else's, which is going
		}
		id, ok := strings.CutPrefix(e.Name(), "monoplane-")
		if ok && len(id) >= 12 && slices.ContainsFunc(slices.Collect(maps.Keys(n.sandboxes)),
			func(s string) bool { return strings.HasPrefix(s, id) }) {
			return fmt.Errorf("the control group %s is left", path)
		}
		return nil
	})
}

// addresses looks who has addresses.
func (n *network) addresses() error {
	files, err := filepath.Glob(filepath.Join(n.data, "nodes", "*", "network", "addresses.json"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("the registers of addresses are %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var register struct{ Owners map[string][]string }
	if err := json.Unmarshal(text, &register); err != nil {
		return err
	}
	if len(register.Owners) > 0 {
		return fmt.Errorf("addresses are taken by %v", register.Owners)
	}
	return nil
}

// podRange is the part of the node of the addresses of pods.
var podRange = netip.MustParsePrefix("10.244.0.0/24")

// rules looks for links and rules of pods in the node namespace.
func (n *network) rules() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Name != "lo" && l.Name != "uplink" {
			return fmt.Errorf("the link %s is left", l.Name)
		}
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		if t.Name == "monoplane-policy" {
			return fmt.Errorf("the table %s is left", t.Name)
		}
		sets, err := conn.GetSets(t)
		if err != nil {
			return err
		}
		for _, s := range sets {
			if !strings.HasPrefix(s.Name, "hairpin") {
				continue
			}
			elements, err := conn.GetSetElements(s)
			if err != nil {
				return err
			}
			for _, e := range elements {
				// The node namespace's own is where the API is served.
				a, _ := netip.AddrFromSlice(e.Key[:min(len(e.Key), 4)])
				if podRange.Contains(a) && a != podRange.Addr().Next() {
					return fmt.Errorf("the set %s of table %s has %v still", s.Name, t.Name, a)
				}
			}
		}
	}
	return nil
}

// namespacesOpen lists the descriptors of namespaces that a process has.
func namespacesOpen(p process) []string {
	var found []string
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "net:[") {
			found = append(found, to)
		}
	}
	return found
}

// nothingOnMachine counts what is left when the cluster has been taken away: processes, mounts, links, rules, files.
func (n *network) nothingOnMachine() error {
	left, err := processesOf(n.dir)
	if err != nil || len(left) > 0 {
		return fmt.Errorf("processes are left: %v, %v", left, err)
	}
	if n.uid != 0 {
		err = eachProcess(func(pid int) {
			var info unix.Stat_t
			e := unix.Stat(fmt.Sprintf("/proc/%d", pid), &info)
			if p, gone := identify(pid); e == nil && gone == nil && int(info.Uid) == n.uid {
				left = append(left, p)
			}
		})
		if err != nil || len(left) > 0 {
			return fmt.Errorf("processes of the user are left: %v, %v", left, err)
		}
	}
	if err := errors.Join(n.mounts(), n.groups()); err != nil {
		return err
	}
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 {
		return fmt.Errorf("links are left: %v, %v", links, err)
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	if tables, err := conn.ListTables(); err != nil || len(tables) > 0 {
		return fmt.Errorf("tables are left: %v, %v", tables, err)
	}
	files, err := filepath.Glob(filepath.Join(n.data, "nodes", "*", "network", "*"))
	// Which addresses pods have had is kept, who has them is not.
	if err != nil || len(files) != 1 {
		return fmt.Errorf("files of the network are left: %v, %v", files, err)
	}
	return n.addresses()
}
