package defaults

import "regexp"

// imageReference is the form of an image name: an optional registry, a path, an optional tag (group 1) and
// an optional digest (group 2).
var imageReference = regexp.MustCompile(
	`^(?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?` +
		`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*` +
		`(?::(\w[\w.-]{0,127}))?` +
		`(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?$`)

// imageID is the form of the identifier of an image, which is not a name.
var imageID = regexp.MustCompile(`^[a-f0-9]{64}$`)

const maxImageName = 255

// pullPolicy is Always for an image whose content can change under its name: the tag "latest", and neither
// tag nor digest (CTR-6). A name that cannot be pulled at all needs no attempt at each start.
func pullPolicy(image string) string {
	const always, ifNotPresent = "Always", "IfNotPresent"
	if len(image) > maxImageName+300 || imageID.MatchString(image) {
		return ifNotPresent
	}
	parts := imageReference.FindStringSubmatch(image)
	switch {
	case parts == nil:
		return ifNotPresent
	case parts[1] == "latest", parts[1] == "" && parts[2] == "":
		return always
	}
	return ifNotPresent
}
