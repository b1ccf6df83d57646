package progress

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// shown is how many names of pods a line has.
const shown = 3

// String returns the report as people read it: a sentence, what holds the whole, and a line for each group of pods.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %d pods are ready", r.Name, r.Ready, r.Pods)
	if r.Wanted != nil && int(*r.Wanted) != r.Pods {
		fmt.Fprintf(&b, ", %d are wanted", *r.Wanted)
	}
	b.WriteString("\n")
	for _, h := range r.Holds {
		fmt.Fprintf(&b, "- %s\n", h)
	}
	if len(r.Groups) == 0 {
		return b.String()
	}
	b.WriteString("\n")
	t := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "PODS\tSTATE\tNAMES\tWHY")
	for _, g := range r.Groups {
		names := strings.Join(g.Pods[:min(shown, len(g.Pods))], ",")
		if more := len(g.Pods) - shown; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", len(g.Pods), g.State, names, g.Why)
		for _, d := range g.Details {
			fmt.Fprintf(t, "\t\t\t  %s\n", d)
		}
	}
	_ = t.Flush() // a builder takes everything
	return b.String()
}
