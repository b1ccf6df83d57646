package apiserver_test

import (
	"testing"

	"monoplane.dev/apierrors"
	"monoplane.dev/apiserver/authn"
	"monoplane.dev/rules/lingering"

	coordinationv1 "monoplane.dev/api/coordination/v1"
	coordinationv1rpc "monoplane.dev/api/coordination/v1/rpc"
	corev1 "monoplane.dev/api/core/v1"
	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

// spec: LIFE-2, SCHED-3, DEL-11
func TestBind(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := c.createPod(newPod("web"))
	if err := c.bind(p, "n9"); !apierrors.Is(err, apierrors.NotFound) {
		t.Errorf("bound to a node that does not exist: %v", err)
	}
	if err := c.bind(&corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web", Uid: "other"}},
		"n1"); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("another uid: %v", err)
	}
	if err := c.bind(&corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"}},
		"n1"); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("the scheduler must name the uid: %v", err)
	}
	if err := c.bind(p, "n1"); err != nil {
		t.Fatal(err)
	}
	bound := must(c.getPod("web"))(t)
	if bound.Spec.NodeName != "n1" || bound.Status.Conditions[0].Type != "PodScheduled" ||
		bound.Status.Conditions[0].Status != "True" {
		t.Errorf("bound: %v", bound)
	}
	if err := c.bind(p, "n1"); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("bound twice: %v", err)
	}
	events := must(c.admin().Events.List(ctx(t), &metav1.ListRequest{Namespace: "default",
		FieldSelector: "involvedObject.uid=" + p.Metadata.Uid + ",reason=Scheduled"}))(t)
	if len(events.Items) != 1 || events.Items[0].Message != "Successfully assigned default/web to n1" ||
		events.Items[0].ReportingComponent != "default-scheduler" ||
		events.Items[0].Metadata.ResourceVersion != bound.Metadata.ResourceVersion {
		t.Errorf("event of the same transaction: %v", events.Items)
	}

	// Whoever the scheduler says it is, the event bears the name of the profile that the pod chose; others have their
	// own.
	for name, x := range map[string]struct {
		by                               client
		pod                              *corev1.Pod
		schedulerName, manager, reporter string
	}{
		"profile": {c.scheduler(), newPod("packed"), "packing", "", "packing"},
		"managed": {c.scheduler(), newPod("managed"), "", "another", "default-scheduler"},
		"by-hand": {c.admin(), newPod("by-hand"), "", "", authn.AdminName},
		"another": {c.admin(), newPod("another"), "", "my-scheduler", "my-scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			x.pod.Spec.SchedulerName = x.schedulerName
			p := c.createPod(x.pod)
			must(x.by.Pods.Bind(ctx(t), &corev1rpc.BindPodRequest{
				Namespace: "default", Name: p.Metadata.Name, FieldManager: x.manager, Object: &corev1.Binding{
					Metadata: &metav1.ObjectMeta{Uid: p.Metadata.Uid}, Target: &corev1.ObjectReference{Kind: "Node", Name: "n1"},
				},
			}))(t)
			e := must(c.admin().EventsV1.List(ctx(t), &metav1.ListRequest{Namespace: "default",
				FieldSelector: "regarding.uid=" + p.Metadata.Uid + ",reason=Scheduled"}))(t).Items
			if len(e) != 1 || e[0].ReportingController != x.reporter || e[0].ReportingInstance != x.reporter {
				t.Errorf("want an event of %s, got %v", x.reporter, e)
			}
		})
	}

	gated := newPod("gated")
	gated.Spec.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	g := c.createPod(gated)
	if g.Status.Conditions[0].Reason != "SchedulingGated" {
		t.Errorf("gated: %v", g.Status)
	}
	if err := c.bind(g, "n1"); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("a gated pod was bound: %v", err)
	}
	held := newPod("held")
	held.Metadata.Finalizers = []string{"example.com/hold"}
	h := c.createPod(held)
	must(deletePod(t, c.admin(), h, nil, false))(t)
	if err := c.bind(h, "n1"); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("a terminating pod was bound: %v", err)
	}
}

