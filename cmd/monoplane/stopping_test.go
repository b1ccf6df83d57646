package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Ten thousand pods that stop one after the other do not make ten thousand lines.
func TestStoppingIsReadable(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1, 0)
	s := stopping{w: &out, hint: " (hint)", now: func() time.Time { return now }}
	pods := []string{}
	for i := range 5000 {
		pods = append(pods, fmt.Sprint("default/p", i))
	}
	for len(pods) > 0 {
		s.show(pods)
		s.show(pods)
		pods = pods[1:]
		now = now.Add(time.Millisecond)
	}
	s.show(nil)
	want := `Stopping pods default/p0, default/p1, default/p2, default/p3, default/p4 and 4995 more (hint)
Stopping pods default/p2000, default/p2001, default/p2002, default/p2003, default/p2004 and 2995 more (hint)
Stopping pods default/p4000, default/p4001, default/p4002, default/p4003, default/p4004 and 995 more (hint)
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	out.Reset()
	for range 3 {
		now = now.Add(time.Minute)
		s.show([]string{"default/stays"})
	}
	if out.String() != "Stopping pods default/stays (hint)\n" {
		t.Errorf("a pod that takes its time: %q", out.String())
	}
}
