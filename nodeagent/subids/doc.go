// Package subids does for an agent without root what takes the ids that /etc/subuid and /etc/subgid give to its user:
// it unpacks layers whose files belong to several users, copies them, gives volumes to groups, and measures what users
// of containers have closed to others.
//
// Each is done by a process of this program that lives for just that, as root of a user namespace with these ids
// (package internal/userids), which are those that pods have, too. It begins once its ids are there, ends with what it
// was asked for, and is killed when who has started it dies. What the same functions of the packages unpack,
// ownership and diskuse guarantee holds here.
package subids

import (
	"errors"

	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/images/unpack"
)

// ErrIDs is that of ids which cannot be had: nothing was begun.
var ErrIDs = errors.New("the ids of /etc/subuid and /etc/subgid cannot be used")

// task is what a process is asked for, one of its fields, as a line of JSON.
type task struct {
	Tar   *tarTask   `json:",omitempty"`
	Merge *mergeTask `json:",omitempty"`
	Top   *topTask   `json:",omitempty"`
	Upper *upperTask `json:",omitempty"`
	Give  *giveTask  `json:",omitempty"`
	// Measure is a directory.
	Measure string `json:",omitempty"`
}

type tarTask struct {
	Dir     string
	Options unpack.Options
}

type mergeTask struct {
	To      string
	Layers  []string
	Options unpack.MergeOptions
}

type topTask struct {
	To      string
	Layers  []unpack.Layer
	Options unpack.MergeOptions
}

type upperTask struct{ Dir, Layer string }

type giveTask struct {
	Dir        string
	Group      int64
	ForReading bool
	Policy     string
}

// answer is what the process says when it ends, as JSON. Kind and Errno say which errors there are in the text.
type answer struct {
	Stats unpack.Stats
	Size  diskuse.Size
	Error string `json:",omitempty"`
	Kind  int    `json:",omitempty"`
	Errno uint   `json:",omitempty"`
}
