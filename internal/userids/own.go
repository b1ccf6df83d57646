package userids

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// Range maps Size ids from Inside on to those of the machine from Outside on.
type Range struct{ Inside, Outside, Size uint32 }

// Maps are the ids of a user namespace. The first range of each is one id, root's inside.
type Maps struct{ Users, Groups []Range }

// IsSingle tells whether there is only one user and one group, which need nobody's leave.
func (m Maps) IsSingle() bool { return len(m.Users) == 1 && len(m.Groups) == 1 }

// Single maps the user and group of this process, alone, to root.
func Single() Maps {
	return Maps{Users: []Range{{Outside: uint32(os.Geteuid()), Size: 1}},
		Groups: []Range{{Outside: uint32(os.Getegid()), Size: 1}}}
}

// The files that say who has which ids, and the most that is taken from either.
const (
	subUID   = "/etc/subuid"
	subGID   = "/etc/subgid"
	mostFile = 1 << 20
)

// mostRanges is how many ranges newuidmap is asked for.
const mostRanges = 16

// parse reads the lines of a file that are for a user: "name:first:count" or "uid:first:count". What is not such a
// line is nobody's.
func parse(r io.Reader, name, uid string) (all []Range, err error) {
	inside := uint64(1)
	lines := bufio.NewScanner(io.LimitReader(r, mostFile))
	for lines.Scan() && len(all) < mostRanges {
		part := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(part) != 3 || part[0] == "" || part[0] != name && part[0] != uid {
			continue
		}
		first, err1 := strconv.ParseUint(part[1], 10, 32)
		count, err2 := strconv.ParseUint(part[2], 10, 32)
		const ids = 1<<32 - 1 // The last number stands for none.
		if err1 != nil || err2 != nil || count == 0 || first == 0 || first+count > ids || inside+count > ids {
			continue
		}
		all = append(all, Range{Inside: uint32(inside), Outside: uint32(first), Size: uint32(count)})
		inside += count
	}
	return all, lines.Err()
}

func read(path, name, uid string) ([]Range, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := parse(f, name, uid)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 {
		who := "user " + uid
		if name != "" {
			who = name
		}
		return nil, fmt.Errorf("%s has no ids for %s", path, who)
	}
	return all, nil
}

// listed returns what the files give this user.
func listed() (Maps, error) {
	uid, name := strconv.Itoa(os.Geteuid()), ""
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	m := Single()
	users, err := read(subUID, name, uid)
	if err != nil {
		return m, err
	}
	groups, err := read(subGID, name, uid)
	if err != nil {
		return m, err
	}
	m.Users, m.Groups = append(m.Users, users...), append(m.Groups, groups...)
	return m, nil
}
