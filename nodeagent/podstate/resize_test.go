package podstate

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	corev1 "monoplane.dev/api/core/v1"
	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/resources"
)

// Whatever comes of the questions and orders of a pod that runs, which may be answered late, in part, twice or never:
// its status never claims amounts that its containers do not have without saying that something is under way, no
// container is restarted but for its policy, and once all is answered everything has what it asks for.
// spec: OBJ-10
func TestResizes(t *testing.T) {
	var granted, restarted, partly int
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t)
		c.pod.Spec.RestartPolicy = "Always"
		for _, list := range [][]*corev1.Container{c.pod.Spec.InitContainers, c.pod.Spec.Containers} {
			for _, d := range list {
				d.Resources = &corev1.ResourceRequirements{Requests: map[string]*metav1.Quantity{"cpu": {String_: "1"}}}
			}
		}
		c.agentStarts()
		c.settle(t)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				c.t = t
				c.check()
			},
			"answer": func(t *rapid.T) {
				c.t = t
				if len(c.pending) == 0 || c.dead {
					return
				}
				i := rapid.IntRange(0, len(c.pending)-1).Draw(t, "which")
				if d, ok := c.pending[i].(Actuate); ok && len(d.Targets) > 1 {
					partly++
				}
				c.answer(i, rapid.IntRange(0, 2).Draw(t, "fails") == 0)
			},
			"resize": c.resizes,
			"room":   func(*rapid.T) { c.step(Reconsider{}) },
			"wait":   c.wait,
			"exit": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "seldom") == 0 {
					c.exits(t)
				}
			},
			"agent restarts": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "seldom") == 0 {
					c.returns()
				}
			},
		})
		if c.kept != nil {
			granted++
		}
		c.t = t
		c.returns() // or what was never answered would be waited for
		c.settle(t)
		if c.dead || c.m.Life() != Active {
			return // a restart rule of the pod has ended it
		}
		for _, in := range c.instances {
			if in.State != Running || c.m.index(in.Name) < 0 {
				continue
			}
			if in.Attempt > 0 {
				restarted++
			}
			if want := c.container(in.Name).GetResources(); !sameAmounts(c.amounts[in.ID], want) {
				t.Fatalf("%s has %v in the end and asks for %v", in.Name, c.amounts[in.ID], want)
			}
		}
		for _, kind := range []string{resources.ResizePending, resources.ResizeInProgress} {
			if says := condition(c.pod.GetStatus(), kind); says != nil {
				t.Fatalf("in the end it says %v", says)
			}
		}
		if c.m.rz != nil {
			t.Fatalf("in the end it remembers %+v", c.m.rz)
		}
	})
	if granted == 0 || restarted == 0 || partly == 0 {
		t.Errorf("%d were granted, %d restarted, %d in parts: too little was tried", granted, restarted, partly)
	}
}

// returns makes the agent come back.
func (c *chaos) returns() {
	c.kills, c.shown, c.over, c.hooked = map[string]*stop{}, nil, map[string]bool{}, map[string]*hooking{}
	c.agentStarts()
}

// settle lets everything succeed until there is nothing to do.
func (c *chaos) settle(t *rapid.T) {
	c.t = t
	c.agreeable = true
	defer func() { c.agreeable = false }()
	for range 500 {
		c.check()
		if c.dead || c.calm() {
			return
		}
		if i := c.firstBut(func(a Action) bool { _, probe := a.(Probe); return probe }); i >= 0 {
			c.answer(i, false)
			continue
		}
		for i, a := range c.pending {
			if _, probe := a.(Probe); probe {
				c.answer(i, false)
				break
			}
		}
		if in, ok := c.running("one"); ok && !c.m.initialized {
			c.exit(in.ID, 0)
			c.step(Poke{})
		}
		c.pass(5 * time.Second)
	}
	t.Fatalf("it does not settle: life %s, pending %v, %+v\n%s", c.m.Life(), c.pending, c.m.rz, summary(c.m.status()))
}

// calm reports whether all containers run and nothing but probes is under way.
func (c *chaos) calm() bool {
	if c.firstBut(func(a Action) bool { _, probe := a.(Probe); return probe }) >= 0 || c.m.rz != nil ||
		!same(c.m.status(), c.pod.GetStatus()) || c.m.write.busy {
		return false
	}
	for i := range c.m.containers {
		if c.m.kind(i) != initial && c.m.containers[i].State != Running {
			return false
		}
	}
	return true
}

// firstBut returns the place of the first pending action that does not count as one to leave out, -1 for none.
func (c *chaos) firstBut(leave func(Action) bool) int {
	for i, a := range c.pending {
		if !leave(a) {
			return i
		}
	}
	return -1
}

// What the API says of a pod that was never resized is enough to go on with, also without a file.
func TestGrantIsRecalledFromStatus(t *testing.T) {
	w := began(t, "Always")
	w.container("main").Resources = nil
	w.resize("main", "2")
	w.step(w.grant(must[AskResize](t, w, nil)))
	w.step(w.actuate(must[Actuate](t, w, nil), "", 0))
	w.now = w.now.Add(time.Minute)
	w.step(Tick{})
	w.step(w.write(must[WriteStatus](t, w, nil)))
	w.kept, w.pending = nil, nil
	w.pod = w.pod.Clone()
	w.pod.Spec.Containers[0].Resources = &corev1.ResourceRequirements{} // it asks for nothing by the time of the restart
	w.agentStarts()
	if got := w.m.Granted().GetSpec().GetContainers()[0].GetResources().GetRequests()["cpu"].GetString_(); got != "2" {
		t.Errorf("it was granted %q", got)
	}
	must[AskResize](t, w, nil)
	if len(w.pending) > 0 {
		t.Errorf("asked for %v", w.pending)
	}
}

// What the runtime failed to do and does all the same, later, is undone by a look after a while. spec: OBJ-10
func TestLateActuationIsUndone(t *testing.T) {
	w := began(t, "Always")
	w.resize("main", "2")
	w.step(w.grant(must[AskResize](t, w, nil)))
	late := must[Actuate](t, w, nil)
	w.step(Actuated{Serial: late.Serial, Err: "deadline exceeded"})
	w.resize("main", "3")
	w.step(w.grant(must[AskResize](t, w, nil)))
	second := must[Actuate](t, w, nil)
	w.step(w.actuate(second, "", 0))
	id := second.Targets[0].ID
	w.amounts[id] = ContainerAt(late.To, 0).GetResources() // now the runtime does it
	for range 10 {
		w.now = w.now.Add(time.Minute)
		w.step(Tick{})
		if _, ok := take[Observe](w, nil); ok {
			w.step(Observed{Asked: true, Seen: w.seen()})
		}
		if a, ok := take[Actuate](w, nil); ok {
			w.step(w.actuate(a, "", 0))
		}
	}
	if got := w.amounts[id].GetRequests()["cpu"].GetString_(); got != "3" {
		t.Errorf("it has %s in the end", got)
	}
	if w.m.rz != nil {
		t.Errorf("in the end it remembers %+v", w.m.rz)
	}
}