// spec: LIFE-10, LIFE-11, DEL-11
func TestWhoMayWriteStatus(t *testing.T) {
	c := start(t)
	c.register("n1")
	c.register("n2")
	p := c.boundPod("web", "n1")
	for name, by := range map[string]client{"agent of another node": c.agent("n2"),
		"controller": c.controller("nodelifecycle")} {
		if _, err := setPhase(t, by, p, "Failed"); !apierrors.Is(err, apierrors.Forbidden) {
			t.Errorf("%s ended a bound pod: %v", name, err)
		}
	}
	if _, err := setPhase(t, c.controller("podgc"), p, "Failed"); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("podgc ended a pod whose node exists: %v", err)
	}
	anonymous := clone(p)
	anonymous.Metadata.Uid = ""
	if _, err := setPhase(t, c.agent("n1"), anonymous, "Running"); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("an agent wrote status without uid: %v", err)
	}
	anonymous.Metadata.Uid = "other"
	if _, err := setPhase(t, c.agent("n1"), anonymous, "Running"); !apierrors.Is(err, apierrors.Conflict) {
		t.Errorf("status of a successor: %v", err)
	}
	patch := func(doc string) error {
		_, err := c.agent("n1").Pods.PatchStatus(ctx(t), &metav1.PatchRequest{Namespace: "default", Name: "web",
			PatchType: "application/strategic-merge-patch+json", Patch: []byte(doc)})
		return err
	}
	if err := patch(`{"status":{"phase":"Running"}}`); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("a patch without uid: %v", err)
	}
	if err := patch(`{"metadata":{"uid":"` + p.Metadata.Uid + `"},"status":{"phase":"Running"}}`); err != nil {
		t.Error(err)
	}
	if err := patch(`{"metadata":{"uid":"` + p.Metadata.Uid + `"},"status":{"phase":"Pending"}}`); !apierrors.Is(err,
		apierrors.Invalid) {
		t.Errorf("a phase went back: %v", err)
	}
	ended := must(setPhase(t, c.agent("n1"), p, "Failed"))(t)
	for _, phase := range []string{"Running", "Succeeded", "Pending"} {
		if _, err := setPhase(t, c.agent("n1"), ended, phase); !apierrors.Is(err, apierrors.Invalid) {
			t.Errorf("terminal is final, got %s: %v", phase, err)
		}
	}
}

// A user may say that a pod has ended. Until its agent has seen that, it is deleted as one that runs.
//
// spec: LIFE-10, DEL-3, DEL-7
func TestUserEndsAPod(t *testing.T) {
	c := start(t)
	c.register("n1")
	p := must(setPhase(t, c.agent("n1"), c.boundPod("web", "n1"), "Running"))(t)
	p = must(setPhase(t, c.admin(), p, "Failed"))(t)
	p = clone(p)
	p.Status.Conditions = nil
	p = must(setPhase(t, c.admin(), p, "Failed"))(t)
	if lingering.Confirmed(p) {
		t.Errorf("a user's word was taken for the agent's: %v", p.Status)
	}
	if _, err := setPhase(t, c.admin(), p, "Running"); !apierrors.Is(err, apierrors.Invalid) {
		t.Errorf("terminal is final: %v", err)
	}
	must(deletePod(t, c.controller("daemonset"), p, nil, true))(t)
	complete := func() error {
		_, err := deletePod(t, c.agent("n1"), p, ptr(int64(0)), true)
		return err
	}
	if err := complete(); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("completed before the agent said that nothing runs: %v", err)
	}
	p = clone(must(c.getPod("web"))(t))
	p.Status.Conditions = nil
	p = must(setPhase(t, c.agent("n1"), p, "Failed"))(t)
	if !lingering.Confirmed(p) {
		t.Errorf("the agent's word was not taken: %v", p.Status)
	}
	if err := complete(); err != nil {
		t.Error(err)
	}
}

