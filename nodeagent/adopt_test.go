package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apierrors"
	"monoplane.dev/nodeagent"
	"monoplane.dev/nodeagent/runtime/fake"
)

// A restarted agent finds its containers again: what runs goes on, what has ended keeps its exit code.
func TestAdoption(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a")
		w.create("b", restart("Never"), annotated("exit-after", "20s", "exit-code", "4"))
		w.create("c", restart("OnFailure"), annotated("exit-after", "20s", "exit-code", "5"))
		w.settle()
		before := w.get("a").GetStatus()
		w.kill()
		time.Sleep(time.Minute)
		w.start()
		w.settle()
		if after := w.phase("a", "Running").GetStatus(); !proto.Equal(before, after) {
			t.Errorf("the status of a pod that ran on changed:\n%v\n%v", before, after)
		}
		w.expect("a", "START main/0 @0s")
		s := w.phase("b", "Failed").GetStatus().GetContainerStatuses()[0].GetState().GetTerminated()
		if s.GetExitCode() != 4 ||
			s.GetFinishedAt().GetSeconds() != w.began.Add(20*time.Second).Unix() {
			t.Errorf("b: %v", s)
		}
		w.expect("c", "START main/0 @0s", "EXIT main/0 @20s", "START main/1 @1m0.5s")
		if s := w.get("c").GetStatus().GetContainerStatuses()[0]; s.GetRestartCount() != 1 ||
			s.GetLastState().GetTerminated().GetExitCode() != 5 {
			t.Errorf("c: %v", s)
		}
	})
}

// Pods whose objects went while nobody watched are stopped before the node is registered or anything starts.
// spec: NODE-2
func TestReturn(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("gone", annotated("ignore-term", "true"))
		w.create("stays")
		w.settle()
		w.kill()
		w.delete("gone", 0)
		w.create("gone") // a successor of the same name
		nodes := w.api.Calls(corev1rpc.Nodes_Create_FullMethodName)
		w.begin()
		time.Sleep(1900 * time.Millisecond)
		synctest.Wait()
		if n := w.api.Calls(corev1rpc.Nodes_Create_FullMethodName); n != nodes {
			t.Error("the node was registered too early")
		}
		w.expect("gone", "START main/0 @0s", "TERM main/0 @500ms")
		<-w.agent.Ready()
		w.settle()
		w.expect("gone", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @2.5s", "EXIT main/0 @2.5s",
			"START main/0 @2.5s")
		w.expect("stays", "START main/0 @0s")
	})
}

// While the pods of the node cannot be read, what runs goes on and nothing is started. spec: NODE-2
func TestReturnWithoutServer(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("gone")
		w.create("stays")
		w.settle()
		w.kill()
		w.delete("gone", 0)
		w.create("new")
		w.api.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Pods_List_FullMethodName {
				return apierrors.New(apierrors.ServiceUnavailable, "down")
			}
			return nil
		})
		w.begin()
		time.Sleep(time.Hour)
		w.expect("gone", "START main/0 @0s")
		w.expect("stays", "START main/0 @0s")
		w.expect("new")
		w.api.React(nil)
		time.Sleep(time.Minute)
		if n := w.runs(); n != 2 {
			t.Errorf("%d containers run, want 2", n)
		}
		w.phase("new", "Running")
	})
}

// A pod that was deleted while the agent was away, and not by force, is terminated as usual. spec: DEL-13
func TestDeletedWhileAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.settle()
		w.kill()
		w.delete("a", 10)
		time.Sleep(time.Minute)
		w.start()
		time.Sleep(9 * time.Second)
		w.phase("a", "Running")
		time.Sleep(2 * time.Second)
		if w.get("a") != nil {
			t.Error("a is still there")
		}
	})
}

