package seal

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monoplane.dev/internal/datadir"
)

func ensure(t testing.TB, path string, used bool) (*Keys, error) {
	t.Helper()
	dir, err := datadir.Make(path)
	if err != nil {
		t.Fatal(err)
	}
	return Ensure(dir, used)
}

func mustEnsure(t testing.TB, path string) *Keys {
	t.Helper()
	k, err := ensure(t, path, false)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What was sealed is opened under its name by who has the key, after rotations and restarts too, and by nobody else.
func TestSeal(t *testing.T) {
	path := t.TempDir()
	k := mustEnsure(t, path)
	value := []byte("the value, the value, the value")
	first := k.Seal([]byte("head"), "name", value)[4:]
	if len(first) != len(value)+Overhead || bytes.Contains(first, value[:9]) {
		t.Errorf("sealed: %d bytes, %q", len(first), first)
	}
	if again := k.Seal(nil, "name", value); bytes.Equal(again[idBytes:], first[idBytes:]) {
		t.Error("two values of one content are equal")
	}
	before := k.Current()
	after, err := k.Rotate()
	if err != nil || after == before || k.Current() != after || len(k.IDs()) != 2 {
		t.Errorf("rotated from %s to %s: %v, %v", before, after, k.IDs(), err)
	}
	second := k.Seal(nil, "name", value)
	for _, keys := range []*Keys{k, mustEnsure(t, path)} {
		for _, sealed := range [][]byte{first, second} {
			if got, err := keys.Open("name", sealed); err != nil || !bytes.Equal(got, value) {
				t.Errorf("opened %q, %v", got, err)
			}
			if _, err := keys.Open("other", sealed); !errors.Is(err, ErrDamaged) {
				t.Errorf("opened under another name: %v", err)
			}
			for i := range sealed {
				bad := bytes.Clone(sealed)
				bad[i] ^= 1
				if _, err := keys.Open("name", bad); err == nil {
					t.Errorf("opened with byte %d changed", i)
				}
				if _, err := keys.Open("name", sealed[:i]); err == nil {
					t.Errorf("opened %d of %d bytes", i, len(sealed))
				}
			}
		}
	}
	if _, err := mustEnsure(t, t.TempDir()).Open("name", first); !errors.Is(err, ErrUnknown) {
		t.Errorf("opened by somebody else: %v", err)
	}
}

// The file is nobody else's, and is never guessed or made anew when something depends on it.
func TestFile(t *testing.T) {
	path := t.TempDir()
	if _, err := ensure(t, path, true); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing: %v", err)
	}
	file := filepath.Join(path, FileName)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made all the same: %v", err)
	}
	mustEnsure(t, path)
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(strings.Split(string(good), "\n")[2])
	for name, text := range map[string]string{
		"empty": "", "no key": heading, "short": secret[:40] + "\n", "no base64": strings.Repeat("ä", 22),
		"too many": strings.Repeat(secret+"\n", most+1),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ensure(t, path, false)
		if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ensure(t, path, false); err == nil {
		t.Error("a file that others can read is taken")
	}
}

func FuzzOpen(f *testing.F) {
	k := mustEnsure(f, f.TempDir())
	f.Add(k.Seal(nil, "name", []byte("value")))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		if value, err := k.Open("name", sealed); err == nil && string(value) != "value" {
			t.Errorf("opened %q", value)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(heading + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if keys, err := parse(text); err == nil && len(keys) == 0 {
			t.Error("no keys, and no error")
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	k := mustEnsure(b, b.TempDir())
	value := make([]byte, 1000)
	for b.Loop() {
		if _, err := k.Open("name", k.Seal(nil, "name", value)); err != nil {
			b.Fatal(err)
		}
	}
}
