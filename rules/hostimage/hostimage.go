// Package hostimage knows the one image that is none: "host" stands for the files of the node itself. Runtimes run it,
// and the server asks for a right to it, so that both have to mean the same names.
package hostimage

import "strings"

// Name is what pods call the image.
const Name = "host"

// Group and Resource are what rules of roles call it, together with Name: who has the verb Use on it in a namespace
// may write pods and templates there that have it.
const (
	Group    = "node.monoplane.dev"
	Resource = "images"
	Use      = "use"
)

// Plain returns the name of an image without what clients that normalise names add to Name.
func Plain(image string) string {
	image = strings.TrimPrefix(image, "docker.io/library/")
	return strings.TrimSuffix(image, ":latest")
}

// Is says whether an image is the node itself.
func Is(image string) bool { return Plain(image) == Name }
