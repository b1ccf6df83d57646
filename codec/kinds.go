package codec

import (
	"fmt"
	"strings"

	"monoplane.dev/object"
)

// Kinds finds kinds by name. It never changes.
type Kinds struct {
	all        []*object.Kind
	byKind     map[name]*object.Kind
	byResource map[name]*object.Kind
}

// name is a kind or a resource within a version of a group.
type name struct {
	group, version, name string
}

// NewKinds returns the kinds for lookup. It fails when two share a name.
func NewKinds(kinds ...*object.Kind) (*Kinds, error) {
	k := &Kinds{
		all:        kinds,
		byKind:     make(map[name]*object.Kind, len(kinds)),
		byResource: make(map[name]*object.Kind, len(kinds)),
	}
	for _, kind := range kinds {
		byKind := name{kind.Group, kind.Version, kind.Kind}
		byResource := name{kind.Group, kind.Version, kind.Plural}
		if k.byKind[byKind] != nil || k.byResource[byResource] != nil {
			return nil, fmt.Errorf("two kinds are called %s of %s", kind.Kind, kind.APIVersion())
		}
		k.byKind[byKind] = kind
		k.byResource[byResource] = kind
	}
	return k, nil
}

// All returns the kinds in the order they were given. It must not be changed.
func (k *Kinds) All() []*object.Kind { return k.all }

// Kind finds a kind by group, version and kind, such as "", "v1", "Pod". Nil when there is none.
func (k *Kinds) Kind(group, version, kind string) *object.Kind {
	return k.byKind[name{group, version, kind}]
}

// Resource finds a kind by group, version and plural, such as "", "v1", "pods". Nil when there is none.
func (k *Kinds) Resource(group, version, plural string) *object.Kind {
	return k.byResource[name{group, version, plural}]
}

// SplitAPIVersion returns the group and version of an apiVersion, such as "v1" or "coordination.k8s.io/v1".
func SplitAPIVersion(apiVersion string) (group, version string) {
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		return "", group
	}
	return group, version
}
