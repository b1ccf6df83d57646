package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"go.etcd.io/etcd/server/v3/storage/schema"
)

// dbState is what a sound database holds.
type dbState struct {
	// index is the last log entry that the database contains.
	index uint64
	// keys is whether anything was ever stored.
	keys bool
}

// checkDB walks through the whole database. verify is called for every stored value that is in use or kept as
// history. The walk ends after limit; what it has not seen by then is taken for sound.
func checkDB(path string, limit time.Duration, verify func(key, value []byte) error) (dbState, error) {
	st, err := walkDB(path, time.Now().Add(limit), verify)
	if err != nil && !errors.Is(err, errLimit) {
		return st, fmt.Errorf("the database %s is damaged: %w", path, err)
	}
	return st, nil
}

var errLimit = errors.New("time is up")

func walkDB(path string, deadline time.Time, verify func(key, value []byte) error) (st dbState, err error) {
	file, err := os.Open(path)
	if err != nil {
		return st, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return st, err
	}
	if info.Size() == 0 {
		return st, errors.New("it is empty")
	}
	b, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, syscall.Munmap(b)) }()
	f, err := openPages(b)
	if err != nil {
		return st, err
	}
	n := 0
	err = f.buckets(schema.Meta.Name(), func(bucket, key, value []byte) error {
		if n++; n%1024 == 0 && time.Now().After(deadline) {
			return errLimit
		}
		switch {
		case bytes.Equal(bucket, schema.Key.Name()):
			st.keys = true
			return checkKeyValue(key, value, verify)
		case bytes.Equal(bucket, schema.Meta.Name()) && bytes.Equal(key, schema.MetaConsistentIndexKeyName):
			if len(value) != 8 {
				return errors.New("the consistent index is malformed")
			}
			st.index = binary.BigEndian.Uint64(value)
		}
		return nil
	})
	return st, err
}

// checkKeyValue checks one revision of one key: its name is a revision, its content a key and a value.
func checkKeyValue(rev, b []byte, verify func(key, value []byte) error) error {
	const revLen, tombstoneLen = 17, 18
	if len(rev) != revLen && len(rev) != tombstoneLen || rev[8] != '_' {
		return fmt.Errorf("revision %x is malformed", rev)
	}
	var key, value []byte
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("revision %x: %w", rev, protowire.ParseError(n))
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return fmt.Errorf("revision %x: %w", rev, protowire.ParseError(n))
		}
		if typ == protowire.BytesType {
			field, _ := protowire.ConsumeBytes(b)
			switch num {
			case 1:
				key = field
			case 5:
				value = field
			}
		}
		b = b[n:]
	}
	if verify == nil || len(rev) == tombstoneLen || len(key) == 0 {
		return nil
	}
	return verify(key, value)
}
