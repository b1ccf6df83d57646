package validation

import (
	"strings"
)

// NameFunc says what is wrong with the name of an object, or, when prefix is set, with a generateName,
// which characters will be appended to. Nil means that nothing is.
type NameFunc func(name string, prefix bool) []string

// NameIsSubdomain is the NameFunc of most kinds: a DNS-1123 subdomain (OBJ-4).
func NameIsSubdomain(name string, prefix bool) []string {
	return wrongSubdomain(completed(name, prefix))
}

// NameIsLabel is the NameFunc of namespaces: a DNS-1123 label (OBJ-4).
func NameIsLabel(name string, prefix bool) []string {
	return wrongLabel(completed(name, prefix))
}

// NameIsPathSegment is the NameFunc of kinds whose names are otherwise free (events): anything that can
// stand between two slashes of a path.
func NameIsPathSegment(name string, prefix bool) []string {
	if !prefix {
		switch name {
		case ".", "..":
			return []string{"may not be '" + name + "'"}
		}
	}
	var wrong []string
	for _, c := range []string{"/", "%"} {
		if strings.Contains(name, c) {
			wrong = append(wrong, "may not contain '"+c+"'")
		}
	}
	return wrong
}

// completed replaces the dash that a prefix may end with by a character that a name may end with.
func completed(name string, prefix bool) string {
	if prefix && len(name) > 1 && strings.HasSuffix(name, "-") {
		return name[:len(name)-1] + "a"
	}
	return name
}

func (f *faults) label(p *fieldPath, s string) { f.invalid(p, s, wrongLabel(s)...) }

func (f *faults) requiredLabel(p *fieldPath, s string) {
	if s == "" {
		f.required(p, "")
		return
	}
	f.label(p, s)
}

func (f *faults) subdomain(p *fieldPath, s string) {
	f.invalid(p, s, wrongSubdomain(s)...)
}

func (f *faults) qualified(p *fieldPath, s string) {
	f.invalid(p, s, wrongQualifiedName(s)...)
}

// labels checks a set of labels. The faults name the whole set, as in Kubernetes.
func (f *faults) labels(p *fieldPath, set map[string]string) {
	var room few
	for _, k := range sorted(&room, set) {
		f.qualified(p, k)
		f.invalid(p, set[k], wrongLabelValue(set[k])...)
	}
}