// After a reboot the pod gets a new sandbox and its containers restart by policy. spec: LIFE-12, CTR-3
func TestReboot(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a")
		w.create("b", restart("Never"))
		w.create("c", restart("Never"))
		w.settle()
		w.delete("c", 30)
		w.kill()
		w.rt.Reboot()
		time.Sleep(time.Minute)
		w.start()
		w.settle()
		p := w.phase("a", "Running")
		if c := p.GetStatus().GetContainerStatuses()[0]; c.GetRestartCount() != 1 ||
			c.GetLastState().GetTerminated().GetExitCode() != 137 {
			t.Errorf("a: %v", c)
		}
		if c := cond(p, "PodReadyToStartContainers"); c.GetStatus() != "True" {
			t.Errorf("a: %v", c)
		}
		w.phase("b", "Failed")
		if w.get("c") != nil {
			t.Error("c is still there")
		}
	})
}

// The records of the runtime are lost as well. spec: CTR-1
func TestLostRecords(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a")
		w.create("b", restart("Never"))
		w.settle()
		w.kill()
		w.wipe()
		w.start()
		w.settle()
		c := w.phase("a", "Running").GetStatus().GetContainerStatuses()[0]
		if c.GetRestartCount() != 1 || c.GetLastState().GetTerminated().GetReason() != "ContainerStatusUnknown" ||
			c.GetLastState().GetTerminated().GetExitCode() != 137 {
			t.Errorf("a: %v", c)
		}
		c = w.phase("b", "Failed").GetStatus().GetContainerStatuses()[0]
		if c.GetState().GetTerminated().GetReason() != "ContainerStatusUnknown" {
			t.Errorf("b: %v", c)
		}
	})
}

// A sandbox that dies under a running agent is replaced. spec: LIFE-12
func TestSandboxDies(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a")
		w.settle()
		w.rt.Reboot()
		w.settle()
		w.phase("a", "Running")
		w.expect("a", "START main/0 @0s", "KILL main/0 @500ms", "EXIT main/0 @500ms", "START main/1 @500ms")
	})
}

// A runtime without events is looked at every second.
func TestWithoutEvents(t *testing.T) {
	inWorld(t, func(w *world) {
		w.swap(fake.Config{MuteEvents: true})
		w.start()
		w.create("a", restart("Never"), annotated("exit-after", "5s"))
		time.Sleep(4 * time.Second)
		w.phase("a", "Running")
		time.Sleep(2500 * time.Millisecond)
		w.phase("a", "Succeeded")
		w.create("b")
		w.settle()
		w.delete("b", 30)
		w.settle()
		if w.get("b") != nil {
			t.Error("b is still there")
		}
	})
}

// Between two looks one container of a pod has come to run and another has ended. Whatever their ids are, the second
// look tells the pod apart from what the first one saw of it.
func TestTwoChangesBetweenLooks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.swap(fake.Config{MuteEvents: true})
		w.start()
		const pods = 64
		for i := range pods {
			// At 1 s "late" is being started and "early" runs; at 2 s "late" runs and "early" has ended.
			w.create(fmt.Sprint("p", i), containers("early", "late"), restart("Never"),
				annotated("exit-after.early", "1800ms", "start-delay.late", "1400ms"))
		}
		time.Sleep(2500 * time.Millisecond)
		for i := range pods {
			p := w.phase(fmt.Sprint("p", i), "Running")
			for _, c := range p.GetStatus().GetContainerStatuses() {
				if ended := c.GetState().GetTerminated() != nil; ended != (c.GetName() == "early") {
					t.Errorf("pod %s: %v", p.GetMetadata().GetName(), c)
				}
			}
		}
	})
}

