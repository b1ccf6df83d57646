package pki_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monoplane.dev/apiserver/pki"
)

func tokenKeys(t *testing.T, dir string, now time.Time) *pki.TokenKeys {
	t.Helper()
	k, err := pki.EnsureTokenKeys(dir, pki.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTokenKeysLast(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first := tokenKeys(t, dir, now)
	info, err := os.Stat(filepath.Join(dir, "token.keys"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	if again := tokenKeys(t, dir, now.Add(89*24*time.Hour)); !again.Signing().Equal(first.Signing()) {
		t.Error("another key signs after a restart")
	}
	later := tokenKeys(t, dir, now.Add(91*24*time.Hour))
	if later.Signing().Equal(first.Signing()) {
		t.Error("the key was not replaced in time")
	}
	keys := later.Verifying()
	if len(keys) != 2 || !keys[0].Equal(&later.Signing().PublicKey) || !keys[1].Equal(&first.Signing().PublicKey) {
		t.Errorf("%d keys verify; they must be the new one and the one before", len(keys))
	}
	file, err := os.ReadFile(filepath.Join(dir, "token.keys"))
	if err != nil || bytes.Count(file, []byte("PRIVATE")) != 2 { // once at each end of one block
		t.Errorf("the private part of a key that does not sign any more was kept; error %v", err)
	}
	// A year after it was replaced nothing is valid that the first key has signed.
	for day := 182; day < 91+365; day += 91 {
		tokenKeys(t, dir, now.Add(time.Duration(day)*24*time.Hour))
	}
	last := tokenKeys(t, dir, now.Add((91+366+91)*24*time.Hour))
	for _, key := range last.Verifying() {
		if key.Equal(&first.Signing().PublicKey) {
			t.Error("the first key still verifies")
		}
	}
	// But what Secrets hold has no end.
	if all := last.All(); !all[len(all)-1].Equal(&first.Signing().PublicKey) {
		t.Error("the first key is forgotten")
	}
}

func TestTokenKeysAreReplacedWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := pki.EnsureTokenKeys(filepath.Join(t.TempDir(), "pki"), pki.Options{})
		if err != nil {
			t.Fatal(err)
		}
		first := k.Signing()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.KeepRotated(ctx) }()
		time.Sleep(90 * 24 * time.Hour)
		if k.Signing() != first {
			t.Error("the key was replaced too early")
		}
		time.Sleep(2 * time.Hour)
		if k.Signing() == first || len(k.Verifying()) != 2 {
			t.Error("the key was not replaced")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestDamagedTokenKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tokenKeys(t, dir, now)
	tokenKeys(t, dir, now.Add(100*24*time.Hour))
	path := filepath.Join(dir, "token.keys")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(good)
	for name, bad := range map[string]string{
		"empty":         "",
		"no PEM":        "hello",
		"half":          text[:len(text)/4],
		"rubbish after": text + "more",
		"two that sign": text[:strings.Index(text, "-----BEGIN PUBLIC")] + text,
		"only verifies": text[strings.Index(text, "-----BEGIN PUBLIC"):],
		"no time":       strings.Replace(text, "Made", "When", 1),
		"no end":        strings.Replace(text, "Retired", "When", 1),
	} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := pki.EnsureTokenKeys(dir, pki.Options{Now: func() time.Time { return now }})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != bad {
			t.Errorf("%s: the file was replaced", name)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.EnsureTokenKeys(dir, pki.Options{}); err == nil {
		t.Error("keys that others can read were used")
	}
}
