package deletion_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"monoplane.dev/apiserver/kinds/core/pod/deletion"
	"monoplane.dev/rules/precondition"
)

// model is the world of one pod name and one node: the object, its node's agent, the processes, and what somebody has
// read of the object some time ago. The rules of deletion are the real ones (Decide); binding, the agent and PodGC are
// as docs/guarantees.md says that they are. A name has two incarnations at most, with the uids 1 and 2.
type model struct {
	uid, made             int8 // of the object, 0 for none; the last that was given
	bound, terminal, lost bool
	finalizer, node       bool // node: its Node exists
	grace                 int8 // of the deletion that has begun, -1 for none

	read int8 // the uid that scheduler, controllers and PodGC go by; the object may have changed since

	up, back              bool // the agent reaches the server; it has read all its pods since it started
	knows                 int8 // the uid of the pod that the agent takes for its own, 0 for none
	knowsMark, knowsEnded bool
	runs                  [3]bool // processes of a uid
	// excused are the uids of which somebody entitled has said that their processes need not be waited for.
	excused [3]bool
}

var modelTime = time.Unix(1_000_000, 0)

// ask makes a request by the real rules, and reports whether it was granted.
func (m *model) ask(role deletion.Role, grace *int64, uid int8) bool {
	if m.uid == 0 {
		return false
	}
	p := deletion.Pod{Name: "p", UID: strconv.Itoa(int(m.uid)), Terminal: m.terminal, NodeLost: m.lost,
		Finalizers: m.finalizer}
	if m.bound {
		p.Node = "n"
	}
	if m.grace >= 0 {
		p.Mark = &deletion.Mark{Deadline: modelTime.Add(time.Duration(m.grace) * time.Second), Grace: int64(m.grace)}
	}
	req := deletion.Request{Grace: grace}
	if uid != 0 {
		req.Expected = precondition.Expected{UID: ptr(strconv.Itoa(int(uid)))}
	}
	d, err := deletion.Decide(p, req, deletion.Actor{Role: role, Name: "somebody", Node: "n"}, modelTime)
	if err != nil || d.NodeGone && m.node {
		return false
	}
	if d.Unconfirmed || d.NodeGone || m.lost && role != deletion.PodGC {
		m.excused[m.uid] = true // Who deletes a Node, and then what was on it, has said that the machine is dead.
	}
	switch d.Outcome {
	case deletion.Marked:
		m.grace = int8(d.Mark.Grace)
	case deletion.Removed:
		m.remove()
	case deletion.Unchanged:
	}
	return true
}

func (m *model) remove() {
	m.uid, m.bound, m.terminal, m.lost, m.finalizer, m.grace = 0, false, false, false, false, -1
}

// see is the agent's look at the object as it is.
func (m *model) see() {
	m.knows, m.knowsMark, m.knowsEnded = 0, false, false
	if m.bound {
		m.knows, m.knowsMark, m.knowsEnded = m.uid, m.grace >= 0, m.terminal
	}
}

