package store

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// ListOptions select objects and the revision at which they are read (OBJ-6).
type ListOptions struct {
	// Namespace to list; empty for all.
	Namespace string
	// Label and Field select; nil selects all.
	Label labels.Selector
	Field fields.Selector
	// ResourceVersion: "" is the newest state, "0" any, otherwise as ResourceVersionMatch says.
	ResourceVersion string
	// ResourceVersionMatch is "", "Exact" or "NotOlderThan" (the meaning of "" without a limit).
	ResourceVersionMatch string
	// Limit is the most objects to return; 0 for all.
	Limit int64
	// Continue is the token of an earlier answer.
	Continue string
}

// WatchOptions select what a watcher sees and from where on (OBJ-7).
type WatchOptions struct {
	// Namespace to watch; empty for all.
	Namespace string
	// Label and Field select; nil selects all.
	Label labels.Selector
	Field fields.Selector
	// ResourceVersion is the revision after which events are wanted. "" and "0" begin with every object as ADDED.
	ResourceVersion string
	// SendInitialEvents begins with every object as ADDED, not older than ResourceVersion, and, with
	// AllowBookmarks, a bookmark that says that these are complete.
	SendInitialEvents bool
	// AllowBookmarks asks for bookmarks from time to time.
	AllowBookmarks bool
}
