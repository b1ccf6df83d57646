package podrange_test

import (
	"net/netip"
	"strings"
	"testing"

	"monoplane.dev/rules/podrange"
)

func TestParse(t *testing.T) {
	services := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	for text, wrong := range map[string]string{
		podrange.Default:                "",
		"10.244.0.0/16,fd00:244::/56":   "",
		"10.244.0.0/24":                 "",
		"":                              "no range",
		"10.244.0.0":                    "no range",
		"10.244.0.1/16":                 "bits set",
		"10.244.0.0/25":                 "smaller than",
		"10.244.0.0/16,10.245.0.0/16":   "one family",
		"10.244.0.0/16,fd00::/56,::/56": "3 ranges",
		"fd00::/32":                     "too many parts",
		"::ffff:10.0.0.0/112":           "written as IPv6",
		"10.0.0.0/8":                    "overlap",
	} {
		_, err := podrange.Parse(text, 0, 0, services)
		if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%q: %v; want %q", text, err, wrong)
		}
	}
	if _, err := podrange.Parse("10.244.0.0/16", 30, 0, nil); err == nil {
		t.Error("nodes may have two addresses")
	}
}

func TestFree(t *testing.T) {
	all, err := podrange.Parse("10.244.0.0/22,fd00:244::/62", 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	four, six := all[0], all[1]
	var taken []netip.Prefix
	for _, want := range []string{"10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"} {
		p, ok := four.Free(taken)
		if !ok || p.String() != want {
			t.Fatalf("after %v comes %v, %v; want %s", taken, p, ok, want)
		}
		taken = append(taken, p)
	}
	if p, ok := four.Free(taken); ok {
		t.Errorf("all are taken, and %s is free", p)
	}
	if p, ok := four.Free(taken[1:]); !ok || p != taken[0] {
		t.Errorf("the first is free again, and comes %s, %v", p, ok)
	}
	// Parts of another size, of before.
	if p, ok := four.Free([]netip.Prefix{netip.MustParsePrefix("10.244.0.128/25"),
		netip.MustParsePrefix("10.244.2.0/23")}); !ok || p.String() != "10.244.1.0/24" {
		t.Errorf("beside parts of another size comes %s, %v", p, ok)
	}
	if p, ok := six.Free([]netip.Prefix{six.Part(0)}); !ok || p.String() != "fd00:244:0:1::/64" {
		t.Errorf("of IPv6 comes %s, %v", p, ok)
	}
}
