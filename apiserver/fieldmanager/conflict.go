package fieldmanager

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/merge"

	"monoplane.dev/apierrors"
	"monoplane.dev/object"
)

// conflict says who owns what was to be applied, in the words that tools look for.
func (a *application) conflict(kind *object.Kind, name string, list merge.Conflicts) error {
	// By manager; those of one stay in the order of Kubernetes: of each object first its own fields, then those below.
	slices.SortStableFunc(list, func(x, y merge.Conflict) int { return strings.Compare(x.Manager, y.Manager) })
	var text string
	if len(list) == 1 {
		text = fmt.Sprintf("Apply failed with 1 conflict: conflict with %s: %v", a.describe(list[0].Manager), list[0].Path)
	} else {
		text = a.message(list)
	}
	err := apierrors.New(apierrors.Conflict, "%s", text)
	for _, c := range list {
		err = err.WithCause(apierrors.Cause{
			Type: "FieldManagerConflict", Message: "conflict with " + a.describe(c.Manager), Field: c.Path.String(),
		})
	}
	return err
}

func (a *application) message(list merge.Conflicts) string {
	var lines []string
	var last string
	for _, c := range list {
		if c.Manager != last {
			lines = append(lines, "conflicts with "+a.describe(c.Manager)+":")
			last = c.Manager
		}
		lines = append(lines, "- "+c.Path.String())
	}
	return fmt.Sprintf("Apply failed with %d conflicts: %s", len(list), strings.Join(lines, "\n"))
}

// describe names the manager of an entry.
func (a *application) describe(name string) string {
	e := a.entries[name]
	text := fmt.Sprintf("%q", e.GetManager())
	if e.GetSubresource() != "" {
		text += fmt.Sprintf(" with subresource %q", e.GetSubresource())
	}
	if e.GetOperation() != updating {
		return text
	}
	return text + " using " + e.GetApiVersion()
}
