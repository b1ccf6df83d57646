package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/apiserver/store/seal"
	"monoplane.dev/apiserver/store/watchcache"
	"monoplane.dev/codec/wire"
	"monoplane.dev/object"
)

// A value is
//
//	format (1 byte) | sum (4) | writer (8) | the object in protobuf, without its resourceVersion, sealed or not
//
// sum is the CRC-32C of the key and what follows the writer: etcd's database has no checksums of its own. writer is
// unique for each attempt to write, so that the store recognises its own writes when they come back through the
// watch and need not decode them.
const (
	formatPlain = 1
	// formatSealed is of values that are encrypted by package seal.
	formatSealed = 2

	headerBytes = 1 + 4 + 8
)

var (
	errFormat = errors.New("unknown format of a stored value")
	errNoKeys = errors.New("the stored value is encrypted, and there are no keys")
)

// encode returns o's value with the writer left out. Equal objects have values of equal length; what older versions
// wrote may have maps in another order.
func encode(key string, o object.Object, table *crc32.Table) ([]byte, error) {
	const usual = 2 << 10
	value, err := wire.Append(make([]byte, headerBytes, usual), o)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}
	if o.GetMetadata().GetResourceVersion() != "" {
		value = append(value[:headerBytes], withoutRevision(value[headerBytes:])...)
	}
	value[0] = formatPlain
	binary.BigEndian.PutUint32(value[1:], sumOf([]byte(key), value[headerBytes:], table))
	return value, nil
}

// seal returns an encoded value as it is stored: encrypted, if the kind's values are.
func (k *kind) seal(key string, value []byte) []byte {
	if k.keys == nil {
		return value
	}
	sealed := make([]byte, headerBytes, len(value)+seal.Overhead)
	sealed = k.keys.Seal(sealed, key, value[headerBytes:])
	sealed[0] = formatSealed
	binary.BigEndian.PutUint32(sealed[1:], sumOf([]byte(key), sealed[headerBytes:], k.table))
	return sealed
}

// stale says whether a value is to be written again, because it is not encrypted as it would be now.
func (k *kind) stale(value []byte) bool {
	if k.keys == nil || len(value) < headerBytes {
		return false
	}
	id, ok := seal.SealedBy(value[headerBytes:])
	return value[0] != formatSealed || !ok || id != k.keys.Current()
}

// plainSize is how long a stored value is when it is not encrypted: equal objects have equal ones.
func plainSize(value []byte) int {
	if len(value) > headerBytes && value[0] == formatSealed {
		return len(value) - seal.Overhead
	}
	return len(value)
}

func setWriter(value []byte, writer uint64) { binary.BigEndian.PutUint64(value[5:], writer) }

func writerOf(value []byte) uint64 {
	if len(value) < headerBytes {
		return 0
	}
	return binary.BigEndian.Uint64(value[5:])
}

func sumOf(key, payload []byte, table *crc32.Table) uint32 {
	return crc32.Update(crc32.Checksum(key, table), table, payload)
}

// withoutRevision cuts metadata.resourceVersion out of an encoded object. The object itself must not be touched:
// it may be shared.
func withoutRevision(b []byte) []byte {
	const metadataField, revisionField = 1, 6
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		num, typ, tag := protowire.ConsumeTag(b)
		n := protowire.ConsumeFieldValue(num, typ, b[tag:])
		if num != metadataField || typ != protowire.BytesType {
			out = append(out, b[:tag+n]...)
			b = b[tag+n:]
			continue
		}
		meta, _ := protowire.ConsumeBytes(b[tag:])
		b = b[tag+n:]
		kept := make([]byte, 0, len(meta))
		for len(meta) > 0 {
			num, typ, tag := protowire.ConsumeTag(meta)
			n := tag + protowire.ConsumeFieldValue(num, typ, meta[tag:])
			if num != revisionField {
				kept = append(kept, meta[:n]...)
			}
			meta = meta[n:]
		}
		out = protowire.AppendTag(out, metadataField, protowire.BytesType)
		out = protowire.AppendBytes(out, kept)
	}
	return out
}

// check verifies a value's checksum and returns what follows its header.
func check(key, value []byte, table *crc32.Table) ([]byte, error) {
	if len(value) < headerBytes || value[0] != formatPlain && value[0] != formatSealed {
		return nil, fmt.Errorf("%s: %w", key, errFormat)
	}
	payload := value[headerBytes:]
	if sumOf(key, payload, table) != binary.BigEndian.Uint32(value[1:]) {
		return nil, fmt.Errorf("%s: the stored value is damaged", key)
	}
	return payload, nil
}

// VerifyValue is how an embedded etcd checks the data before it starts or restores it. Values of other formats are for
// the version check to refuse.
func VerifyValue(key, value []byte) error {
	name := string(key)
	switch {
	case !strings.HasPrefix(name, root) || name == versionKey || name == sealKey || len(value) == 0:
		return nil
	case value[0] != formatPlain && value[0] != formatSealed:
		return nil
	}
	_, err := check(key, value, crc32.MakeTable(crc32.Castagnoli)) // made once, however often it is asked for
	return err
}

// decode returns the object in value.
func (k *kind) decode(key string, value []byte, revision int64) (*watchcache.Item, error) {
	payload, err := check([]byte(k.prefix+key), value, k.table)
	if err == nil && value[0] == formatSealed {
		payload, err = k.open(k.prefix+key, payload)
	}
	if err != nil {
		return nil, err
	}
	o := k.res.Kind.New()
	if err := proto.Unmarshal(payload, o); err != nil {
		return nil, fmt.Errorf("decode %s%s: %w", k.prefix, key, err)
	}
	setRevision(o, revision)
	k.intern(o, nil)
	return &watchcache.Item{Key: key, Object: o, Revision: revision, Size: plainSize(value)}, nil
}

func (k *kind) open(key string, sealed []byte) ([]byte, error) {
	if k.keys == nil {
		return nil, fmt.Errorf("%s: %w", key, errNoKeys)
	}
	payload, err := k.keys.Open(key, sealed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return payload, nil
}

// setRevision writes o's resourceVersion. o must not be shared yet.
func setRevision(o object.Object, revision int64) {
	meta := o.GetMetadata()
	if meta == nil {
		meta = &metav1.ObjectMeta{}
		o.SetMetadata(meta)
	}
	meta.ResourceVersion = strconv.FormatInt(revision, 10)
}