// spec: NODE-1, NODE-6
func TestNode(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.Labels = map[string]string{"topology.kubernetes.io/zone": "z1"}
		w.start()
		n := w.node()
		for k, want := range map[string]string{"kubernetes.io/hostname": nodeName,
			"kubernetes.io/os":   n.GetStatus().GetNodeInfo().GetOperatingSystem(),
			"kubernetes.io/arch": n.GetStatus().GetNodeInfo().GetArchitecture(), "topology.kubernetes.io/zone": "z1"} {
			if got := n.GetMetadata().GetLabels()[k]; got != want {
				t.Errorf("label %s is %q, want %q", k, got, want)
			}
		}
		for kind, want := range map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False",
			"PIDPressure": "False"} {
			found := false
			for _, c := range n.GetStatus().GetConditions() {
				found = found || c.GetType() == kind && c.GetStatus() == want
			}
			if !found {
				t.Errorf("condition %s is not %s", kind, want)
			}
		}
		for _, r := range []string{"cpu", "memory", "pods", "ephemeral-storage"} {
			if n.GetStatus().GetCapacity()[r] == nil || n.GetStatus().GetAllocatable()[r] == nil {
				t.Errorf("no %s", r)
			}
		}
		lease := func() int64 {
			l, err := w.c.Leases.Get(w.t.Context(), &metav1.GetRequest{Namespace: "kube-node-lease", Name: nodeName})
			if err != nil {
				t.Fatal(err)
			}
			if l.GetSpec().GetLeaseDurationSeconds() != 40 || l.GetSpec().GetHolderIdentity() != nodeName {
				t.Errorf("lease: %v", l.GetSpec())
			}
			return l.GetSpec().GetRenewTime().GetSeconds()
		}
		for range 100 {
			time.Sleep(10 * time.Second)
			if age := time.Now().Unix() - lease(); age > 10 {
				t.Fatalf("the lease is %d s old", age)
			}
		}
		w.removeLabel("topology.kubernetes.io/zone")
		time.Sleep(11 * time.Second)
		if w.node().GetMetadata().GetLabels()["topology.kubernetes.io/zone"] != "z1" {
			t.Error("the label was not restored")
		}
	})
}

// What describes the machine follows the configuration of each start; other labels are given once, and are the users'
// after that. None is removed. spec: NODE-6
func TestLabelsOverStarts(t *testing.T) {
	inWorld(t, func(w *world) {
		w.cfg.Labels = map[string]string{"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1",
			"disk": "ssd", "size": "l"}
		w.start()
		w.setLabel("disk", "hdd")
		w.setLabel("mine", "yes")
		w.removeLabel("size")
		w.removeLabel("kubernetes.io/os")
		time.Sleep(2 * beat)
		w.kill()
		w.cfg.Labels = map[string]string{"topology.kubernetes.io/zone": "z2", "disk": "nvme", "new": "1"}
		w.start()
		time.Sleep(2 * beat)
		got := w.node().GetMetadata().GetLabels()
		for k, want := range map[string]string{
			"topology.kubernetes.io/zone": "z2", "topology.kubernetes.io/region": "r1", "disk": "hdd", "mine": "yes",
			"size": "", "new": "",
			"kubernetes.io/os": w.node().GetStatus().GetNodeInfo().GetOperatingSystem(),
		} {
			if got[k] != want {
				t.Errorf("label %s is %q, want %q", k, got[k], want)
			}
		}
		// A node that is registered anew has all of them.
		w.deleteNode()
		time.Sleep(beat)
		if got := w.node().GetMetadata().GetLabels(); got["disk"] != "nvme" || got["new"] != "1" || got["mine"] != "" {
			t.Errorf("registered anew with %v", got)
		}
	})
}

// A node whose object was deleted is registered again, and its pods go on. spec: NODE-7
func TestNodeVanishes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a")
		w.settle()
		uid := w.node().GetMetadata().GetUid()
		w.deleteNode()
		time.Sleep(11 * time.Second)
		if n := w.node(); n.GetMetadata().GetUid() == uid {
			t.Error("the node is the old one")
		}
		w.expect("a", "START main/0 @0s")
	})
}

// A node that the server refuses stops its pods. spec: NODE-7
func TestNodeRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("stop-after", "3s"))
		w.settle()
		w.api.React(func(_ context.Context, method string, _ any) error {
			if method == corev1rpc.Nodes_Create_FullMethodName {
				return apierrors.NewForbidden(corev1.NodeKind, nodeName, "the name belongs to another machine")
			}
			return nil
		})
		w.deleteNode()
		select {
		case err := <-w.ended:
			if err == nil || !strings.Contains(err.Error(), "another machine") {
				t.Errorf("Run: %v", err)
			}
			w.ended <- err
		case <-time.After(time.Minute):
			t.Fatal("the agent goes on")
		}
		if n := w.runs(); n != 0 {
			t.Errorf("%d containers run", n)
		}
	})
}