// steps are all that can happen, each where it reports true. Those that are willing need nobody's decision: they
// happen in the end where the network lets them.
var steps = []struct {
	name    string
	willing bool
	do      func(*model) bool
}{
	{"a user creates the pod", false, func(m *model) bool { return m.create(false) }},
	{"a user creates the pod, with a finalizer", false, func(m *model) bool { return m.create(true) }},
	{"a user deletes it", false, func(m *model) bool { return m.ask(deletion.User, nil, 0) }},
	{"a user shortens its grace", false, func(m *model) bool { return m.ask(deletion.User, ptr[int64](1), 0) }},
	{"a user forces", false, func(m *model) bool { return m.ask(deletion.User, ptr[int64](0), 0) }},
	{"a user deletes the Node", false, func(m *model) bool { had := m.node; m.node = false; return had }},
	{"the finalizer is removed", true, func(m *model) bool {
		had := m.finalizer
		if m.finalizer = false; had && m.grace == 0 {
			m.remove()
		}
		return had
	}},
	{"somebody reads the object", true, func(m *model) bool { m.read = m.uid; return true }},
	{"the scheduler binds", false, func(m *model) bool {
		ok := m.uid != 0 && m.uid == m.read && !m.bound && m.grace < 0 && m.node // spec: DEL-11
		m.bound = m.bound || ok
		return ok
	}},
	{"a controller deletes", false, func(m *model) bool {
		return m.read != 0 && m.ask(deletion.Controller, nil, m.read)
	}},
	{"PodGC fails it, because its Node is gone", true, func(m *model) bool {
		ok := m.bound && m.read == m.uid && !m.node && !m.terminal // spec: GC-1
		if ok {
			m.terminal, m.lost = true, true
		}
		return ok
	}},
	{"PodGC removes it", true, func(m *model) bool {
		return m.read != 0 && (m.terminal || !m.node || m.grace >= 0) && m.ask(deletion.PodGC, ptr[int64](0), m.read)
	}},
	{"the network breaks", false, func(m *model) bool { had := m.up; m.up = false; return had }},
	{"the network is back", true, func(m *model) bool { had := m.up; m.up = true; return !had }},
	{"the agent registers its Node again", true, func(m *model) bool {
		ok := m.up && m.back && !m.node // spec: NODE-7
		m.node = m.node || ok
		return ok
	}},
	{"the agent dies", false, func(m *model) bool {
		had := m.back
		m.back, m.knows, m.knowsMark, m.knowsEnded = false, 0, false, false
		return had
	}},
	{"the agent comes back", true, func(m *model) bool {
		ok := m.up && !m.back
		if ok { // spec: NODE-2
			m.see()
			m.back = true
			for u := range m.runs {
				m.runs[u] = m.runs[u] && int8(u) == m.knows
			}
		}
		return ok
	}},
	{"the agent sees what has changed", true, func(m *model) bool {
		ok := m.up && m.back
		if ok {
			m.see()
		}
		return ok
	}},
	{"the agent starts it", false, func(m *model) bool {
		ok := m.back && m.knows != 0 && !m.knowsMark && !m.knowsEnded && !m.runs[m.knows]
		if ok {
			m.runs[m.knows] = true
		}
		return ok
	}},
	{"the processes end by themselves", true, func(m *model) bool {
		had := m.runs != [3]bool{}
		m.runs = [3]bool{}
		return had
	}},
	{"the agent kills", true, func(m *model) bool {
		did := false
		for u := range m.runs {
			if m.back && m.runs[u] && (int8(u) != m.knows || m.knowsMark) {
				m.runs[u], did = false, true
			}
		}
		return did
	}},
	{"the agent says that it has ended", true, func(m *model) bool {
		ok := m.up && m.back && m.knows != 0 && !m.knowsEnded && !m.runs[m.knows] // spec: LIFE-10
		if ok {
			m.knowsEnded = true
			m.terminal = m.terminal || m.uid == m.knows
		}
		return ok
	}},
	{"the agent completes the deletion", true, func(m *model) bool {
		return m.up && m.back && m.knows != 0 && m.knowsMark && m.knowsEnded && !m.runs[m.knows] &&
			m.ask(deletion.Agent, ptr[int64](0), m.knows)
	}},
	{"the agent asks too early", false, func(m *model) bool {
		return m.up && m.knows != 0 && m.runs[m.knows] && m.ask(deletion.Agent, ptr[int64](0), m.knows)
	}},
}

func (m *model) create(finalizer bool) bool {
	if m.uid != 0 || m.made == 2 {
		return false
	}
	m.made++
	m.uid, m.finalizer = m.made, finalizer
	return true
}

// Whatever happens, in whatever order, a pod whose deletion nobody forced runs only as long as its object is there and
// bound, so that a successor of its name never runs beside it; no controller can force; and a deletion that has begun
// can come to its end without anybody's help once the network is back. All states are tried, so that it holds for all
// of them. What a node does that must stop by itself (FENCE-3) is not part of it.
//
// spec: SAFE-3
func TestModel(t *testing.T) {
	begin := model{node: true, up: true, back: true, grace: -1}
	at := map[model]int{begin: 0}
	all, from, by := []model{begin}, []int{-1}, []int{-1}
	var willing [][]int // for each state, those from which a willing step leads there
	willing = append(willing, nil)
	trace := func(i int) string {
		var out []string
		for ; from[i] >= 0; i = from[i] {
			out = append([]string{steps[by[i]].name}, out...)
		}
		return strings.Join(out, "; ")
	}
	for i := 0; i < len(all); i++ {
		for n, s := range steps {
			next := all[i]
			if !s.do(&next) || next == all[i] {
				continue
			}
			j, known := at[next]
			if !known {
				j = len(all)
				at[next] = j
				all, from, by, willing = append(all, next), append(from, i), append(by, n), append(willing, nil)
			}
			if s.willing {
				willing[j] = append(willing[j], i)
			}
		}
		m := all[i]
		for u, runs := range m.runs {
			if runs && !m.excused[u] && (m.uid != int8(u) || !m.bound) {
				t.Fatalf("the processes of uid %d run without their object: %s", u, trace(i))
			}
		}
		if m.ask(deletion.Controller, ptr[int64](0), m.uid) {
			t.Fatalf("a controller has forced: %s", trace(i))
		}
	}
	// Back from where a name is free, along willing steps.
	ends, todo := make([]bool, len(all)), []int{}
	for i, m := range all {
		if m.uid == 0 {
			ends[i], todo = true, append(todo, i)
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, j := range willing[i] {
			if !ends[j] {
				ends[j], todo = true, append(todo, j)
			}
		}
	}
	for i, m := range all {
		if m.grace >= 0 && !ends[i] {
			t.Fatalf("a deletion never ends: %s", trace(i))
		}
	}
	// What the model is for happens in it.
	succeeded, two, forced := false, false, false
	for _, m := range all {
		succeeded = succeeded || m.runs[2] && m.excused == [3]bool{}
		two = two || m.runs[1] && m.runs[2] && m.excused[1]
		forced = forced || m.runs[1] && m.uid == 0
	}
	if !succeeded || !two || !forced {
		t.Errorf("a successor runs: %v; beside one that was forced: %v; one runs without its object: %v", succeeded, two,
			forced)
	}
	t.Logf("%d states", len(all))
}
