package nodeagent_test

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// A machine whose address changes, or that has its first one late, is known by it with the next heartbeat: its node,
// and the pods on it. One that has lost its address keeps it.
//
// spec: NODE-1
func TestMachineMoves(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		has := []string{"127.0.0.1"}
		w.cfg.Machine.IPs = has
		w.cfg.Addresses = func() []string {
			mu.Lock()
			defer mu.Unlock()
			return has
		}
		move := func(ips ...string) {
			mu.Lock()
			has = ips
			mu.Unlock()
			time.Sleep(beat)
		}
		want := func(ips ...string) {
			t.Helper()
			var node, pod []string
			for _, a := range w.node().GetStatus().GetAddresses() {
				if a.GetType() == "InternalIP" {
					node = append(node, a.GetAddress())
				}
			}
			status := w.get("a").GetStatus()
			for _, h := range status.GetHostIPs() {
				pod = append(pod, h.GetIp())
			}
			if !slices.Equal(node, ips) || !slices.Equal(pod, ips) || status.GetHostIP() != ips[0] {
				t.Errorf("the node is at %v, its pod at %s, %v; the machine is at %v", node, status.GetHostIP(), pod, ips)
			}
		}
		w.start()
		w.create("a")
		time.Sleep(beat)
		want("127.0.0.1")
		move("203.0.113.2")
		want("203.0.113.2")
		move("203.0.113.3", "2001:db8::3")
		want("203.0.113.3", "2001:db8::3")
		move("127.0.0.1")
		want("203.0.113.3", "2001:db8::3")
		w.expect("a", "START main/0 @0s")
	})
}
