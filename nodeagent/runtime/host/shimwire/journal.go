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

// Append adds a record to the journal, making the file when it is missing. With sync it returns only when the record
// is on the disk itself, and so survives the machine.
func Append(name string, record []byte, sync bool) error {
	if len(record) > MaxFrame {
		return ErrTooLarge
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	n, sum := uint32(len(record)), crc32.ChecksumIEEE(record)
	b := append(make([]byte, 0, journalHeader+len(record)),
		byte(n), byte(n>>8), byte(n>>16), byte(n>>24), byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
	size, err := f.Seek(0, io.SeekEnd)
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
	var last []byte
	for len(b) >= journalHeader {
		n, sum := le32(b), le32(b[4:])
		if uint64(n) > uint64(len(b)-journalHeader) {
			break
		}
		record := b[journalHeader : journalHeader+int(n)]
		if crc32.ChecksumIEEE(record) != sum {
			break
		}
		last, b = record, b[journalHeader+int(n):]
	}
	return last, nil
}
