package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// pageFile reads a bbolt file without trusting it. bbolt itself, when it opens a file, walks through all pages in a
// goroutine of its own and panics there if it finds one destroyed, which nobody could recover; so this walk
// comes first and checks all that bbolt takes for granted. The format:
//
//	page    id (8) | flags (2) | count (2) | overflow (4) | elements | keys and values
//	branch  position (4) | key size (4) | page id (8)
//	leaf    flags (4) | position (4) | key size (4) | value size (4)
//	bucket  root page id (8) | sequence (8) | a leaf page if the root page id is 0
//
// Positions count from the element's begin. An overflow is the number of pages that follow as one.
type pageFile struct {
	b        []byte
	pageSize int
	pages    uint64 // in use according to the header
	root     uint64
	seen     []bool
}

const (
	pageHead    = 16
	elementSize = 16
	bucketSize  = 16
	branchFlag  = 0x01
	leafFlag    = 0x02
	bucketFlag  = 0x01
)

// openPages checks the two header pages of the file b. bbolt would go on with one of them, one transaction back;
// but it writes each in one sector, so that a destroyed one is not the work of a power failure.
func openPages(b []byte) (*pageFile, error) {
	first, err := readHeader(b, 0)
	if err != nil {
		return nil, err
	}
	second, err := readHeader(b, first.pageSize)
	if err != nil {
		return nil, err
	}
	h := first
	if second.txid > first.txid {
		h = second
	}
	f := &pageFile{b: b, pageSize: h.pageSize, pages: h.pages, root: h.root}
	if have := uint64(len(b) / h.pageSize); h.pages > have {
		return nil, fmt.Errorf("it has %d pages, the header says %d", have, h.pages)
	}
	f.seen = make([]bool, h.pages)
	return f, nil
}

type header struct {
	pageSize          int
	root, pages, txid uint64
}

// readHeader reads the header page at offset: after the page's head magic number (4), version (4), page size
// (4), flags (4), root bucket (16), free list (8), pages (8), transaction (8), FNV-1a of all that (8).
func readHeader(b []byte, offset int) (header, error) {
	const size, magic = 64, 0xED0CDAED
	if offset+pageHead+size > len(b) {
		return header{}, fmt.Errorf("it ends after %d bytes", len(b))
	}
	meta := b[offset+pageHead:][:size]
	h := fnv.New64a()
	h.Write(meta[:56])
	if binary.NativeEndian.Uint32(meta) != magic || binary.NativeEndian.Uint64(meta[56:]) != h.Sum64() {
		return header{}, fmt.Errorf("the header at byte %d is destroyed", offset)
	}
	pageSize := int(binary.NativeEndian.Uint32(meta[8:]))
	if pageSize < 512 || pageSize > 1<<16 {
		return header{}, fmt.Errorf("the header at byte %d says a page size of %d", offset, pageSize)
	}
	return header{
		pageSize: pageSize, root: binary.NativeEndian.Uint64(meta[16:]),
		pages: binary.NativeEndian.Uint64(meta[40:]), txid: binary.NativeEndian.Uint64(meta[48:]),
	}, nil
}

// page returns page id with its overflow. Each may be reached once.
func (f *pageFile) page(id uint64) ([]byte, error) {
	if id >= f.pages {
		return nil, fmt.Errorf("page %d is behind the end", id)
	}
	p := f.b[id*uint64(f.pageSize):]
	overflow := uint64(binary.NativeEndian.Uint32(p[12:]))
	if got := binary.NativeEndian.Uint64(p); got != id || id+overflow >= f.pages {
		return nil, fmt.Errorf("page %d is destroyed", id)
	}
	for i := id; i <= id+overflow; i++ {
		if f.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		f.seen[i] = true
	}
	return p[:(overflow+1)*uint64(f.pageSize)], nil
}

// visitor gets every key of a bucket with its value, in order. bucket says that the value is a bucket.
type visitor func(key, value []byte, bucket bool) error

// walk visits the tree below page id, whose keys must be greater than *last.
func (f *pageFile) walk(id uint64, last *[]byte, visit visitor) error {
	p, err := f.page(id)
	if err != nil {
		return err
	}
	return f.walkPage(p, id, last, visit)
}

var errPage = errors.New("is destroyed")

func (f *pageFile) walkPage(p []byte, id uint64, last *[]byte, visit visitor) error {
	flags, count := binary.NativeEndian.Uint16(p[8:]), int(binary.NativeEndian.Uint16(p[10:]))
	if pageHead+count*elementSize > len(p) || flags != branchFlag && flags != leafFlag {
		return fmt.Errorf("page %d %w", id, errPage)
	}
	for i := range count {
		e := p[pageHead+i*elementSize:]
		if flags == branchFlag {
			key, _, ok := field(e, e[0:], e[4:], nil)
			// The smallest key of a child may have been deleted, so that only greater ones need be there.
			if !ok || bytes.Compare(key, *last) < 0 || i > 0 && bytes.Equal(key, *last) {
				return fmt.Errorf("page %d %w", id, errPage)
			}
			if err := f.walk(binary.NativeEndian.Uint64(e[8:]), last, visit); err != nil {
				return err
			}
			if bytes.Compare(*last, key) < 0 {
				return fmt.Errorf("page %d %w", id, errPage)
			}
			continue
		}
		key, value, ok := field(e, e[4:], e[8:], e[12:])
		if !ok || *last != nil && bytes.Compare(key, *last) <= 0 {
			return fmt.Errorf("page %d %w", id, errPage)
		}
		*last = key
		if err := visit(key, value, binary.NativeEndian.Uint32(e)&bucketFlag != 0); err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
	}
	return nil
}

// field cuts key and value out of what follows element e.
func field(e, pos, keySize, valueSize []byte) (key, value []byte, ok bool) {
	from := uint64(binary.NativeEndian.Uint32(pos))
	mid := from + uint64(binary.NativeEndian.Uint32(keySize))
	to := mid
	if valueSize != nil {
		to += uint64(binary.NativeEndian.Uint32(valueSize))
	}
	if from < elementSize || to > uint64(len(e)) {
		return nil, nil, false
	}
	return e[from:mid], e[mid:to], true
}

// bucket visits what is in a bucket, whose value is given.
func (f *pageFile) bucket(value []byte, visit visitor) error {
	if len(value) < bucketSize {
		return fmt.Errorf("a bucket %w", errPage)
	}
	var last []byte
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return f.walk(root, &last, visit)
	}
	if len(value) < bucketSize+pageHead {
		return fmt.Errorf("a bucket %w", errPage)
	}
	return f.walkPage(value[bucketSize:], 0, &last, visit)
}

// buckets visits what is in all buckets, those in first before the others; nested ones, which etcd does not use,
// count as damage.
func (f *pageFile) buckets(first []byte, visit func(name, key, value []byte) error) error {
	type named struct{ name, value []byte }
	var all []named
	var last []byte
	err := f.walk(f.root, &last, func(name, value []byte, bucket bool) error {
		if !bucket {
			return fmt.Errorf("the list of buckets %w", errPage)
		}
		if all = append(all, named{name, value}); bytes.Equal(name, first) {
			all[0], all[len(all)-1] = all[len(all)-1], all[0]
		}
		return nil
	})
	for i := 0; i < len(all) && err == nil; i++ {
		err = f.bucket(all[i].value, func(key, value []byte, nested bool) error {
			if nested {
				return fmt.Errorf("bucket %q %w", all[i].name, errPage)
			}
			return visit(all[i].name, key, value)
		})
	}
	return err
}
