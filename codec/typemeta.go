package codec

import (
	"fmt"
	"strings"
)

// KindError says that a body is of another kind than the one asked for.
type KindError struct {
	// APIVersion and Kind are the body's.
	APIVersion, Kind string
	// WantAPIVersion and WantKind are those asked for.
	WantAPIVersion, WantKind string
}

// Error returns both kinds.
func (e *KindError) Error() string {
	return fmt.Sprintf("the body is of kind %q in version %q, expected kind %q in version %q",
		e.Kind, e.APIVersion, e.WantKind, e.WantAPIVersion)
}

// matchKind compares what a body says with what was asked for. What it leaves out is taken as asked for.
// Options belong to every group, so that their apiVersion is that of whatever the client's request is about.
func matchKind(apiVersion, kind string, o Typed) error {
	wantVersion, wantKind := o.TypeMeta()
	if kind == "" {
		kind = wantKind
	}
	if apiVersion == "" || strings.HasSuffix(wantKind, "Options") {
		apiVersion = wantVersion
	}
	if apiVersion == wantVersion && kind == wantKind {
		return nil
	}
	return &KindError{APIVersion: apiVersion, Kind: kind, WantAPIVersion: wantVersion, WantKind: wantKind}
}
