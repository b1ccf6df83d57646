package ipam_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"monoplane.dev/nodeagent/network/ipam"
)

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func open(t testing.TB, path string, ranges ...string) *ipam.Register {
	t.Helper()
	r, err := ipam.Open(path, prefixes(ranges...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "addresses.json") }

func TestFirstAddresses(t *testing.T) {
	r := open(t, file(t), "10.244.3.0/24", "fd00:244:0:3::/64")
	got, err := r.Allocate("a")
	if err != nil || fmt.Sprint(got) != "[10.244.3.3 fd00:244:0:3::3]" {
		t.Errorf("the first addresses are %v, %v", got, err)
	}
	again, err := r.Allocate("a")
	if err != nil || !slices.Equal(got, again) {
		t.Errorf("asked again, the addresses are %v, %v", again, err)
	}
}

// All addresses are given before one is given again, and then the one that was released first.
func TestReuse(t *testing.T) {
	path := file(t)
	r := open(t, path, "10.0.0.0/29")
	var all []netip.Addr
	for i := range 4 {
		got, err := r.Allocate(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got[0])
		if i == 0 || i == 2 {
			if err := r.Release(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if fmt.Sprint(all) != "[10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6]" {
		t.Errorf("the addresses are %v", all)
	}
	r = open(t, path, "10.0.0.0/29")
	for i, want := range []string{"10.0.0.3", "10.0.0.5"} {
		if got, err := r.Allocate(fmt.Sprint(10 + i)); err != nil || got[0].String() != want {
			t.Errorf("then comes %v, %v; want %s", got, err, want)
		}
	}
	if got, err := r.Allocate("more"); !errors.Is(err, ipam.ErrExhausted) {
		t.Errorf("when all are given: %v, %v", got, err)
	}
}

// However many pods come and go, the file stays small, and an address comes again when all others have been had.
func TestManyOwners(t *testing.T) {
	path := file(t)
	const (
		usable = 1<<9 - 4 // of the range of IPv4
		group  = 10       // end together
	)
	r := open(t, path, "10.0.0.0/23", "fd00::/64")
	last := map[netip.Addr]int{}
	for i := 1; i < 5*usable/2; i++ {
		got, err := r.Allocate(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range got {
			if before := last[a]; before > 0 && (a.Is6() || i-before < usable-2*group) {
				t.Fatalf("the address %s is given in turn %d, after turn %d", a, i, before)
			}
			last[a] = i
		}
		if i%group > 0 {
			continue
		}
		if err := r.Retain(func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := os.Stat(path); err != nil || f.Size() > 16<<10 {
		t.Errorf("the file has %d bytes, %v", f.Size(), err)
	}
}

// One range that is exhausted takes nothing from the other.
func TestAllOrNone(t *testing.T) {
	r := open(t, file(t), "fd00::/64", "10.0.0.0/29")
	for i := range 4 {
		if _, err := r.Allocate(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Allocate("more"); !errors.Is(err, ipam.ErrExhausted) {
		t.Fatal(err)
	}
	if err := r.Release("0"); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Allocate("next"); err != nil || fmt.Sprint(got) != "[fd00::7 10.0.0.3]" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAdopt(t *testing.T) {
	r := open(t, file(t), "10.0.0.0/29")
	three, four := netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.4")
	if err := r.Adopt("old", []netip.Addr{three}); err != nil {
		t.Fatal(err)
	}
	if err := r.Adopt("old", []netip.Addr{three}); err != nil {
		t.Errorf("adopted twice: %v", err)
	}
	if err := r.Adopt("other", []netip.Addr{three}); err == nil {
		t.Error("an address was adopted by two")
	}
	if err := r.Adopt("old", []netip.Addr{four}); err == nil {
		t.Error("an owner was adopted with another address than it has")
	}
	if got, err := r.Allocate("new"); err != nil || got[0] != four {
		t.Errorf("the next one gets %v, %v", got, err)
	}
}

func TestDamagedFile(t *testing.T) {
	path := file(t)
	for _, content := range []string{"", "{", `{"Owners":{"a":["10.0.0.3"],"b":["10.0.0.3"]}}`,
		`{"Owners":{"a":["x"]}}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ipam.Open(path, prefixes("10.0.0.0/29")); err == nil {
			t.Errorf("the file %q was read as a register", content)
		}
	}
}

// A write that fails gives nothing, and the register goes on as it was.
func TestDiskFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	r := open(t, filepath.Join(dir, "addresses.json"), "10.0.0.0/29")
	if got, err := r.Allocate("a"); err == nil {
		t.Fatalf("an address that is not on the disk was given: %v", got)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Allocate("b"); err != nil || got[0].String() != "10.0.0.3" {
		t.Errorf("then: %v, %v", got, err)
	}
}

// Whatever happens, and whenever the process is killed: no address has two owners, all are of the range and none of
// the reserved ones, and one that was released is not given while another has been free for longer.
func TestHistories(t *testing.T) {
	dir := t.TempDir()
	rounds := 0
	rapid.Check(t, func(t *rapid.T) {
		rounds++
		path := filepath.Join(dir, fmt.Sprint(rounds))
		pool := netip.MustParsePrefix("10.0.0.0/29")
		r := open2(t, path, pool)
		owned := map[string]netip.Addr{}
		freed := map[netip.Addr]int{} // When an address was released; absent for those that nobody has had.
		for step := 1; step <= 20; step++ {
			owner := rapid.StringMatching("[a-f]").Draw(t, "owner")
			switch rapid.SampledFrom([]string{"allocate", "allocate", "release", "reopen"}).Draw(t, "what") {
			case "reopen":
				r = open2(t, path, pool)
			case "release":
				if err := r.Release(owner); err != nil {
					t.Fatal(err)
				}
				if a, is := owned[owner]; is {
					freed[a] = step
					delete(owned, owner)
				}
			case "allocate":
				got, err := r.Allocate(owner)
				if errors.Is(err, ipam.ErrExhausted) && len(owned) == 4 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				a := got[0]
				if had, is := owned[owner]; is {
					if had != a {
						t.Fatalf("%s has %s and is given %s", owner, had, a)
					}
					continue
				}
				for other, b := range owned {
					if a == b {
						t.Fatalf("%s is given to %s and %s", a, other, owner)
					}
				}
				last := netip.MustParseAddr("10.0.0.6")
				for free := netip.MustParseAddr("10.0.0.3"); free.Compare(last) <= 0; free = free.Next() {
					if !slices.Contains(values(owned), free) && freed[free] < freed[a] {
						t.Fatalf("%s is given, which was released in step %d, before %s (%d)", a, freed[a], free, freed[free])
					}
				}
				if n := a.As4()[3]; !pool.Contains(a) || n < 3 || n > 6 {
					t.Fatalf("%s is given", a)
				}
				owned[owner] = a
			}
		}
	})
}

func values(m map[string]netip.Addr) (all []netip.Addr) {
	for _, a := range m {
		all = append(all, a)
	}
	return all
}

func open2(t *rapid.T, path string, pool netip.Prefix) *ipam.Register {
	r, err := ipam.Open(path, []netip.Prefix{pool})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
