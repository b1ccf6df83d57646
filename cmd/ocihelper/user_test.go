//go:build linux && cgo

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Users and their groups are those of the image's own files, whatever these are: ids need no entry, no id is another
// one's, and nothing outside of the image is read.
func TestResolveUser(t *testing.T) {
	const passwd = "root:x:0:0::/:/bin/sh\nweb:x:33:34::/:/bin/sh\n1000:x:0:0::/:/bin/sh\n" +
		"big:x:4294967296:4294967296::/:/bin/sh\nwide:x:50:4294967296::/:/bin/sh\nless:x:-1:5::/:/bin/sh\n"
	const group = "web:x:34:\nstaff:x:50:web,root\nwheel:x:10:web\nhuge:x:4294967296:wide,many\nbelow:x:-1:wide\n"
	all := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 100}}
	for _, c := range []struct {
		of            string
		has           bundle
		uid, gid      uint32
		groups        []uint32
		err           string
		additional    []uint32
		passwd, group string
	}{
		{of: "", additional: []uint32{7}, groups: []uint32{7}},
		{of: "web", uid: 33, gid: 34, groups: []uint32{34, 50, 10}},
		{of: "33", uid: 33, gid: 34, groups: []uint32{34, 50, 10}},
		{of: "web", additional: []uint32{50, 9}, uid: 33, gid: 34, groups: []uint32{50, 9, 34, 10}},
		{of: "web", has: bundle{StrictGroups: true}, uid: 33, gid: 34, groups: []uint32{34}},
		{of: "web:wheel", uid: 33, gid: 10, groups: []uint32{10}},
		{of: "web:77", has: bundle{GroupsOf: "web"}, uid: 33, gid: 77, groups: []uint32{77, 50, 10}},
		{of: "web:77", has: bundle{GroupsOf: "web", StrictGroups: true}, uid: 33, gid: 77, groups: []uint32{77}},
		// A user whose name is a number is not whom that number means.
		{of: "1000", uid: 1000, groups: []uint32{0}},
		{of: "77:78", uid: 77, gid: 78, groups: []uint32{78}},
		{of: "nobody", err: `user "nobody" of the image: unable to find user nobody: no matching entries in passwd file`},
		{of: "web:none", err: "unable to find group none"},
		{of: "web:77", has: bundle{GroupsOf: "none"}, err: `user "none" of the image`},
		{of: "-2", err: "uids and gids must be in range"},
		{of: "4294967295", err: "uids and gids must be in range"},
		// In 32 bits these would be root.
		{of: "big", err: "the id 4294967296 is not between 0 and 4294967294"},
		{of: "4294967296", err: "the id 4294967296 is not between"},
		{of: "wide", err: "the id 4294967296 is not between"},
		{of: "less", err: "the id -1 is not between"},
		{of: "many", passwd: "many:x:1:1:::\n", group: group, err: "the id 4294967296 is not between"},
		{of: "1:1", has: bundle{GroupsOf: "many"}, passwd: "many:x:1:1:::\n", group: group,
			err: `the groups of user "many" of the image: the id 4294967296 is not between`},
		{of: "99", has: bundle{Users: "/proc/self/ns/user", UIDs: all, GIDs: all}, uid: 99, groups: []uint32{0}},
		{of: "100:100", has: bundle{Users: "/proc/self/ns/user", UIDs: all, GIDs: all},
			err: "the user 100 does not exist in the pod, which has users of its own (hostUsers: false): 0 to 99\n" +
				"the group 100 does not"},
		// More than anybody reads of such a file.
		{of: "web", passwd: strings.Repeat("#", maxUserFile) + "\nweb:x:33:34:::\n", err: "unable to find user web"},
	} {
		root := t.TempDir()
		if c.passwd == "" {
			c.passwd, c.group = passwd, group
		}
		write(t, filepath.Join(root, "etc/passwd"), c.passwd)
		write(t, filepath.Join(root, "etc/group"), c.group)
		b := c.has
		b.User = c.of
		b.Spec = &specs.Spec{Process: &specs.Process{User: specs.User{AdditionalGids: c.additional}}}
		err := resolveUser(&b, root)
		is := b.Spec.Process.User
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %q", c.of, err, c.err)
			}
		case err != nil && os.Geteuid() != 0 && strings.Contains(err.Error(), "does not exist here"):
		case err != nil || is.UID != c.uid || is.GID != c.gid || !slices.Equal(is.AdditionalGids, c.groups):
			t.Errorf("%q: %+v, %v; want %d:%d %v", c.of, is, err, c.uid, c.gid, c.groups)
		}
	}
}

// What an image has in place of a list of users is read as none, or is refused: no link leads out of the image, and
// nothing is waited for.
func TestUserFilesOfHostileImages(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "passwd")
	write(t, outside, "web:x:0:0:::\n")
	missing := "unable to find user web"
	for name, c := range map[string]struct {
		make func(etc string) error
		err  string
	}{
		"nothing":           {func(string) error { return nil }, missing},
		"a directory":       {func(etc string) error { return os.Mkdir(etc+"/passwd", 0o755) }, missing},
		"a pipe":            {func(etc string) error { return unix.Mkfifo(etc+"/passwd", 0o644) }, missing},
		"a link to nothing": {func(etc string) error { return os.Symlink("none", etc+"/passwd") }, missing},
		"a link out":        {func(etc string) error { return os.Symlink(outside, etc+"/passwd") }, missing},
		"a link up and out": {func(etc string) error {
			return os.Symlink("../../../../.."+outside, etc+"/passwd")
		}, missing},
		"a link to itself":     {func(etc string) error { return os.Symlink("passwd", etc+"/passwd") }, "too many levels"},
		"a link below a file":  {func(etc string) error { return os.Symlink("hosts/x", etc+"/passwd") }, missing},
		"a link inside":        {func(etc string) error { return os.Symlink("/etc/real", etc+"/passwd") }, ""},
		"a link up and inside": {func(etc string) error { return os.Symlink("../../../etc/real", etc+"/passwd") }, ""},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "etc/hosts"), "")
		write(t, filepath.Join(root, "etc/real"), "web:x:0:0:::\n")
		if err := c.make(filepath.Join(root, "etc")); err != nil {
			t.Fatal(err)
		}
		b := bundle{User: "web", Spec: &specs.Spec{Process: &specs.Process{}}}
		err := resolveUser(&b, root)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
}

// An id that this user namespace does not have is told with those that it has.
func TestExists(t *testing.T) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	if err := exists("uid_map", 0); err != nil && strings.HasPrefix(strings.TrimSpace(string(text)), "0 ") {
		t.Error(err)
	}
	err = exists("uid_map", maxID+1)
	if err == nil || !strings.Contains(err.Error(), "the id 4294967295 does not exist") {
		t.Errorf("%v", err)
	}
	if err := exists("none_map", 0); err == nil {
		t.Error("there is no such map")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
