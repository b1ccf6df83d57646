// Package intern lets objects share equal parts: the containers of all pods of one template, labels, tolerations,
// conditions that were set in the same second. Objects are immutable, so that nobody can tell; ten thousand small
// pods take 2 KB each instead of 6.
//
// A pool is bounded and holds what it has seen lately; what it has forgotten is simply not shared with newcomers.
// Parts are equal when their deterministic protobuf encodings are. All functions are safe for concurrent use.
//
//	spec.Containers = ...               // owned by the caller, not yet seen by anybody else
//	intern.Each(pool, spec.Containers, nil)  // now shared, and never to be changed
package intern

import (
	"encoding/binary"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"monoplane.dev/codec/wire"
)

const (
	// generation is how many parts, and generationBytes how many bytes of them, a pool takes in before it forgets
	// those that were not met again.
	generation      = 4096
	generationBytes = 2 << 20
	// largest is the encoded size of the largest part worth looking at.
	largest = 16 << 10
)

// Pool holds parts. The zero value is empty and ready for use.
type Pool struct {
	mu sync.Mutex
	// young are parts met since the last change of generations, old those of the one before.
	young, old map[key]any
	bytes      int
	scratch    sync.Pool // of *[]byte
}

type key struct {
	kind protoreflect.FullName // empty for maps
	text string
}

// Message returns m, or the part that is equal to it and was there before.
func Message[T proto.Message](p *Pool, m T) T { return Compound(p, m, nil) }

// Compound is Message for a part that is made of parts: when it is new, share is called to share those first.
func Compound[T proto.Message](p *Pool, m T, share func(*Pool, T)) T {
	if !m.ProtoReflect().IsValid() {
		return m
	}
	b := p.buffer()
	defer p.scratch.Put(b)
	out, err := wire.Append((*b)[:0], m)
	*b = out
	if err != nil || len(out) > largest {
		if share != nil {
			share(p, m)
		}
		return m // text that is not UTF-8, which validation is to refuse
	}
	kind := m.ProtoReflect().Descriptor().FullName()
	if share != nil {
		if have, ok := p.find(kind, out); ok {
			return have.(T)
		}
		share(p, m)
	}
	return p.get(kind, out, m).(T)
}

// Each replaces the elements of a slice that the caller owns. If it is the very slice that an object in use has, which
// is given as used, it has been through here, and others read it: it stays as it is.
func Each[T proto.Message](p *Pool, s, used []T) {
	if len(s) > 0 && len(used) > 0 && &s[0] == &used[0] {
		return
	}
	for i := range s {
		s[i] = Message(p, s[i])
	}
}

// text is the kind of texts among the parts.
const text protoreflect.FullName = "string"

// Texts replaces texts that few values account for, such as a namespace or a phase.
func Texts(p *Pool, fields ...*string) {
	for _, f := range fields {
		if *f != "" && len(*f) <= largest {
			*f = p.get(text, []byte(*f), *f).(string)
		}
	}
}

// Map returns m, or the map that is equal to it and was there before.
func Map(p *Pool, m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	var few [16]string
	names := few[:0]
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	b := p.buffer()
	defer p.scratch.Put(b)
	out := (*b)[:0]
	for _, k := range names {
		out = append(binary.AppendUvarint(out, uint64(len(k))), k...)
		out = append(binary.AppendUvarint(out, uint64(len(m[k]))), m[k]...)
	}
	*b = out
	if len(out) > largest {
		return m
	}
	return p.get("", out, m).(map[string]string)
}

func (p *Pool) buffer() *[]byte {
	if b, ok := p.scratch.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

func (p *Pool) find(kind protoreflect.FullName, text []byte) (any, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, ok := p.young[key{kind, string(text)}]
	return have, ok
}

// get returns the part that is filed under text, or files this one.
func (p *Pool) get(kind protoreflect.FullName, text []byte, part any) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have, ok := p.young[key{kind, string(text)}]; ok {
		return have
	}
	k := key{kind, string(text)}
	if have, ok := p.old[k]; ok {
		part = have
	}
	if p.young == nil || len(p.young) >= generation || p.bytes >= generationBytes {
		p.old, p.young, p.bytes = p.young, make(map[key]any), 0
	}
	p.young[k] = part
	p.bytes += len(text)
	return part
}
