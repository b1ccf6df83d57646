package validation

import "k8s.io/apimachinery/pkg/util/validation"

// The functions below say what is wrong with a name in the words of apimachinery. Its regular expressions take
// most of the time of a validation, so that names are first looked at by hand: only those with faults reach them.

func wrongLabel(s string) []string {
	if isLabel(s) {
		return nil
	}
	return validation.IsDNS1123Label(s)
}

// WrongSubdomain says what keeps s from being a DNS-1123 subdomain.
func WrongSubdomain(s string) []string {
	if isSubdomain(s) {
		return nil
	}
	return validation.IsDNS1123Subdomain(s)
}

// WrongQualifiedName says what keeps s from being a name that may have a domain before a slash.
func WrongQualifiedName(s string) []string {
	if isQualifiedName(s) {
		return nil
	}
	return validation.IsQualifiedName(s)
}

// WrongLabelValue says what keeps s from being the value of a label.
func WrongLabelValue(s string) []string {
	if s == "" || isName(s) {
		return nil
	}
	return validation.IsValidLabelValue(s)
}

// WrongPortName says what keeps s from being the name of a port.
func WrongPortName(s string) []string {
	if isPortName(s) {
		return nil
	}
	return validation.IsValidPortName(s)
}

// maxName is the most bytes of labels, of the names and values of labels, and of what is named like them.
const maxName = 63

// isLabel says whether s is a DNS-1123 label.
func isLabel(s string) bool { return len(s) <= maxName && isDNS(s, false) }

// isSubdomain says whether s is a DNS-1123 subdomain. Its labels may have any length.
func isSubdomain(s string) bool {
	return len(s) <= validation.DNS1123SubdomainMaxLength && isDNS(s, true)
}

// isDNS says whether s consists of small letters, digits and dashes, with dashes only inside, and of such parts
// between dots if there may be dots.
func isDNS(s string, dots bool) bool {
	before := byte('.')
	for i := range len(s) {
		switch c := s[i]; {
		case isSmall(c):
		case c == '-':
			if before == '.' {
				return false
			}
		case c == '.':
			if !dots || before == '.' || before == '-' {
				return false
			}
		default:
			return false
		}
		before = s[i]
	}
	return before != '.' && before != '-'
}

func isSmall(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func isAlphanumeric(c byte) bool { return isSmall(c) || 'A' <= c && c <= 'Z' }

// isQualifiedName says whether s is a name, or a subdomain, a slash and a name.
func isQualifiedName(s string) bool {
	for i := range len(s) {
		if s[i] == '/' {
			return isSubdomain(s[:i]) && isName(s[i+1:])
		}
	}
	return isName(s)
}

// isName says whether s consists of letters, digits, dashes, underscores and dots, and begins and ends with a
// letter or digit.
func isName(s string) bool {
	if s == "" || len(s) > maxName || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

const maxPortName = 15

// isPortName says whether s is a service name: small letters, of which there is one, digits, and single dashes
// inside.
func isPortName(s string) bool {
	if len(s) > maxPortName || !isDNS(s, false) {
		return false
	}
	letter := false
	for i := range len(s) {
		letter = letter || 'a' <= s[i] && s[i] <= 'z'
		if s[i] == '-' && s[i+1] == '-' {
			return false
		}
	}
	return letter
}
