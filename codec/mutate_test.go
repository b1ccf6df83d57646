package codec_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
)

// node is a JSON value whose fields keep their order and may repeat.
type node struct {
	scalar   string // JSON text; empty for objects and arrays
	object   bool
	names    []string // JSON text of the fields' names
	children []*node
}

func parseNode(d *json.Decoder) *node {
	token, err := d.Token()
	if err != nil {
		panic(err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return &node{scalar: quote(token)}
	}
	n := &node{object: delim == '{'}
	for d.More() {
		if n.object {
			name, err := d.Token()
			if err != nil {
				panic(err)
			}
			n.names = append(n.names, quote(name))
		}
		n.children = append(n.children, parseNode(d))
	}
	if _, err := d.Token(); err != nil {
		panic(err)
	}
	return n
}

func quote(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (n *node) write(b *bytes.Buffer) {
	if n.scalar != "" {
		b.WriteString(n.scalar)
		return
	}
	open, end := "[", "]"
	if n.object {
		open, end = "{", "}"
	}
	b.WriteString(open)
	for i, c := range n.children {
		if i > 0 {
			b.WriteByte(',')
		}
		if n.object {
			b.WriteString(n.names[i])
			b.WriteByte(':')
		}
		c.write(b)
	}
	b.WriteString(end)
}

func (n *node) all(to []*node) []*node {
	to = append(to, n)
	for _, c := range n.children {
		to = c.all(to)
	}
	return to
}

var oddValues = []string{
	"null", "true", "false", "0", "-0", "5.0", "1e2", "-1", "2147483648", "9223372036854775808", "1.5", `"5"`, `""`,
	`"x"`, "{}", "[]", `[null]`,
	`{"a":null}`, `{"a":1,"a":2}`, `[1]`, `["a",5]`, `[{}]`, `"2026-03-04T05:06:07Z"`,
	`"2026-03-04T05:06:07.123456+02:00"`, `"500m"`, `"1024Mi"`,
	`"\u00e9\ud83d\ude00\ud800x"`, "\"\xff\xfe\"", `"AQID"`, `"AQ="`, `" 1 "`, `"1\u0030"`, `"9999-12-31T23:59:59-23:00"`,
	`"0001-01-01T00:00:00Z"`,
	`"1970-01-01T00:00:00Z"`, `"0000-01-01T00:00:00.000000+23:59"`,
}

// mutate returns a document of n's with a few things wrong.
func mutate(rng *rand.Rand, text []byte) []byte {
	root := parseNode(newNumberDecoder(text))
	for range 1 + rng.IntN(4) {
		mutateNode(rng, pick(rng, root.all(nil)))
	}
	var b bytes.Buffer
	root.write(&b)
	if rng.IntN(50) == 0 && b.Len() > 0 {
		at := rng.IntN(b.Len())
		b.Bytes()[at] = pick(rng, []byte(`"{}[],:\ 0n`))
	}
	return b.Bytes()
}

func newNumberDecoder(text []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d
}

func mutateNode(rng *rand.Rand, n *node) {
	if n.object && len(n.children) > 0 {
		i := rng.IntN(len(n.children))
		switch rng.IntN(6) {
		case 0: // another case
			n.names[i] = strings.ToUpper(n.names[i])
		case 1:
			n.names[i] = strings.Replace(n.names[i], `"`, `"x`, 1)
		case 2: // a field twice
			n.names = append(n.names, n.names[i])
			n.children = append(n.children, n.children[rng.IntN(len(n.children))])
		case 3: // a name with an escape
			if len(n.names[i]) > 3 && n.names[i][1] == 'n' {
				n.names[i] = `"\u006e` + n.names[i][2:]
			}
		case 4: // the field of another object
			n.names = append(n.names, pick(rng, []string{`"name"`, `"kind"`, `"spec"`, `"a"`, `"a"`, `"é\""`}))
			n.children = append(n.children, &node{scalar: pick(rng, oddValues)})
		default:
			n.children[i] = &node{scalar: pick(rng, oddValues)}
		}
		return
	}
	if !n.object && n.scalar == "" && len(n.children) > 0 {
		n.children[rng.IntN(len(n.children))] = &node{scalar: pick(rng, oddValues)}
		return
	}
	*n = node{scalar: pick(rng, oddValues)}
}
