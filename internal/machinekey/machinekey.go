// Package machinekey keeps the key by which a node name belongs to one machine (spec: NODE-7), in the machine's data
// directory, and notices when that directory is a copy (spec: SAFE-5).
//
// With the key the file says where it is: which file of the file system it is itself, and on which machine. Neither
// can be carried along by cp -a, tar, rsync, a restored backup or snapshot, or a disk that is put into another
// machine, so that the key of a copy is not taken for the machine's. A copy gets a key of its own. Moving the
// directory within its file system, renaming it, and restarting the machine keep it what it is.
//
// What cannot be noticed is a copy of the whole file system, block by block, that is used on the same machine, or on
// one whose machine-id and product UUID are the same (the latter is read by root only). Subvolumes of Btrfs, ZFS and
// bcachefs are told apart.
package machinekey

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"monoplane.dev/internal/datadir"
)

// Name is the file that holds the key.
const Name = "machine-key"

// Key is a machine's key with what is known about it.
type Key struct {
	// Value is the key: random, and no secret, since it is shown on nodes and pods.
	Value string `json:"key"`
	// Owner marks the machine's pods in a container runtime that others use too. It is Value, or the key of the dead
	// machine whose pods have been taken over.
	Owner string `json:"owner"`
	// Copied says why the key that was in the directory is not this machine's; empty when there was none, or it is.
	Copied string `json:"copied,omitempty"`
	// OriginalDead says that somebody has confirmed, for the next start only, that what the data tell of does not run.
	OriginalDead bool `json:"originalDead,omitempty"`
	// Place is where the file was written.
	Place place `json:"place"`
}

// place is where a key is. Two places are the same only if all of it is.
type place struct {
	// File is the file's inode number, the time at which it came to be and, where a file system has volumes, the volume.
	File string `json:"file"`
	// Machine and Product are hashes of the machine-id and of the firmware's product UUID; empty when they are unknown.
	Machine string `json:"machine,omitempty"`
	Product string `json:"product,omitempty"`
}

// Ensure returns the key of the machine. It makes a new one when there is none, or the one there is not this
// machine's, or is damaged; fresh reports that.
func Ensure(dir *datadir.Dir) (key Key, fresh bool, err error) {
	key, why, err := read(dir)
	if err != nil || key.Value != "" {
		return key, false, err
	}
	value := rand.Text()
	key, err = Save(dir, Key{Value: value, Owner: value, Copied: why})
	return key, true, err
}

// Copied says why the key in the directory is not this machine's, as Ensure would find; empty when it is, or there is
// none. It changes nothing.
func Copied(dir *datadir.Dir) (why string, err error) {
	_, why, err = read(dir)
	return why, err
}

// Save writes the key, so that the directory is where it belongs from now on, and returns what it has written.
func Save(dir *datadir.Dir, key Key) (Key, error) {
	err := dir.Replace(Name, datadir.Flushed, func(f *os.File) (err error) {
		if key.Place, err = placeOf(f); err != nil {
			return err
		}
		text, err := json.Marshal(key)
		if err != nil {
			return err
		}
		_, err = f.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		return Key{}, err
	}
	return key, dir.Sync()
}

// read returns the key, or why there is none that counts.
func read(dir *datadir.Dir) (key Key, why string, err error) {
	text, err := dir.ReadSecret(Name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Key{}, "", nil
	case errors.Is(err, datadir.ErrTooLarge):
		return Key{}, damaged, nil
	case err != nil:
		return Key{}, "", err
	}
	if bare := strings.TrimSpace(string(text)); len(bare) == len(rand.Text()) && !strings.HasPrefix(bare, "{") {
		return Key{}, "it was last used by a version that did not write down where it is", nil
	}
	if json.Unmarshal(text, &key) != nil || key.Value == "" || key.Owner == "" || key.Place.File == "" {
		return Key{}, damaged, nil
	}
	f, err := dir.OpenFile(Name, os.O_RDONLY)
	if err != nil {
		return Key{}, "", err
	}
	defer f.Close()
	here, err := placeOf(f)
	if err != nil {
		return Key{}, "", fmt.Errorf("%s: %w", filepath.Join(dir.Path(), Name), err)
	}
	if why := key.Place.differs(here); why != "" {
		return Key{}, why, nil
	}
	return key, "", nil
}

const damaged = "its " + Name + " is damaged"

// differs says why here is another place; empty when it is the same.
func (p place) differs(here place) string {
	switch {
	case p.Machine != here.Machine:
		return "it comes from another machine (the machine-id differs)"
	case p.Product != here.Product:
		return "it comes from another machine (the product UUID of the firmware differs)"
	case p.File != here.File:
		return "it has been copied, restored, or moved to another file system"
	default:
		return ""
	}
}