// The same when the agent comes back and another machine has taken the name meanwhile. spec: NODE-7
func TestReturnRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"))
		w.settle()
		w.kill()
		w.create("b")
		w.api.React(func(_ context.Context, method string, _ any) error {
			if strings.HasPrefix(method, "/monoplane.core.v1.Nodes/") {
				return apierrors.NewForbidden(corev1.NodeKind, nodeName, "the name belongs to another machine")
			}
			return nil
		})
		w.begin()
		err := <-w.ended
		if !errors.Is(err, nodeagent.ErrRefused) {
			t.Errorf("Run: %v", err)
		}
		w.ended <- err
		w.expect("a", "START main/0 @0s", "TERM main/0 @500ms", "KILL main/0 @30.5s", "EXIT main/0 @30.5s")
		w.expect("b")
	})
}

// spec: LIFE-12
func TestAdmission(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		cpu := func(q string) podOption {
			return edit(func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{
					"cpu": {String_: q}}}
			})
		}
		w.create("most", cpu("30"))
		w.settle()
		w.create("fits", cpu("2"))
		w.create("toomuch", cpu("2"))
		w.create("label", edit(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
		w.create("os", edit(func(p *corev1.Pod) { p.Spec.Os = &corev1.PodOS{Name: "windows"} }))
		w.settle()
		phases := map[string]string{}
		for _, name := range []string{"fits", "toomuch"} {
			phases[w.get(name).GetStatus().GetPhase()] = w.get(name).GetStatus().GetReason()
		}
		if len(phases) != 2 || phases["Running"] != "" || phases["Failed"] != "OutOfcpu" {
			t.Errorf("one of two pods fits: %v", phases)
		}
		if s := w.phase("label", "Failed").GetStatus(); s.GetReason() != "NodeAffinity" ||
			len(s.GetContainerStatuses()) != 0 {
			t.Errorf("label: %v", s)
		}
		if s := w.phase("os", "Failed").GetStatus(); s.GetReason() != "PodOSNotSupported" {
			t.Errorf("os: %v", s)
		}
		w.expect("label")

		// The agent has not seen the new label; it asks before it refuses.
		w.setLabel("disk", "fast")
		w.create("label2", edit(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "fast"} }))
		w.settle()
		w.phase("label2", "Running")

		// Ended pods hold nothing.
		w.delete("most", 1)
		time.Sleep(5 * time.Second)
		w.create("again", cpu("30"))
		w.settle()
		w.phase("again", "Running")
	})
}

// A pod sets the kernel parameters that the node lets it set, or nothing of it starts, and it says which one is
// forbidden. spec: SEC-1, LIFE-12
func TestSysctlsOfPods(t *testing.T) {
	inWatchedWorld(t, func(w *world, _ *watched, _ *logBuffer) {
		w.cfg.AllowedUnsafeSysctls = []string{"net.core.*"}
		w.start()
		sets := func(names ...string) podOption {
			return edit(func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{}
				for _, name := range names {
					p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls,
						&corev1.Sysctl{Name: name, Value: "1"})
				}
			})
		}
		w.create("safe", sets("net.ipv4.tcp_syncookies", "net/core/somaxconn"))
		w.create("unsafe", sets("net.ipv4.tcp_syncookies", "kernel/msgmax"))
		w.settle()
		w.phase("safe", "Running")
		const message = `Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted`
		if s := w.phase("unsafe", "Failed").GetStatus(); s.GetReason() != "SysctlForbidden" || s.GetMessage() != message ||
			len(s.GetContainerStatuses()) != 0 {
			t.Errorf("unsafe: %v", s)
		}
		if !w.said("SysctlForbidden", message) {
			t.Errorf("nobody is told why: %v", w.events())
		}
		w.expect("unsafe")

		// What runs is not judged anew.
		w.kill()
		w.cfg.AllowedUnsafeSysctls = nil
		w.start()
		w.settle()
		w.phase("safe", "Running")
		w.expect("safe", "START main/0 @0s")
	})
	inWorld(t, func(w *world) {
		w.cfg.AllowedUnsafeSysctls = []string{"vm.swappiness"}
		if _, err := nodeagent.New(w.cfg); err == nil ||
			!strings.Contains(err.Error(), `"vm.swappiness" cannot be allowed`) {
			t.Errorf("an agent that would let pods change its machine: %v", err)
		}
	})
}

