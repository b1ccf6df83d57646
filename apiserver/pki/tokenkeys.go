package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"monoplane.dev/internal/datadir"
)

const (
	// MaxTokenLife is the longest life of a token that a key signs: so long a key verifies after it has been replaced.
	MaxTokenLife = 365 * 24 * time.Hour
	// tokenKeyLife is how long a key signs.
	tokenKeyLife = 90 * 24 * time.Hour

	tokenKeysFile = "token.keys"
	signingBlock  = "EC PRIVATE KEY"
	retiredBlock  = "PUBLIC KEY"
	// headerMade and headerRetired say since when a key signs, and when it ceased to.
	headerMade    = "Made"
	headerRetired = "Retired"
)

// TokenKeys are the keys of the tokens of service accounts, in a file of their own:
//
//	(made) --> signs --90 days--> verifies --a year: the last token that it signed has expired--> verifies for Secrets
//
// Of a key that only verifies the private part is forgotten at once. The tokens that Secrets hold have no end of their
// own: for those the public part is kept for ever. Make them with EnsureTokenKeys. They are safe for
// concurrent use.
type TokenKeys struct {
	dir *datadir.Dir
	now func() time.Time
	log *slog.Logger

	mu      sync.Mutex
	signing *ecdsa.PrivateKey
	made    time.Time
	retired []retiredKey
}

// retiredKey is a key that has signed.
type retiredKey struct {
	public *ecdsa.PublicKey
	since  time.Time
}

// EnsureTokenKeys loads the keys from the directory at path, or makes the first. A key that has signed for long enough
// is replaced; KeepRotated does so later.
func EnsureTokenKeys(path string, opts Options) (*TokenKeys, error) {
	k := &TokenKeys{now: opts.Now, log: opts.Logger}
	if k.now == nil {
		k.now = time.Now
	}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if k.dir, err = ensureDir(path); err != nil {
		return nil, err
	}
	if err := k.ensure(); err != nil {
		return nil, err
	}
	return k, nil
}

// Signing returns the key that signs.
func (k *TokenKeys) Signing() *ecdsa.PrivateKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.signing
}

// Verifying returns all keys with which a token can be signed that has not expired, the one that signs first.
func (k *TokenKeys) Verifying() []*ecdsa.PublicKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	return k.keys(func(r retiredKey) bool { return now.Before(r.since.Add(MaxTokenLife + backdate)) })
}

// All returns all keys that have signed, the one that signs first.
func (k *TokenKeys) All() []*ecdsa.PublicKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys(func(retiredKey) bool { return true })
}

func (k *TokenKeys) keys(wanted func(retiredKey) bool) []*ecdsa.PublicKey {
	keys := []*ecdsa.PublicKey{&k.signing.PublicKey}
	for _, r := range k.retired {
		if wanted(r) {
			keys = append(keys, r.public)
		}
	}
	return keys
}

// KeepRotated replaces the key that signs when it is time, until ctx ends, and returns its error. What goes wrong is
// logged, and tried again in an hour.
func (k *TokenKeys) KeepRotated(ctx context.Context) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !k.due() {
			continue
		}
		if err := k.ensure(); err != nil {
			k.log.Error("cannot replace the key of the service accounts' tokens; trying again in an hour", "error", err)
			continue
		}
		k.log.Info("replaced the key of the service accounts' tokens")
	}
}

// due says whether the key has signed for long enough, or is from the future: the clock was wrong when it was made.
func (k *TokenKeys) due() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dueLocked()
}

func (k *TokenKeys) dueLocked() bool {
	now := k.now()
	return now.After(k.made.Add(tokenKeyLife)) || now.Before(k.made.Add(-backdate))
}

// ensure loads the file, makes it, or replaces the key in it.
func (k *TokenKeys) ensure() error {
	unlock, err := lock(k.dir)
	if err != nil {
		return err
	}
	defer unlock()
	have, err := exists(k.dir, tokenKeysFile)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if have {
		if err := k.load(); err != nil {
			return err
		}
		if !k.dueLocked() {
			return nil
		}
	}
	return k.replace()
}

// load reads the file.
func (k *TokenKeys) load() error {
	data, err := readFile(k.dir, tokenKeysFile, k.dir.ReadSecret)
	if err != nil {
		return err
	}
	unusable := func(what string) error {
		return fmt.Errorf("pki: %s is unusable: %s; restore it from a backup, or remove it to start with a new key (tokens "+
			"of service accounts that were issued before are then refused)", filepath.Join(k.dir.Path(), tokenKeysFile), what)
	}
	var signing *ecdsa.PrivateKey
	var made time.Time
	var retired []retiredKey
	for len(bytes.TrimSpace(data)) > 0 {
		block, rest := pem.Decode(data)
		if block == nil {
			return unusable("it is not a series of PEM blocks")
		}
		data = rest
		switch {
		case block.Type == signingBlock && signing == nil:
			if signing, err = x509.ParseECPrivateKey(block.Bytes); err != nil || signing.Curve != elliptic.P256() {
				return unusable("its first block holds no key of the curve P-256")
			}
			if made, err = time.Parse(time.RFC3339, block.Headers[headerMade]); err != nil {
				return unusable("its first block does not say when the key was made")
			}
		case block.Type == retiredBlock && signing != nil:
			parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
			public, ok := parsed.(*ecdsa.PublicKey)
			if err != nil || !ok || public.Curve != elliptic.P256() {
				return unusable("a block holds no public key of the curve P-256")
			}
			since, err := time.Parse(time.RFC3339, block.Headers[headerRetired])
			if err != nil {
				return unusable("a block does not say since when the key is not used any more")
			}
			retired = append(retired, retiredKey{public, since})
		default:
			return unusable("it must be one block " + signingBlock + ", followed by blocks " + retiredBlock)
		}
	}
	if signing == nil {
		return unusable("it is empty")
	}
	k.signing, k.made, k.retired = signing, made, retired
	return nil
}

// replace makes a key, in the place of the one that signs if there is one, and writes the file.
func (k *TokenKeys) replace() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("pki: make a key: %w", err)
	}
	now := k.now()
	var retired []retiredKey
	if k.signing != nil {
		retired = append(retired, retiredKey{&k.signing.PublicKey, now})
	}
	retired = append(retired, k.retired...)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("pki: encode a key: %w", err)
	}
	file := timedBlock(signingBlock, headerMade, now, der)
	for _, r := range retired {
		if der, err = x509.MarshalPKIXPublicKey(r.public); err != nil {
			return fmt.Errorf("pki: encode a key: %w", err)
		}
		file = append(file, timedBlock(retiredBlock, headerRetired, r.since, der)...)
	}
	if err := writeFile(k.dir, tokenKeysFile, file); err != nil {
		return err
	}
	if err := k.dir.Sync(); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	k.signing, k.made, k.retired = key, now, retired
	return nil
}

// timedBlock is a PEM block with a header that holds a time.
func timedBlock(kind, header string, at time.Time, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{
		Type: kind, Headers: map[string]string{header: at.UTC().Format(time.RFC3339)}, Bytes: der,
	})
}