// spec: NODE-7
func TestNodeNamesBelongToMachines(t *testing.T) {
	c := start(t)
	c.register("n1") // by key-n1
	thief := c.as(agentUser("n1", "stolen"))
	if _, err := thief.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n1")}); !apierrors.Is(err,
		apierrors.AlreadyExists) {
		t.Errorf("registered twice: %v", err)
	}
	if _, err := thief.Nodes.UpdateStatus(ctx(t), &corev1rpc.UpdateNodeRequest{Object: newNode("n1")}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("another machine wrote the node: %v", err)
	}
	_, err := c.agent("n2").Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n1")})
	if !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("an agent registered another node: %v", err)
	}
	p := c.boundPod("web", "n1")
	must(c.admin().Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n1"}))(t)
	if _, err := thief.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n1")}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("a pod is still bound to the name: %v", err)
	}
	if _, err := setPhase(t, thief, p, "Running"); !apierrors.Is(err, apierrors.Forbidden) {
		t.Errorf("another machine wrote the pod: %v", err)
	}
	// The same machine returns at once, and goes on with its pods.
	must(c.agent("n1").Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n1")}))(t)
	must(setPhase(t, c.agent("n1"), p, "Running"))(t)
	// A forged record does not stick.
	next := clone(must(c.admin().Nodes.Get(ctx(t), &metav1.GetRequest{Name: "n1"}))(t))
	next.Metadata.Annotations = map[string]string{"monoplane.dev/machine-key": "stolen"}
	must(c.admin().Nodes.Update(ctx(t), &corev1rpc.UpdateNodeRequest{Object: next}))(t)
	if _, err := thief.Nodes.UpdateStatus(ctx(t), &corev1rpc.UpdateNodeRequest{Object: newNode("n1")}); !apierrors.Is(err,
		apierrors.Forbidden) {
		t.Errorf("the record was forged: %v", err)
	}
	// Once nothing is bound any more the name is free.
	must(c.admin().Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n1"}))(t)
	must(deletePod(t, c.controller("podgc"), p, ptr(int64(0)), true))(t)
	must(thief.Nodes.Create(ctx(t), &corev1rpc.CreateNodeRequest{Object: newNode("n1")}))(t)
}

// spec: DEL-8, OBJ-15
func TestLeastPrivilege(t *testing.T) {
	c := start(t)
	c.register("n1")
	c.register("n2")
	c.boundPod("web", "n1")
	agent := c.agent("n2")
	list := func(by client, selector string) error {
		_, err := by.Pods.List(ctx(t), &metav1.ListRequest{FieldSelector: selector})
		return err
	}
	get := func(by client, name string) error {
		_, err := by.Pods.Get(ctx(t), &metav1.GetRequest{Namespace: "default", Name: name})
		return err
	}
	lease := func(by client, name string) error {
		_, err := by.Leases.Create(ctx(t), &coordinationv1rpc.CreateLeaseRequest{Namespace: "kube-node-lease",
			Object: &coordinationv1.Lease{Metadata: &metav1.ObjectMeta{Name: name}}})
		return err
	}
	mirror := func(edit func(*corev1.Pod)) error {
		n, err := agent.Nodes.Get(ctx(t), &metav1.GetRequest{Name: "n2"})
		if err != nil {
			return err
		}
		p := newPod("mirror")
		p.Spec.NodeName = "n2"
		p.Metadata.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
		p.Metadata.OwnerReferences = []*metav1.OwnerReference{{
			ApiVersion: "v1", Kind: "Node", Name: "n2", Uid: n.GetMetadata().GetUid(), Controller: ptr(true),
		}}
		edit(p)
		_, err = agent.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})
		return err
	}
	for _, x := range []struct {
		name string
		err  error
		want apierrors.Reason
	}{
		{"nobody", list(c.as(nil), ""), apierrors.Unauthorized},
		{"anonymous", list(c.as(&authn.User{Name: authn.AnonymousName}), ""), apierrors.Unauthorized},
		{"unknown user", list(c.as(&authn.User{Name: "jane"}), ""), apierrors.Forbidden},
		{"a node name without the group", list(c.as(&authn.User{Name: "system:node:n2"}), "spec.nodeName=n2"),
			apierrors.Forbidden},
		{"a controller in the admins' group", func() error {
			_, err := c.as(&authn.User{Name: "system:controller:x", Groups: []string{authn.AdminsGroup}}).Nodes.Delete(ctx(t),
				&metav1.DeleteRequest{Name: "n1"})
			return err
		}(), apierrors.Forbidden},
		{"an agent lists all pods", list(agent, ""), apierrors.Forbidden},
		{"an agent lists another's pods", list(agent, "spec.nodeName=n1"), apierrors.Forbidden},
		{"an agent lists its pods", list(agent, "spec.nodeName=n2"), ""},
		{"an agent reads another's pod", get(agent, "web"), apierrors.Forbidden},
		{"an agent reads its pod", get(c.agent("n1"), "web"), ""},
		{"an agent takes another's lease", lease(agent, "n1"), apierrors.Forbidden},
		{"an agent takes its lease", lease(agent, "n2"), ""},
		{"an agent creates a pod", func() error {
			p := newPod("x")
			p.Spec.NodeName = "n2"
			_, err := agent.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})
			return err
		}(), apierrors.Forbidden},
		{"an agent creates a mirror pod", mirror(func(*corev1.Pod) {}), ""},
		{"an agent creates a mirror pod of nobody", mirror(func(p *corev1.Pod) {
			p.Metadata.Name, p.Metadata.OwnerReferences = "m2", nil
		}), apierrors.Forbidden},
		{"an agent creates a mirror pod of another machine's node", mirror(func(p *corev1.Pod) {
			p.Metadata.Name, p.Metadata.OwnerReferences[0].Uid = "m3", "other"
		}), apierrors.Forbidden},
		{"an agent creates a mirror pod that holds up its node's deletion", mirror(func(p *corev1.Pod) {
			p.Metadata.Name, p.Metadata.OwnerReferences[0].BlockOwnerDeletion = "m4", ptr(true)
		}), apierrors.Forbidden},
		{"an agent creates a mirror pod on another node", mirror(func(p *corev1.Pod) {
			p.Metadata.Name, p.Spec.NodeName = "m5", "n1"
		}), apierrors.Forbidden},
		{"an agent creates a mirror pod with a secret", mirror(func(p *corev1.Pod) {
			p.Metadata.Name, p.Spec.Volumes = "m6", []*corev1.Volume{{Name: "v", VolumeSource: &corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
		}), apierrors.Forbidden},
		{"an administrator creates a mirror pod", func() error {
			p := newPod("fake")
			p.Spec.NodeName = "n2"
			p.Metadata.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"}
			_, err := c.admin().Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})
			return err
		}(), apierrors.Forbidden},
		{"the scheduler deletes a node", func() error {
			_, err := c.scheduler().Nodes.Delete(ctx(t), &metav1.DeleteRequest{Name: "n1"})
			return err
		}(), apierrors.Forbidden},
		{"podgc creates a pod", func() error {
			_, err := c.controller("podgc").Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: newPod("x")})
			return err
		}(), apierrors.Forbidden},
	} {
		if x.want == "" && x.err != nil || x.want != "" && !apierrors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %q", x.name, x.err, x.want)
		}
	}
}
