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
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"monoplane.dev/internal/datadir"
)

// damaged says that a file cannot be used, and what to do.
func damaged(dir *datadir.Dir, name, what string) error {
	return fmt.Errorf("pki: %s is unusable: %s; restore it from a backup, or remove the directory %s to start with "+
		"a new authority (all kubeconfigs then need to be replaced)", filepath.Join(dir.Path(), name), what, dir.Path())
}

// lock keeps other processes from making the same files. The returned function gives it up.
func lock(dir *datadir.Dir) (func(), error) {
	f, err := dir.OpenFile(".lock", os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("pki: lock: %w", err)
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); {
		case err == nil:
			if err := datadir.Sweep(dir.Path()); err != nil {
				return nil, errors.Join(fmt.Errorf("pki: %w", err), f.Close())
			}
			return func() { _ = f.Close() }, nil
		case !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(fmt.Errorf("pki: lock %s: %w", f.Name(), err), f.Close())
		}
	}
}

func exists(dir *datadir.Dir, name string) (bool, error) {
	have, err := dir.Exists(name)
	if err != nil {
		return false, fmt.Errorf("pki: %w", err)
	}
	return have, nil
}

// both says whether a certificate is there; its key then must be too, or it counts as damaged.
func both(dir *datadir.Dir, name string) (bool, error) {
	have, err := exists(dir, name+".crt")
	if err != nil || !have {
		return false, err
	}
	if key, err := exists(dir, name+".key"); err != nil || !key {
		return false, firstError(err, damaged(dir, name+".key", "it is missing"))
	}
	return true, nil
}

type pair struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

// loadPair reads a certificate and its key and checks that they belong together.
func loadPair(dir *datadir.Dir, name string) (*pair, error) {
	cert, key := name+".crt", name+".key"
	if ok, err := both(dir, name); err != nil || !ok {
		return nil, firstError(err, damaged(dir, cert, "it is missing"))
	}
	p := &pair{}
	var err error
	if p.certPEM, err = readFile(dir, cert, dir.ReadFile); err != nil {
		return nil, err
	}
	if p.keyPEM, err = readFile(dir, key, dir.ReadSecret); err != nil {
		return nil, err
	}
	der, err := onlyBlock(dir, cert, p.certPEM, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, damaged(dir, cert, "it holds no certificate")
	}
	if der, err = onlyBlock(dir, key, p.keyPEM, "EC PRIVATE KEY"); err != nil {
		return nil, err
	}
	if p.key, err = x509.ParseECPrivateKey(der); err != nil {
		return nil, damaged(dir, key, "it holds no key")
	}
	if public, ok := p.cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(&p.key.PublicKey) {
		return nil, damaged(dir, key, "it does not belong to "+cert)
	}
	return p, nil
}

func onlyBlock(dir *datadir.Dir, name string, data []byte, kind string) ([]byte, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != kind || len(bytes.TrimSpace(rest)) > 0 {
		return nil, damaged(dir, name, "it is not a single PEM block of type "+kind)
	}
	return block.Bytes, nil
}

func readFile(dir *datadir.Dir, name string, read func(string) ([]byte, error)) ([]byte, error) {
	data, err := read(name)
	if errors.Is(err, datadir.ErrTooLarge) {
		return nil, damaged(dir, name, "it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return data, nil
}

// writeFile writes a secret file. Call the directory's Sync after the last one, so that none is lost either.
func writeFile(dir *datadir.Dir, name string, data []byte) error {
	if err := dir.Write(name, data); err != nil {
		return fmt.Errorf("pki: %w", err)
	}
	return nil
}

const tokenBytes = 32

// ensureToken reads the token, or makes one.
func ensureToken(dir *datadir.Dir) (string, error) {
	const name = "admin.token"
	have, err := exists(dir, name)
	if err != nil {
		return "", err
	}
	if !have {
		var secret [tokenBytes]byte
		if _, err := rand.Read(secret[:]); err != nil {
			return "", fmt.Errorf("pki: make a token: %w", err)
		}
		token := hex.EncodeToString(secret[:])
		return token, writeFile(dir, name, []byte(token+"\n"))
	}
	data, err := readFile(dir, name, dir.ReadSecret)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if raw, err := hex.DecodeString(token); err != nil || len(raw) < tokenBytes {
		return "", fmt.Errorf("pki: %s holds no token; remove it to get a new one", filepath.Join(dir.Path(), name))
	}
	return token, nil
}
