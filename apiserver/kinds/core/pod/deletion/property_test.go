package deletion_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"monoplane.dev/apiserver/kinds/core/pod/deletion"
)

// TestProperties draws whole lives of a pod and checks what no sequence of requests may break.
//
// spec: DEL-2, DEL-3, DEL-4, DEL-6, DEL-8, DEL-14
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := deletion.Pod{
			Name: "p", UID: "u1", ResourceVersion: "1",
			Node:       rapid.SampledFrom([]string{"", "n1"}).Draw(t, "node"),
			Terminal:   rapid.Bool().Draw(t, "terminal"),
			Finalizers: rapid.Bool().Draw(t, "finalizers"),
			SpecGrace:  rapid.Ptr(rapid.Int64Range(-2, 100), true).Draw(t, "specGrace"),
		}
		now := start
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 60_000).Draw(t, "ms")) * time.Millisecond)
			p.Terminal = p.Terminal || rapid.Bool().Draw(t, "ends")
			by := rapid.SampledFrom([]deletion.Actor{user, agent, podgc, other}).Draw(t, "by")
			req := deletion.Request{Grace: rapid.Ptr(rapid.Int64Range(-3, 120), true).Draw(t, "grace")}
			if rapid.Bool().Draw(t, "uid") {
				req.Expected.UID = ptr("u1")
			}

			d, err := deletion.Decide(p, req, by, now)
			again, errAgain := deletion.Decide(p, req, by, now)
			if d != again || (err == nil) != (errAgain == nil) {
				t.Fatalf("not a function of its arguments: %+v and %+v", d, again)
			}
			if err != nil {
				if by.Role == deletion.User {
					t.Fatalf("users are refused by nothing but preconditions: %v", err)
				}
				continue
			}
			explicit := req.Grace != nil && *req.Grace == 0
			if explicit && by.Role == deletion.Controller {
				t.Fatalf("a controller forced: %+v", d)
			}
			if d.Outcome == deletion.Removed {
				if p.Finalizers {
					t.Fatal("removed despite finalizers")
				}
				if !explicit && p.Node != "" && !p.Terminal {
					t.Fatalf("a pod that may still run was removed without force: %+v", d)
				}
				if p.Mark != nil && p.Mark.Grace != 0 && !explicit {
					t.Fatalf("a terminating pod was removed without grace 0: %+v", d)
				}
				return
			}
			if p.Mark == nil {
				if !d.Begins || d.Outcome != deletion.Marked {
					t.Fatalf("the first request must mark: %+v", d)
				}
				begun := now.Truncate(time.Second)
				if !d.Mark.Deadline.Equal(begun.Add(time.Duration(d.Mark.Grace) * time.Second)) {
					t.Fatalf("the deadline is not now + grace: %+v at %v", d, now)
				}
				if d.Mark.Grace == 0 && !explicit && p.Node != "" && !p.Terminal {
					t.Fatalf("grace 0 without force: %+v", d)
				}
			} else {
				if d.Begins {
					t.Fatal("a deletion begins once")
				}
				if d.Mark.Grace > p.Mark.Grace {
					t.Fatalf("grace grew from %d to %d", p.Mark.Grace, d.Mark.Grace)
				}
				if d.Outcome == deletion.Unchanged && d.Mark != *p.Mark {
					t.Fatalf("unchanged, yet %+v became %+v", *p.Mark, d.Mark)
				}
				if d.Outcome == deletion.Marked && d.Mark == *p.Mark {
					t.Fatalf("marked, yet nothing changed: %+v", d)
				}
				if d.Outcome == deletion.Marked && d.Mark.Deadline.Before(now.Truncate(time.Second)) {
					t.Fatalf("a new deadline lies in the past: %+v at %v", d, now)
				}
			}
			if p.Mark != nil && p.Mark.Grace == 0 && d.Mark.Grace != 0 {
				t.Fatal("a forced deletion became graceful")
			}
			m := d.Mark
			p.Mark = &m
		}
	})
}
