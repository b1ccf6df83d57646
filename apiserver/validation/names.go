package validation

import (
	"strings"
)

// NameFunc says what is wrong with the name of an object, or, when prefix is set, with a generateName,
// which characters will be appended to. Nil means that nothing is.
type NameFunc func(name string, prefix bool) []string

// NameIsSubdomain is the NameFunc of most kinds: a DNS-1123 subdomain (OBJ-4).
func NameIsSubdomain(name string, prefix bool) []string {
	return WrongSubdomain(completed(name, prefix))
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

// Label checks a DNS-1123 label.
func (f *Faults) Label(p *Path, s string) { f.Invalid(p, s, wrongLabel(s)...) }

// RequiredLabel checks a DNS-1123 label that may not be empty.
func (f *Faults) RequiredLabel(p *Path, s string) {
	if s == "" {
		f.Required(p, "")
		return
	}
	f.Label(p, s)
}

// Subdomain checks a DNS-1123 subdomain.
func (f *Faults) Subdomain(p *Path, s string) {
	f.Invalid(p, s, WrongSubdomain(s)...)
}

// Qualified checks a name that may have a domain before a slash, such as that of a label.
func (f *Faults) Qualified(p *Path, s string) {
	f.Invalid(p, s, WrongQualifiedName(s)...)
}

// Labels checks a set of labels. The faults name the whole set, as in Kubernetes.
func (f *Faults) Labels(p *Path, set map[string]string) {
	var room Few
	for _, k := range Sorted(&room, set) {
		f.Qualified(p, k)
		f.Invalid(p, set[k], WrongLabelValue(set[k])...)
	}
}
