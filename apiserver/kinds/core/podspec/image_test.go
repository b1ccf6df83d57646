package podspec

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// What is told without the regular expressions is what they tell.
func TestSimpleImagesAgreeWithTheExpressions(t *testing.T) {
	slow := func(image string) string {
		parts := imageReference.FindStringSubmatch(image)
		switch {
		case len(image) > maxImage, imageID.MatchString(image), parts == nil, len(imagePath(parts[1])) > maxImagePath:
			return "IfNotPresent"
		case parts[2] == "latest", parts[2] == "" && parts[3] == "":
			return "Always"
		}
		return "IfNotPresent"
	}
	simple := 0
	try := func(image string) {
		if got, want := pullPolicy(image), slow(image); got != want {
			t.Fatalf("%q: %s, want %s", image, got, want)
		}
		if _, ok := simpleTag(image); ok {
			simple++
		}
	}
	for _, image := range []string{
		"", "host", "nginx:1.27", "nginx:latest", "nginx:", "registry.k8s.io/pause:3.10", "localhost:5000/a",
		"localhost:5000/a:latest", "A/b", "a//b",
		"a@sha256:" + strings.Repeat("0", 64), strings.Repeat("0", 64), strings.Repeat("a", 64), strings.Repeat("a", 63),
		"localhost/" + strings.Repeat("a", 255),
		strings.Repeat("a", 255), strings.Repeat("a", 256), "a:" + strings.Repeat("t", 128), "a:" + strings.Repeat("t", 129),
		"a/" + strings.Repeat("b", 253), "a.b/" + strings.Repeat("b", 252),
		strings.Repeat("a", 62) + ":b", "a:.b", "a:-b", "a:_b", "a:b\n", "a__b", "a--b", "a_-b", "a.b.c/d_e-f:G.h",
	} {
		try(image)
	}
	const letters = "aZ0.-_/:@ "
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		var b strings.Builder
		for range 1 + rng.IntN(8) {
			b.WriteByte(letters[rng.IntN(len(letters))])
			b.WriteString("a"[rng.IntN(2):])
		}
		try(b.String())
	}
	if simple < 1000 {
		t.Errorf("only %d were simple", simple)
	}
}
