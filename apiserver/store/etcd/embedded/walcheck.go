package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// walState is what a sound write-ahead log holds.
type walState struct {
	// first and last are the indexes of the first and last entry in the files; 0 when there is none.
	first, last uint64
	// snapshot is the index of the newest committed snapshot record, from which etcd replays.
	snapshot uint64
	commit   uint64
}

// checkWAL reads the whole log in dir and refuses what etcd would take for its end although it is not:
// etcd stops reading at the first zero or half-written record, which is right after a power failure in the
// middle of a write, but loses acknowledged entries when bytes further up were destroyed.
func checkWAL(dir string) (walState, error) {
	entries, err := os.ReadDir(dir) // not a pattern, in which brackets of the directory's name would mean something
	if err != nil {
		return walState{}, err
	}
	var names []string
	for _, e := range entries { // sorted by name
		if strings.HasSuffix(e.Name(), ".wal") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	if len(names) == 0 {
		return walState{}, fmt.Errorf("the log in %s is damaged: it has no files", dir)
	}
	readers := make([]fileutil.FileReader, 0, len(names))
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return walState{}, err
		}
		defer f.Close()
		readers = append(readers, fileutil.NewFileReader(f))
	}
	dec := wal.NewDecoder(readers...)
	st, err := readWAL(dec)
	last := names[len(names)-1]
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
	case err != nil:
		return st, fmt.Errorf("the log in %s is damaged: %w", dir, err)
	}
	// LastOffset counts in the file that was read last, so it is meaningful only if that is the newest one.
	lost, err := acknowledgedAfter(last, dec.LastOffset(), st.last)
	if err != nil {
		return st, err
	}
	if lost > 0 {
		return st, fmt.Errorf("the log %s is damaged at byte %d: acknowledged writes up to entry %d follow the gap",
			last, dec.LastOffset(), lost)
	}
	return st, nil
}

func readWAL(dec wal.Decoder) (walState, error) {
	var st walState
	var snapshots []uint64
	var rec walpb.Record
	var err error
	for err = dec.Decode(&rec); err == nil; err = dec.Decode(&rec) {
		switch rec.GetType() {
		case wal.EntryType:
			var e raftpb.Entry
			if err := proto.Unmarshal(rec.Data, &e); err != nil {
				return st, err
			}
			if st.first == 0 {
				st.first = e.GetIndex()
			} else if e.GetIndex() > st.last+1 {
				return st, fmt.Errorf("entry %d is followed by entry %d", st.last, e.GetIndex())
			}
			st.last = e.GetIndex()
		case wal.StateType:
			var hs raftpb.HardState
			if err := proto.Unmarshal(rec.Data, &hs); err != nil {
				return st, err
			}
			st.commit = hs.GetCommit()
		case wal.SnapshotType:
			var s walpb.Snapshot
			if err := proto.Unmarshal(rec.Data, &s); err != nil {
				return st, err
			}
			snapshots = append(snapshots, s.GetIndex())
		case wal.CrcType:
			if crc := dec.LastCRC(); crc != 0 && rec.Validate(crc) != nil {
				return st, wal.ErrCRCMismatch
			}
			dec.UpdateCRC(rec.GetCrc())
		}
	}
	for _, index := range snapshots {
		if index <= st.commit {
			st.snapshot = index
		}
	}
	return st, err
}

// acknowledgedAfter looks behind the end of the log for a record of the commit index. Such a record is written
// only once the entries that it names are safely on disk, so that one beyond lastEntry proves that a part of
// the log was destroyed. It returns the highest such index, or 0.
func acknowledgedAfter(name string, offset int64, lastEntry uint64) (uint64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	if offset < 0 || offset > int64(len(b)) {
		return 0, nil
	}
	b = bytes.TrimRight(b[offset:], "\x00")
	var lost uint64
	const frame = 8 // records are aligned to, and begin with, a length of 8 bytes
	for ; len(b) >= frame; b = b[frame:] {
		size := binary.LittleEndian.Uint64(b) & (1<<56 - 1)
		// A record of this kind is small; the limit keeps the scan fast.
		if size == 0 || size > 64 || size > uint64(len(b)-frame) {
			continue
		}
		var rec walpb.Record
		var hs raftpb.HardState
		if proto.Unmarshal(b[frame:frame+size], &rec) != nil || rec.GetType() != wal.StateType ||
			proto.Unmarshal(rec.Data, &hs) != nil || hs.GetTerm() == 0 {
			continue
		}
		if c := hs.GetCommit(); c > lastEntry {
			lost = max(lost, c)
		}
	}
	return lost, nil
}

// walExists reports whether dir holds a log.
func walExists(dir string) bool {
	names, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".wal") })
}
