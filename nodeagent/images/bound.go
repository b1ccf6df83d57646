package images

import (
	"errors"
	"fmt"

	"monoplane.dev/nodeagent/quota"
)

// bound sees to it that a container cannot write much more than it should before its pod is evicted for it, as far as
// the file system can: a limit that it does not take is no error. The root's file has the project before that has a
// limit, so that none is left of a process that dies meanwhile.
func (s *Store) bound(root *Root, most int64) error {
	if most <= 0 || root.Upper == "" {
		return nil
	}
	without := func(err error) error {
		if !errors.Is(err, errors.ErrUnsupported) {
			s.cfg.Log.Warn("there is no bound to what a container writes until its pod is evicted", "container", root.ID,
				"error", err)
		}
		return nil
	}
	project, err := quota.New(root.Upper)
	if err != nil {
		return without(err)
	}
	// overlayfs makes files in the one directory and moves them to the other, which it cannot between two projects.
	for _, dir := range append([]string{root.Work}, root.Volumes...) {
		if err := project.Add(dir); err != nil {
			return fmt.Errorf("its directories cannot have one project: %w", err)
		}
	}
	root.Project = project
	if err := s.writeRoot(*root); err != nil {
		return err
	}
	if err := project.Limit(root.Dir, quota.Hard(most)); err != nil {
		return without(err)
	}
	return nil
}

// unbound takes the limit of a root away, of which nothing is to be left.
func (s *Store) unbound(root *Root) error {
	if root.Project == 0 {
		return nil
	}
	err := root.Project.Limit(root.Dir, 0)
	if errors.Is(err, errors.ErrUnsupported) { // The file system was mounted anew, without quotas.
		err = nil
	}
	return err
}
