package json

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// AppendQuantity appends a quantity in its canonical form, as Kubernetes does: "1000m" becomes "1". Text
// that is no quantity is appended as it is; the empty text means "0".
func AppendQuantity(b []byte, text string) []byte {
	if text == "" {
		return append(b, `"0"`...)
	}
	if !CanonicalQuantity(text) {
		if q, err := ParseQuantity(text); err == nil {
			text = q.String()
		}
	}
	return AppendString(b, text)
}

// Quantity reads a quantity, a string or a number, into its canonical text. Null is the empty text.
func (d *Decoder) Quantity(p *string) {
	*p = ""
	if d.Null() {
		return
	}
	const expected = "a string with a quantity such as \"500m\" or \"2Gi\""
	if c := d.peek(); c != '"' && c != '-' && (c < '0' || c > '9') {
		d.mismatch(expected)
		return
	}
	at := d.pos
	d.skip()
	if d.failed {
		return
	}
	// Kubernetes looks at the text between the quotes without resolving escapes.
	raw := d.data[at:d.pos]
	if raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if CanonicalQuantity(raw) {
		*p = d.keep(raw)
		return
	}
	q, err := ParseQuantity(strings.TrimSpace(string(raw)))
	if err != nil {
		d.pos = at
		d.mismatch(expected)
		return
	}
	*p = q.String()
}

const (
	// maxQuantity is the longest text of a quantity, in bytes.
	maxQuantity = 64
	// maxExponent is the largest power of ten in a quantity. Quantities lie between 1e-9 and 2^63.
	maxExponent = 99
)

// ParseQuantity parses a quantity as resource.ParseQuantity does, but refuses text beyond all use: on
// "10000000000000000000001e99999" the latter computes for ten seconds, and on larger exponents for hours.
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > maxQuantity {
		return resource.Quantity{}, fmt.Errorf("quantity of %d bytes is too long", len(text))
	}
	if i := strings.LastIndexAny(text, "eE"); i >= 0 {
		if power, err := strconv.Atoi(text[i+1:]); err == nil && (power > maxExponent || power < -maxExponent) {
			return resource.Quantity{}, fmt.Errorf("exponent %d of the quantity is out of range", power)
		}
	}
	return resource.ParseQuantity(text)
}

// CanonicalQuantity says whether text surely is a quantity in canonical form: one to nine digits that the suffix
// cannot absorb. It may be wrong for other canonical forms, which then take the long way.
func CanonicalQuantity[T string | []byte](text T) bool {
	n, v := 0, 0
	for n < len(text) && n < 10 && text[n] >= '0' && text[n] <= '9' {
		v = v*10 + int(text[n]-'0')
		n++
	}
	if n == 0 || n > 9 || text[0] == '0' {
		return n == 1 && len(text) == 1
	}
	switch string(text[n:]) {
	case "", "m", "k", "M", "G":
		return v%1000 != 0
	case "Ki", "Mi", "Gi":
		return v%1024 != 0
	}
	return false
}