// spec: INIT-1, INIT-4, INIT-5, INIT-7
func TestInitContainers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("exit-after.one", "2s", "exit-after.two", "3s", "stop-after.main", "4s", "stop-after.side",
			"1s"), edit(func(p *corev1.Pod) {
			p.Spec.InitContainers = []*corev1.Container{
				{Name: "one", Image: "host"}, {Name: "side", Image: "host", RestartPolicy: proto.String("Always")},
				{Name: "two", Image: "host"},
			}
		}))
		time.Sleep(time.Second)
		p := w.phase("a", "Pending")
		if c := p.GetStatus().GetContainerStatuses()[0]; c.GetState().GetWaiting().GetReason() != "PodInitializing" {
			t.Errorf("main: %v", c)
		}
		if c := cond(p, "Initialized"); c.GetStatus() != "False" || c.GetReason() != "ContainersNotInitialized" {
			t.Errorf("initialized: %v", c)
		}
		time.Sleep(9 * time.Second)
		p = w.phase("a", "Running")
		if c := cond(p, "Initialized"); c.GetStatus() != "True" {
			t.Errorf("initialized: %v", c)
		}
		w.kill()
		w.start()
		w.settle()
		w.delete("a", -1)
		time.Sleep(20 * time.Second)
		w.expect("a", "START one/0 @0s", "EXIT one/0 @2s", "START side/0 @2s", "START two/0 @2s", "EXIT two/0 @5s",
			"START main/0 @5s",
			"TERM main/0 @10.5s", "EXIT main/0 @14.5s", "TERM side/0 @14.5s", "EXIT side/0 @15.5s")
		if w.get("a") != nil {
			t.Error("a is still there")
		}
	})
}

// spec: INIT-1
func TestInitFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("never", restart("Never"), annotated("exit-after.one", "1s", "exit-code.one", "1"),
			edit(func(p *corev1.Pod) {
				p.Spec.InitContainers = []*corev1.Container{{Name: "one", Image: "host"}}
			}))
		w.create("always", annotated("exit-after.one", "1s", "exit-code.one", "1"), edit(func(p *corev1.Pod) {
			p.Spec.InitContainers = []*corev1.Container{{Name: "one", Image: "host"}}
		}))
		time.Sleep(5 * time.Second)
		w.phase("never", "Failed")
		p := w.phase("always", "Pending")
		if c := p.GetStatus().GetInitContainerStatuses()[0]; c.GetState().GetWaiting().GetReason() != "CrashLoopBackOff" ||
			c.GetRestartCount() != 1 {
			t.Errorf("one: %v", c)
		}
	})
}

// An init container that is deleted with its pod gets its grace too. spec: TERM-1
func TestDeletedWhileInitializing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.create("a", annotated("ignore-term", "true"), edit(func(p *corev1.Pod) {
			p.Spec.InitContainers = []*corev1.Container{{Name: "one", Image: "host"}}
		}))
		w.settle()
		w.delete("a", 10)
		time.Sleep(12 * time.Second)
		w.expect("a", "START one/0 @0s", "TERM one/0 @500ms", "KILL one/0 @10.5s", "EXIT one/0 @10.5s")
		if w.get("a") != nil {
			t.Error("a is still there")
		}
	})
}
