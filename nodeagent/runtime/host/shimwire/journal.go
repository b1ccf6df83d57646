package shimwire

import (
	"errors"
	"hash/crc32"
	"io"
	"os"
)

const (
	journalHeader = 8 // Length and CRC-32 (IEEE) of the record.
	maxJournal    = MaxFrame + journalHeader
)

// ErrTooLarge says that a record or a frame would be larger than its reader takes.
var ErrTooLarge = errors.New("more than 8 MiB: too large for a record")

// Append adds a record to the journal, making the file when it is missing. What a power failure has left behind the
// last whole record is dropped, which would hide the new one. With sync it returns only when the record
// is on the disk itself, and so survives the machine.
func Append(name string, record []byte, sync bool) error {
	if len(record) > MaxFrame {
		return ErrTooLarge
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	n, sum := uint32(len(record)), crc32.ChecksumIEEE(record)
	b := append(make([]byte, 0, journalHeader+len(record)),
		byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
	size, err := mend(f)
	if err == nil {
		_, err = f.Write(append(b, record...))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err != nil {
		err = errors.Join(err, f.Truncate(size)) // Half a record would hide every later one.
	}
	return errors.Join(err, f.Close())
}

// mend cuts off what is broken at the end of a journal, and returns its size.
func mend(f *os.File) (int64, error) {
	b, err := io.ReadAll(io.LimitReader(f, maxJournal+1))
	if err != nil {
		return 0, err
	}
	if len(b) > maxJournal {
		return f.Seek(0, io.SeekEnd)
	}
	_, end := last(b)
	if end < len(b) {
		err = f.Truncate(int64(end))
	}
	return int64(end), err
}

// Last returns the newest whole record, or nil when there is none or no file.
func Last(name string) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return nil, err
	}
	record, _ := last(b)
	return record, nil
}

// last returns the newest whole record of a journal, nil for none, and where it ends.
func last(b []byte) (newest []byte, end int) {
	for len(b)-end >= journalHeader {
		n, sum := le32(b[end:]), le32(b[end+4:])
		if uint64(n) > uint64(len(b)-end-journalHeader) {
			break
		}
		record := b[end+journalHeader : end+journalHeader+int(n)]
		if crc32.ChecksumIEEE(record) != sum {
			break
		}
		newest, end = record, end+journalHeader+int(n)
	}
	return newest, end
}
