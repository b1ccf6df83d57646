//go:build rootonly

package cridiff_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// scenario is a case: what is played to both sides.
type scenario struct {
	name string
	play func(*play)
}

// The name of a case of several features is these, and the features' names between them.
const (
	randomMark = "random: "
	plus       = " + "
)

// nothing stands for a value that one side has not said.
const nothing = "(nothing)"

// differ is a judge of differences: it knows which are wanted, and which rows of those it has needed.
type differ struct {
	mu     sync.Mutex
	needed map[int]bool
}

// compare returns what differs and is not wanted, a line each.
func (d *differ) compare(name string, theirs, ours map[string]string) []string {
	keys := maps.Clone(theirs)
	maps.Copy(keys, ours)
	// Where one side refuses what the other does, it has nothing to say of what follows. How far ours comes with what
	// containerd refuses is compared nevertheless, but not with random features: any of those may be refused, too.
	refused, isRandom := false, strings.HasPrefix(name, randomMark)
	for key := range keys {
		refused = refused || strings.HasSuffix(key, ": code") && theirs[key] != ours[key]
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a, inTheirs := theirs[key]
		b, inOurs := ours[key]
		if strings.HasPrefix(key, "(") || refused && (!inOurs || !inTheirs && (!goesOn(key) || isRandom)) {
			continue
		}
		if !inTheirs {
			a = nothing
		}
		if !inOurs {
			b = nothing
		}
		if a == b || d.isWanted(name, key, a, b) {
			continue
		}
		out = append(out, fmt.Sprintf("%s:\n    containerd: %s\n    oci:        %s", key, short(a), short(b)))
	}
	if len(out) > 0 {
		for side, said := range map[string]map[string]string{"containerd": theirs, "oci": ours} {
			for _, key := range slices.Sorted(maps.Keys(said)) {
				if strings.HasPrefix(key, "(") {
					out = append(out, side+" "+key+" "+said[key])
				}
			}
		}
	}
	return out
}

// goesOn tells whether a key says how far a container has come.
func goesOn(key string) bool {
	return strings.HasSuffix(key, " create: code") || strings.HasSuffix(key, " start: code")
}

func short(s string) string {
	const most = 900
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func (d *differ) isWanted(name, key, theirs, ours string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	features := strings.Split(strings.TrimPrefix(name, randomMark), plus)
	fit := func(w difference) bool {
		return slices.ContainsFunc(features, func(f string) bool { return fits(w.scenario, f) }) &&
			fits(w.key, key) && w.accepts(theirs, ours)
	}
	found := slices.ContainsFunc(chance, fit)
	for i, w := range wanted {
		if fit(w) {
			d.needed[i] = true
			found = true
		}
	}
	return found
}

// fits tells whether a name fits a pattern, in which * stands for anything, and the empty one fits all.
func fits(pattern, name string) bool {
	_, ok := match(pattern, name)
	return ok || pattern == ""
}

// match tells whether a value fits a pattern, in which * stands for anything, and what that is in the value.
func match(pattern, value string) (stars []string, ok bool) {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return nil, pattern == value
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(value, first) || len(value) < len(first)+len(last) || !strings.HasSuffix(value, last) {
		return nil, false
	}
	value = value[len(first) : len(value)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		star, rest, found := strings.Cut(value, part)
		if !found {
			return nil, false
		}
		stars, value = append(stars, star), rest
	}
	return append(stars, value), true
}

// compareAll plays cases to both sides, a few at a time.
func (w *world) compareAll(t *testing.T, d *differ, seed uint64, list []scenario) {
	const atOnce = 6
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	defer all.Wait()
	for i, c := range list {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			var theirs, ours map[string]string
			var both sync.WaitGroup
			both.Go(func() { theirs = playOn(t, w.theirs, c, i, w.cgroups, seed) })
			both.Go(func() { ours = playOn(t, w.ours, c, i, w.cgroups, seed) })
			both.Wait()
			t.Logf("%d: %s", i, c.name)
			if lines := d.compare(c.name, theirs, ours); len(lines) > 0 {
				t.Errorf("%s:\n  %s", c.name, strings.Join(lines, "\n  "))
			}
		})
	}
}
