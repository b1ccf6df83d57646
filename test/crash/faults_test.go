package crash

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/client"
)

// sickAfter is how long a pause of a shim or of a container's process may last before the agent may give it up.
const sickAfter = time.Second

// pauses are the processes that the test has stopped and will wake up.
type pauses struct {
	mu   sync.Mutex
	list map[process]*time.Timer
}

// begin stops a process and wakes it up later, but for a pause that is for ever.
func (p *pauses) begin(victim process, length time.Duration) error {
	if err := victim.signal(unix.SIGSTOP); err != nil {
		return err
	}
	if length == forever {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.list == nil {
		p.list = map[process]*time.Timer{}
	}
	p.list[victim] = time.AfterFunc(length, func() { p.end(victim) })
	return nil
}

func (p *pauses) end(victim process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if timer := p.list[victim]; timer != nil {
		timer.Stop()
		delete(p.list, victim)
		_ = victim.signal(unix.SIGCONT) // it may have been killed
	}
}

func (p *pauses) endAll() {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.list))
	p.mu.Unlock()
	for _, victim := range all {
		p.end(victim)
	}
}

// inject injects one fault. One that found no victim is not counted.
func (r *run) inject(ctx context.Context, c *client.Client, s *server, f fault) error {
	var err error
	found := true
	switch f.Kind {
	case pauseServer:
		length := f.For
		if length == forever {
			length = time.Minute // or until it is killed
		}
		found = r.pauses.begin(s.process, length) == nil
	case killShim:
		found, err = r.onShim(f, func(p process) error { return p.signal(unix.SIGKILL) })
	case pauseShim:
		found, err = r.onShim(f, func(p process) error { return r.pauses.begin(p, f.For) })
	case killContainer:
		found, err = r.onContainer(f, func(p process) error { return p.signal(unix.SIGKILL) })
	case pauseContainer:
		found, err = r.onContainer(f, func(p process) error { return r.pauses.begin(p, f.For) })
	case slowDisk:
		r.disk.slowDown(time.Duration(f.Pick%60) * time.Millisecond)
	case failDisk:
		r.disk.fail(int(2 + f.Pick%40))
	case answers:
		r.trouble.Store(int64(1 + f.Pick%4))
		found = len(r.proxies) > 0
	case descriptors:
		r.flood(ctx, s, f)
	case system:
		r.deleteSystemObject(ctx, c, f.Pick)
	case protected:
		err = r.deleteProtected(ctx, c, f.Pick)
	case clock:
		err = r.clock.leap(leaps[f.Pick%uint64(len(leaps))], f.For)
	case killNode, killNodes, pauseNode:
		found, err = r.onNode(f)
	case killMaker:
		found, err = r.killMakers(ctx, f)
	case starve:
		found, err = r.starve(ctx, s, f)
	}
	if found && err == nil {
		r.counts[f.Kind]++
	}
	return err
}

// onShim does something to one of the shims; with it its pod may lose its signal and its grace.
func (r *run) onShim(f fault, do func(process) error) (found bool, err error) {
	all, err := shims(r.data)
	if err != nil || len(all) == 0 {
		return false, err
	}
	victim := all[f.Pick%uint64(len(all))]
	uid, err := r.podOf(victim)
	if err != nil || uid == "" {
		return false, err
	}
	if f.Kind == killShim || f.For > sickAfter {
		r.makeSick(uid)
	}
	return do(victim.process) == nil, nil
}

// podOf finds the pod of a shim: its uid is in the sandbox's record, whatever else is. It returns "" for a sandbox
// that is going away.
func (r *run) podOf(s shim) (string, error) {
	dir := filepath.Join(r.backing, s.dir[len(r.data):])
	record, err := os.ReadFile(filepath.Join(dir, "sandbox"))
	if err != nil {
		return "", nil //nolint:nilerr // it is being made or removed
	}
	uid := uidPattern.FindString(string(record))
	if uid == "" {
		return "", fmt.Errorf("%s names no pod", dir)
	}
	return uid, nil
}

