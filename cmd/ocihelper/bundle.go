//go:build linux && cgo

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Names inside a bundle, which is a directory of the container's that only Monoplane can enter. The runtime writes
// bundle.json (package nodeagent/runtime/oci/spec has the same types) before it asks the shim to start.
const (
	bundleFile  = "bundle.json"
	processFile = "process.json" // The process as it was resolved against the image, for those that are run later.
	stateDir    = "state"        // libcontainer's.
	rootDir     = "rootfs"       // Where the root is mounted, in the helper's own mount namespace.
)

// bundle describes a container.
type bundle struct {
	Spec *specs.Spec
	// Layers are the directories of the image, the top one first, and Upper and Work those that take what the container
	// writes. Without Upper there is one layer, which is the root as it is.
	Layers      []string
	Upper, Work string
	// UserXattr is set where the layers were unpacked without the right to set trusted attributes.
	UserXattr bool
	// Users is the path of the pod's user namespace, whose ids the layers' files have in the container; empty for the
	// machine's. UIDs and GIDs are its ids.
	Users      string                 `json:",omitempty"`
	UIDs, GIDs []specs.LinuxIDMapping `json:",omitempty"`
	// User is the user as the image or the pod names it, "user", "uid", "user:group" or "uid:gid"; empty leaves that to
	// Spec.Process.User.
	User string
	// GroupsOf is a user, as in User but without a group, whose groups in the image's /etc/group the process has, too.
	GroupsOf string `json:",omitempty"`
	// StrictGroups leaves out the groups that the image's /etc/group gives the user.
	StrictGroups bool
	// Rootless is set where the helper has no rights over cgroups.
	Rootless bool
	// Shm is where the pod's shared memory is mounted in the namespace that the shim holds.
	Shm string
	// Shared are the mounts that go both ways: their sources are taken before the helper's mount namespace is cut off
	// from the machine's.
	Shared []int `json:",omitempty"`

	// Parts are the mounts, by their indices, of whose sources only the paths below them are wanted.
	Parts map[int]string `json:",omitempty"`
	// Volumes are the mounts that the image declares, by their indices, each with its empty directory.
	Volumes map[int]string `json:",omitempty"`
	// Images are the mounts whose sources are the files of images, by their indices.
	Images map[int]files `json:",omitempty"`

	clones []int // Of Shared, in its order.
}

// files are those of an image, to be mounted read-only.
type files struct {
	// Name is what users call it.
	Name string
	// Layers are its directories, the top one first. One alone is what to mount, as it is.
	Layers []string
}

// mount returns the mount with an index, which it got from the description of the container.
func (b *bundle) mount(i int) (*specs.Mount, error) {
	if i < 0 || i >= len(b.Spec.Mounts) {
		return nil, fmt.Errorf("the description of the container: there is no mount %d", i)
	}
	return &b.Spec.Mounts[i], nil
}

func readJSON(name string, into any) error {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("the description of the container: %w", err)
	}
	return nil
}

func writeJSON(name string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

func (c command) path(name string) string { return filepath.Join(c.bundle, name) }
