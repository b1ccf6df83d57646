package lifecycle

import (
	"strings"
	"testing"
)

// A container that was started again is one that ran twice, unless it had ended, was told to, or the runtime has ended
// it as one whose start failed.
func TestTwice(t *testing.T) {
	for _, c := range []struct {
		marks  string
		failed int
		want   bool
	}{
		{marks: "START"},
		{marks: "START TERM START END(0)"},
		{marks: "START END(1) START"},
		{marks: "START START", want: true},
		{marks: "START START", failed: 1},
		{marks: "START START START", failed: 1, want: true},
		{marks: "START TERM START START END(0)", want: true},
	} {
		if got := twice(strings.Fields(c.marks), c.failed); got != c.want {
			t.Errorf("%s, %d failed: %t, want %t", c.marks, c.failed, got, c.want)
		}
	}
}

// Lines for some runtimes are for those, and for runtimes of the scenario.
func TestLinesForSomeRuntimes(t *testing.T) {
	const text = `# CTR-4: it runs.
runtimes: fake host
-- pod --
metadata: {}
spec: {containers: [{name: main, command: [act]}]}
-- script --
until phase Running
on host: pass 1s
-- expect --
on fake: waited main: A b
on fake host: phases: Pending Running
`
	s, err := parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for runtime, want := range map[string]string{
		"fake": "until phase Running|waited main: A b|phases: Pending Running",
		"host": "until phase Running|pass 1s|phases: Pending Running",
	} {
		lines := append(said(s.script, runtime), said(s.expect, runtime)...)
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("%s: %s, want %s", runtime, got, want)
		}
	}
	for _, wrong := range []string{"on oci: pass 1s", "on host pass 1s", "on host: "} {
		if _, err := parse("x", []byte(strings.Replace(text, "on host: pass 1s", wrong, 1))); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
