//go:build rootonly

package e2e_test

import (
	"strings"
	"testing"
)

// TestRootLoadBalancer exposes pods of images at the machine's own address, as root and as a user who is not: the
// address is told once it answers, clients elsewhere and pods reach it, if they may, and go on doing so after a
// restart. What cannot be had without root stays pending, and says why. A machine that moves is followed.
//
// spec: WORK-4, NET-1
func TestRootLoadBalancer(t *testing.T) {
	t.Parallel()
	for name, uid := range map[string]int{"root": 0, "root forwards": 0, "user": unprivileged} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.uid = uid
			far := m.outside(t)
			if name == "root forwards" { // Then the kernel leads clients elsewhere to pods.
				m.run(t, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
			}
			u := m.imageCluster(t)
			u.begin(t)
			k := u.kubectl(t)
			if name == "root" { // Without root it is said in other words, of all such clusters.
				const why = "the machine does not forward: its setting net.ipv4.ip_forward is 0"
				if out := u.now.stdout.String(); !strings.Contains(out, "  way out     this process ("+why+")") {
					t.Errorf("it is not said why pods reach out through the process:\n%s", out)
				}
				k.until(t, "get events --field-selector=reason=NotForwarded", "because "+why)
			}
			if out, code := k.run(t, webManifest, "apply", "-f", "-"); code != 0 {
				t.Fatal(out)
			}
			k.ok(t, "rollout status deployment/web --timeout=2m")
			k.ok(t, "wait --for=condition=Ready pod/client --timeout=2m")
			k.ok(t, "expose deployment web --name=high --type=LoadBalancer --port=8085 --target-port=8080")
			k.ok(t, "expose deployment web --name=low --type=LoadBalancer --port=80 --target-port=8080")
			machine := "192.0.2.1"
			reached := func(port string) {
				t.Helper()
				eventually(t, "clients elsewhere reach port "+port, func() (bool, string) {
					out := far.run(t, "busybox", "sh", "-c", "echo | busybox nc -w 5 "+machine+" "+port+" || true")
					return strings.HasPrefix(out, "web-"), out
				})
				eventually(t, "pods reach port "+port, func() (bool, string) {
					out, _ := k.run(t, "", "exec", "client", "--", "sh", "-c", "echo | nc -w 5 "+machine+" "+port)
					return strings.HasPrefix(out, "web-"), out
				})
			}
			k.until(t, "get service high", `(?m)^high +LoadBalancer +\S+ +192\.0\.2\.1 `)
			reached("8085")
			// Who may come is said by addresses, which clients keep on their way.
			only := func(addresses string) {
				k.ok(t, `patch service high --type=merge -p={"spec":{"loadBalancerSourceRanges":[`+addresses+`]}}`)
			}
			only(`"203.0.113.0/24"`)
			eventually(t, "clients elsewhere do not reach port 8085", func() (bool, string) {
				out := far.run(t, "busybox", "sh", "-c", "echo | busybox nc -w 1 "+machine+" 8085 || true")
				return !strings.HasPrefix(out, "web-"), out
			})
			only(`"203.0.113.0/24","192.0.2.2/32","10.244.0.0/16"`)
			reached("8085")
			if uid == 0 {
				k.until(t, "get service low", `(?m)^low +LoadBalancer +\S+ +192\.0\.2\.1 `)
				reached("80")
			} else {
				k.until(t, "describe service low", `LoadBalancerPortsError .*without root`)
				k.until(t, "get service low", `(?m)^low +LoadBalancer +\S+ +<pending> `)
			}

			u.now.kill(t)
			u.begin(t)
			k.until(t, "get service high", `(?m)^high +LoadBalancer +\S+ +192\.0\.2\.1 `)
			reached("8085")
			if name != "root forwards" { // It moves, as a laptop does.
				m.run(t, "ip", "addr", "del", machine+"/24", "dev", "up0")
				m.run(t, "ip", "addr", "add", "192.0.2.7/24", "dev", "up0")
				m.run(t, "ip", "route", "replace", "default", "via", "192.0.2.2")
				machine = "192.0.2.7"
				k.until(t, "get service high", `(?m)^high +LoadBalancer +\S+ +192\.0\.2\.7 `)
				reached("8085")
			}
			k.ok(t, "delete service high")
			eventually(t, "nobody answers any more", func() (bool, string) {
				out := far.run(t, "busybox", "sh", "-c", "echo | busybox nc -w 5 "+machine+" 8085 || true")
				return !strings.HasPrefix(out, "web-"), out
			})
			u.down(t)
		})
	}
}
