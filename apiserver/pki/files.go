package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	dirMode    = 0o700
	secretMode = 0o600
	// maxFile is the most bytes of a file that is read.
	maxFile = 1 << 20
)

// damaged says that a file cannot be used, and what to do.
func damaged(path, what string) error {
	return fmt.Errorf("pki: %s is unusable: %s; restore it from a backup, or remove the directory %s to start with "+
		"a new authority (all kubeconfigs then need to be replaced)", path, what, filepath.Dir(path))
}

func ensureDir(dir string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("pki: make directory: %w", err)
	}
	return checkMode(dir, dirMode)
}

// checkMode refuses a file or directory that others can use, or that belongs to someone else.
func checkMode(path string, want fs.FileMode) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	if loose := info.Mode().Perm() &^ want; loose != 0 {
		return fmt.Errorf("pki: %s has mode %04o; it holds secrets and must be %04o at most (chmod %o %s)",
			path, info.Mode().Perm(), want, want, path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() && os.Geteuid() != 0 {
		return fmt.Errorf("pki: %s belongs to user %d, not to user %d who runs this", path, st.Uid, os.Geteuid())
	}
	return nil
}

// lock keeps other processes from making the same files. The returned function gives it up.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, secretMode)
	if err != nil {
		return nil, fmt.Errorf("pki: lock: %w", err)
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); {
		case err == nil:
			return func() { _ = f.Close() }, nil
		case !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("pki: lock %s: %w", path, err), f.Close())
		}
	}
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("pki: %w", err)
	}
	return true, nil
}

// both says whether a certificate is there; its key then must be too, or it counts as damaged.
func both(certPath, keyPath string) (bool, error) {
	have, err := exists(certPath)
	if err != nil || !have {
		return false, err
	}
	if key, err := exists(keyPath); err != nil || !key {
		return false, firstError(err, damaged(keyPath, "it is missing"))
	}
	return true, nil
}

type pair struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

// loadPair reads a certificate and its key and checks that they belong together.
func loadPair(certPath, keyPath string) (*pair, error) {
	if ok, err := both(certPath, keyPath); err != nil || !ok {
		return nil, firstError(err, damaged(certPath, "it is missing"))
	}
	if err := checkMode(keyPath, secretMode); err != nil {
		return nil, err
	}
	p := &pair{}
	var err error
	if p.certPEM, err = readFile(certPath); err != nil {
		return nil, err
	}
	if p.keyPEM, err = readFile(keyPath); err != nil {
		return nil, err
	}
	der, err := onlyBlock(certPath, p.certPEM, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, damaged(certPath, "it holds no certificate")
	}
	if der, err = onlyBlock(keyPath, p.keyPEM, "EC PRIVATE KEY"); err != nil {
		return nil, err
	}
	if p.key, err = x509.ParseECPrivateKey(der); err != nil {
		return nil, damaged(keyPath, "it holds no key")
	}
	if public, ok := p.cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(&p.key.PublicKey) {
		return nil, damaged(keyPath, "it does not belong to "+filepath.Base(certPath))
	}
	return p, nil
}

func onlyBlock(path string, data []byte, kind string) ([]byte, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != kind || len(bytes.TrimSpace(rest)) > 0 {
		return nil, damaged(path, "it is not a single PEM block of type "+kind)
	}
	return block.Bytes, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("pki: read %s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, damaged(path, "it is too large")
	}
	return data, nil
}

// writeFile writes a secret file so that it is there whole or not at all, also after a crash. Call syncDir
// after the last one, so that none is lost either.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // Mode 0600.
	if err != nil {
		return fmt.Errorf("pki: write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("pki: write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// syncDir makes a rename survive a power loss. Some filesystems cannot; then it may not.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil //nolint:nilerr // The file itself is written; see the comment above.
	}
	_ = d.Sync()
	return d.Close()
}

const tokenBytes = 32

// ensureToken reads the token, or makes one.
func ensureToken(path string) (string, error) {
	have, err := exists(path)
	if err != nil {
		return "", err
	}
	if !have {
		var secret [tokenBytes]byte
		if _, err := rand.Read(secret[:]); err != nil {
			return "", fmt.Errorf("pki: make a token: %w", err)
		}
		token := hex.EncodeToString(secret[:])
		return token, writeFile(path, []byte(token+"\n"))
	}
	if err := checkMode(path, secretMode); err != nil {
		return "", err
	}
	data, err := readFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if raw, err := hex.DecodeString(token); err != nil || len(raw) < tokenBytes {
		return "", fmt.Errorf("pki: %s holds no token; remove it to get a new one", path)
	}
	return token, nil
}
