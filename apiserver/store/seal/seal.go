// Package seal encrypts values that are stored, with AES-256-GCM. Each value is encrypted with a key of its own, which
// goes with it, encrypted with one of the keys of a file:
//
//	id of the key (8 bytes) | nonce (12) | the value's key (32) and its tag (16) | the value | its tag (16)
//
// Both are bound to the name under which the value is stored, so that nobody who can write to the database can put one
// in the place of another. The id is a digest of the key: a wrong key is an unknown key.
//
// The file holds one key in each line. The first encrypts; the others are there to read what they have encrypted.
//
// Use: Ensure reads the file, or makes one; Seal and Open are for values; Rotate puts a new key in front.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"monoplane.dev/internal/datadir"
)

const (
	// FileName is the file of the keys in the data directory.
	FileName = "secrets.key"
	// Overhead is how many bytes longer a sealed value is.
	Overhead = idBytes + nonceBytes + keyBytes + tagBytes + tagBytes

	idBytes, nonceBytes, keyBytes, tagBytes = 8, 12, 32, 16
	// most is how many keys a file may have.
	most = 1000
)

// The errors of keys and values. Their texts name no key and no value.
var (
	// ErrMissing says that there is no file, although something is encrypted.
	ErrMissing = errors.New("the file with the keys of Secrets is missing")
	// ErrUnknown says that a value is encrypted with a key that the file does not hold.
	ErrUnknown = errors.New("the key with which it is encrypted is not among those of the file")
	// ErrDamaged says that a value is not what was encrypted under its name.
	ErrDamaged = errors.New("the encrypted value is damaged, or another's")
)

// ID tells one key from another. It is no secret.
type ID [idBytes]byte

// String returns the id as it is shown to people.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// key is one key of the file.
type key struct {
	id    ID
	bytes []byte
	aead  cipher.AEAD
}

func newKey(b []byte) (key, error) {
	block, err := aes.NewCipher(b)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, err
	}
	k := key{bytes: b, aead: aead}
	sum := sha256.Sum256(append([]byte("monoplane secrets key "), b...))
	copy(k.id[:], sum[:])
	return k, nil
}

// random makes a key of random bytes.
func random() (key, error) {
	b := make([]byte, keyBytes)
	rand.Read(b) // never fails
	return newKey(b)
}

// Keys are those of a file. They are safe for concurrent use.
type Keys struct {
	dir *datadir.Dir

	mu   sync.RWMutex
	keys []key // at least one
}

// Ensure reads the file in dir. Without one it makes one, unless used says that something is encrypted already: then
// the error is ErrMissing.
func Ensure(dir *datadir.Dir, used bool) (*Keys, error) {
	k := &Keys{dir: dir}
	text, err := dir.ReadSecret(FileName)
	switch {
	case errors.Is(err, fs.ErrNotExist) && used:
		return nil, fmt.Errorf("%w: put back %s, of which the original of these data has a copy",
			ErrMissing, filepath.Join(dir.Path(), FileName))
	case errors.Is(err, fs.ErrNotExist):
		first, err := random()
		if err != nil {
			return nil, err
		}
		return k, k.save([]key{first})
	case err != nil:
		return nil, err
	}
	if k.keys, err = parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir.Path(), FileName), err)
	}
	return k, nil
}

// Import writes a file that holds the keys in text, a copy of such a file.
func Import(dir *datadir.Dir, text []byte) error {
	keys, err := parse(text)
	if err != nil {
		return fmt.Errorf("the file of the keys of Secrets: %w", err)
	}
	return (&Keys{dir: dir}).save(keys)
}

const heading = `# The keys with which Secrets are encrypted in the database. The first one encrypts, the others read.
# Without this file Secrets cannot be read: keep a copy of it, and not beside copies of the database.
`

// parse reads a file.
func parse(text []byte) ([]key, error) {
	var keys []key
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		b, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil || len(b) != keyBytes {
			return nil, fmt.Errorf("line %d is no key of %d bytes in base64", n, keyBytes)
		}
		k, err := newKey(b)
		if err != nil {
			return nil, err
		}
		if keys = append(keys, k); len(keys) > most {
			return nil, fmt.Errorf("more than %d keys", most)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key in it")
	}
	return keys, nil
}

// save writes the file and uses its keys from then on.
func (k *Keys) save(keys []key) error {
	var text strings.Builder
	text.WriteString(heading)
	for _, key := range keys {
		text.WriteString(base64.StdEncoding.EncodeToString(key.bytes))
		text.WriteByte('\n')
	}
	if err := errors.Join(k.dir.Write(FileName, []byte(text.String())), k.dir.Sync()); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = keys
	return nil
}

// Rotate puts a new key in front of the others, and returns its id.
func (k *Keys) Rotate() (ID, error) {
	first, err := random()
	if err != nil {
		return ID{}, err
	}
	k.mu.RLock()
	keys := append([]key{first}, k.keys...)
	k.mu.RUnlock()
	if len(keys) > most {
		return ID{}, fmt.Errorf("%s holds %d keys already: remove the last ones, which nothing is encrypted with",
			FileName, most)
	}
	return first.id, k.save(keys)
}

// Current returns the id of the key that encrypts.
func (k *Keys) Current() ID {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.keys[0].id
}

// IDs returns the ids of all keys, that of the current one first.
func (k *Keys) IDs() []ID {
	k.mu.RLock()
	defer k.mu.RUnlock()
	ids := make([]ID, len(k.keys))
	for i := range k.keys {
		ids[i] = k.keys[i].id
	}
	return ids
}

func (k *Keys) find(id ID) (key, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, key := range k.keys {
		if key.id == id {
			return key, true
		}
	}
	return key{}, false
}

// Seal appends the sealed value to dst.
func (k *Keys) Seal(dst []byte, name string, value []byte) []byte {
	k.mu.RLock()
	outer := k.keys[0]
	k.mu.RUnlock()
	inner, err := random()
	if err != nil {
		panic(err) // a key of a constant length is no error
	}
	dst = append(dst, outer.id[:]...)
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	dst = append(dst, nonce...)
	dst = outer.aead.Seal(dst, nonce, inner.bytes, []byte(name))
	// The inner key encrypts nothing else, so that its nonce may be zero.
	return inner.aead.Seal(dst, make([]byte, nonceBytes), value, []byte(name))
}

// SealedBy returns the id of the key of a sealed value; ok is false when it is too short to be one.
func SealedBy(sealed []byte) (id ID, ok bool) {
	if len(sealed) < Overhead {
		return id, false
	}
	copy(id[:], sealed)
	return id, true
}

// Open returns the value that was sealed under name. Errors: ErrUnknown, ErrDamaged.
func (k *Keys) Open(name string, sealed []byte) ([]byte, error) {
	id, ok := SealedBy(sealed)
	if !ok {
		return nil, ErrDamaged
	}
	outer, ok := k.find(id)
	if !ok {
		return nil, fmt.Errorf("%w (%s)", ErrUnknown, id)
	}
	nonce, rest := sealed[idBytes:idBytes+nonceBytes], sealed[idBytes+nonceBytes:]
	b, err := outer.aead.Open(nil, nonce, rest[:keyBytes+tagBytes], []byte(name))
	if err != nil {
		return nil, ErrDamaged
	}
	inner, err := newKey(b)
	if err != nil {
		return nil, ErrDamaged
	}
	value, err := inner.aead.Open(nil, make([]byte, nonceBytes), rest[keyBytes+tagBytes:], []byte(name))
	if err != nil {
		return nil, ErrDamaged
	}
	return value, nil
}
