package podspec

import (
	"regexp"
	"strings"
)

// imageReference is the form of an image name: an optional registry and a path (group 1), an optional tag
// (group 2) and an optional digest (group 3).
var imageReference = regexp.MustCompile(
	`^((?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|` +
		`\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?` +
		`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)` +
		`(?::(\w[\w.-]{0,127}))?` +
		`(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?$`)

// imageID is the form of the identifier of an image, which is not a name.
var imageID = regexp.MustCompile(`^[a-f0-9]{64}$`)

const (
	imageIDLength = 64
	maxTag        = 128
	maxImagePath  = 255
	// library is where the names without a slash are.
	library = "library/"
	// maxImage bounds the whole reference: registry, path, tag and digest.
	maxImage = 1024
)

// pullPolicy is Always for an image whose content can change under its name: the tag "latest", and neither
// tag nor digest (CTR-6). A name that cannot be pulled at all needs no attempt at each start.
func pullPolicy(image string) string {
	const always, ifNotPresent = "Always", "IfNotPresent"
	if tag, ok := simpleTag(image); ok {
		if tag == "" || tag == "latest" {
			return always
		}
		return ifNotPresent
	}
	if len(image) > maxImage || imageID.MatchString(image) {
		return ifNotPresent
	}
	parts := imageReference.FindStringSubmatch(image)
	if parts == nil || len(imagePath(parts[1])) > maxImagePath {
		return ifNotPresent
	}
	if tag, digest := parts[2], parts[3]; tag == "latest" || tag == "" && digest == "" {
		return always
	}
	return ifNotPresent
}

// simpleTag returns the tag of an image name of the usual kind: small letters and digits between slashes and single
// dots, dashes and underscores, and perhaps a tag. What it does not know it leaves to the regular expressions,
// which take a few microseconds.
func simpleTag(image string) (tag string, ok bool) {
	name := image
	if colon := strings.LastIndexByte(image, ':'); colon >= 0 {
		name, tag = image[:colon], image[colon+1:]
		if !isTag(tag) {
			return "", false
		}
	}
	if len(name) > maxImagePath-len(library) || len(image) == imageIDLength {
		return "", false
	}
	letter := false // whether the byte before was one
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			letter = true
		case letter && (c == '/' || c == '.' || c == '-' || c == '_'):
			letter = false
		default:
			return "", false
		}
	}
	return tag, letter
}

func isTag(s string) bool {
	for i := range len(s) {
		c := s[i]
		word := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
		if !word && (i == 0 || c != '.' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= maxTag
}

// imagePath returns the path in the registry: what follows the registry's name, if there is one.
func imagePath(name string) string {
	first, rest, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return library + name
	case first == "localhost", strings.ContainsAny(first, ".:"), first != strings.ToLower(first):
		return rest
	}
	return name
}