func (r *run) makeSick(uid string) { r.history.change(uid, "", func(f *fate) { f.sick = true }) }

// onContainer does something to one of the processes of containers.
func (r *run) onContainer(f fault, do func(process) error) (found bool, err error) {
	byUID, err := workloads(r.dir)
	if err != nil || len(byUID) == 0 {
		return false, err
	}
	uids := slices.Sorted(maps.Keys(byUID))
	uid := uids[f.Pick%uint64(len(uids))]
	victim := byUID[uid][0]
	switch f.Kind {
	case killContainer:
		r.judge.spare(victim)
	default:
		r.makeSick(uid) // a stopped process takes no signal, and its grace passes
	}
	return do(victim) == nil, nil
}

// flood takes up the server's descriptors with connections that say nothing.
func (r *run) flood(ctx context.Context, s *server, f fault) {
	var conns []net.Conn
	for i := range 2 * smallTable {
		address := s.address("REST")
		if i%2 == 0 {
			address = s.address("gRPC")
		}
		d := net.Dialer{Timeout: 200 * time.Millisecond}
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			break // it takes no more, which is its right
		}
		conns = append(conns, c)
	}
	r.background.Go(func() {
		pause(ctx, min(f.For, 2*time.Second))
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

// deleteSystemObject deletes something that the server or an agent made for itself.
func (r *run) deleteSystemObject(ctx context.Context, c *client.Client, pick uint64) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := func(namespace string) *metav1.DeleteCollectionRequest {
		return &metav1.DeleteCollectionRequest{Namespace: namespace}
	}
	choices := []func() error{
		func() error { _, err := c.Nodes.Delete(ctx, &metav1.DeleteRequest{Name: "node"}); return err },
		func() error { _, err := c.Nodes.DeleteCollection(ctx, all("")); return err },
		func() error { _, err := c.Leases.DeleteCollection(ctx, all("kube-node-lease")); return err },
		func() error { _, err := c.Events.DeleteCollection(ctx, all("default")); return err },
		func() error { _, err := c.ServiceAccounts.DeleteCollection(ctx, all("default")); return err },
		func() error { _, err := c.ConfigMaps.DeleteCollection(ctx, all("kube-system")); return err },
		func() error {
			_, err := c.ConfigMaps.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: "kube-root-ca.crt"})
			return err
		},
	}
	_ = choices[pick%uint64(len(choices))]() // there may be none at the moment; what follows from it is what counts
}

// deleteProtected tries to delete what must not be deleted.
func (r *run) deleteProtected(ctx context.Context, c *client.Client, pick uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	names := []string{
		"kube-node-lease", "kube-system", "kube-public", "default", "system-node-critical", "system-cluster-critical",
	}
	name := names[pick%uint64(len(names))]
	if strings.HasPrefix(name, "system-") {
		_, err = c.PriorityClasses.Delete(ctx, &metav1.DeleteRequest{Name: name})
	} else {
		_, err = c.Namespaces.Delete(ctx, &metav1.DeleteRequest{Name: name})
	}
	switch {
	case err == nil:
		return fmt.Errorf("%s could be deleted", name)
	case !apierrors.Is(err, apierrors.Forbidden) && !gone(err):
		return fmt.Errorf("the deletion of %s: %w; it must be forbidden", name, err)
	}
	return nil
}

// gone says that the server did not answer, as may be while it is tormented.
func gone(err error) bool {
	return apierrors.Is(err, apierrors.ServiceUnavailable) || apierrors.Is(err, apierrors.Timeout) ||
		apierrors.Is(err, apierrors.TooManyRequests) || apierrors.Is(err, apierrors.InternalError)
}

// heal ends the faults that have an end.
func (r *run) heal() {
	r.pauses.endAll()
	r.clock.heal()
	r.trouble.Store(0)
	r.disk.heal()
}
