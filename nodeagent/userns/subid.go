package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// line is what a line of a file such as /etc/subuid gives to a user: count ids from first on.
type line struct {
	file         string
	number       int
	user         string
	first, count uint64
}

func (l line) end() uint64 { return l.first + l.count }

func (l line) overlaps(first, count uint64) bool { return l.first < first+count && first < l.end() }

func (l line) wrong(format string, args ...any) error {
	return fmt.Errorf("%s, line %d: %s", l.file, l.number, fmt.Sprintf(format, args...))
}

// readLines reads a file in which each line is NAME:FIRST:COUNT. A file that is not there gives nothing to anybody.
func readLines(path string) ([]line, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the machine's own configuration
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []line
	number := 0
	for text := range strings.Lines(string(text)) {
		number++
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		l := line{file: path, number: number}
		parts := strings.Split(text, ":")
		if len(parts) != 3 {
			return nil, l.wrong("%q is not NAME:FIRST:COUNT", text)
		}
		l.user = parts[0]
		for i, n := range []*uint64{&l.first, &l.count} {
			if *n, err = strconv.ParseUint(parts[i+1], 10, 32); err != nil {
				return nil, l.wrong("%q is not a number of 32 bits", parts[i+1])
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// readRange returns the ids that pods may have, by the rules of USER-2: those that the files give to the user, the
// same in both, or else some that they give to nobody.
func readRange(cfg Config) (first, count uint64, err error) {
	all, found := []line{}, [2][]line{}
	for i, path := range []string{cfg.SubUID, cfg.SubGID} {
		lines, err := readLines(path)
		if err != nil {
			return 0, 0, err
		}
		all = append(all, lines...)
		for _, l := range lines {
			if l.user == cfg.User {
				found[i] = append(found[i], l)
			}
		}
	}
	uids, gids := found[0], found[1]
	need := uint64(cfg.MaxPods) * Size //nolint:gosec // not negative
	switch {
	case len(uids)+len(gids) == 0:
		return unclaimed(all, need)
	case len(uids) == 0:
		return 0, 0, gids[0].wrong("%s has group ids, but no user ids in %s", cfg.User, cfg.SubUID)
	case len(gids) == 0:
		return 0, 0, uids[0].wrong("%s has user ids, but no group ids in %s", cfg.User, cfg.SubGID)
	}
	for _, lines := range found {
		if len(lines) > 1 {
			return 0, 0, lines[1].wrong("%s has ids in line %d already: there must be one line for it", cfg.User,
				lines[0].number)
		}
		if err := check(lines[0], cfg.MaxPods, need); err != nil {
			return 0, 0, err
		}
	}
	u, g := uids[0], gids[0]
	if u.first != g.first || u.count != g.count {
		return 0, 0, g.wrong("the group ids of %s, %d from %d on, must be the same as its user ids in %s, %d from %d on",
			cfg.User, g.count, g.first, cfg.SubUID, u.count, u.first)
	}
	for _, l := range all {
		if l.user != cfg.User && l.overlaps(u.first, u.count) {
			return 0, 0, l.wrong("the ids of %s, %d from %d on, overlap with those of %s, %d from %d on", l.user, l.count,
				l.first, cfg.User, u.count, u.first)
		}
	}
	return u.first, u.count, nil
}

func check(l line, pods int, need uint64) error {
	switch {
	case l.first < Size:
		return l.wrong("the first id of %s is %d; it must be at least %d", l.user, l.first, Size)
	case l.first%Size != 0:
		return l.wrong("the first id of %s is %d; it must be a multiple of %d", l.user, l.first, Size)
	case l.count%Size != 0:
		return l.wrong("%s has %d ids; the number must be a multiple of %d", l.user, l.count, Size)
	case l.count < need:
		return l.wrong("%s has %d ids; it must be at least %d, which are %d for each of %d pods", l.user, l.count, need,
			Size, pods)
	case l.end() > maxID:
		return l.wrong("the ids of %s end at %d; there are none from %d on", l.user, l.end(), uint64(maxID))
	}
	return nil
}

// unclaimed returns ids that no line gives to somebody.
func unclaimed(all []line, need uint64) (first, count uint64, err error) {
	slices.SortFunc(all, func(a, b line) int {
		if a.first < b.first {
			return -1
		}
		return 1
	})
	first = Size
	for _, l := range all {
		if l.overlaps(first, need) {
			first = (l.end() + Size - 1) / Size * Size
		}
	}
	if first+need > maxID {
		return 0, 0, fmt.Errorf("no %d ids in a row are left for pods: all are given away in the subid files", need)
	}
	return first, need, nil
}
