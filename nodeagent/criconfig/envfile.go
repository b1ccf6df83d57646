package criconfig

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
)

// fileKey returns the value of a key in a file of variables, "" when it has none. A line is NAME='value', where the
// value may go on over lines and nothing in it stands for anything else. Before NAME there may be blanks, after the
// value blanks and a comment. Blank lines, and those that begin with #, are comments. NAME= before a blank sets
// nothing. What follows the key is not looked at.
//
// Errors name the line and repeat nothing of it.
func fileKey(file []byte, key string) (string, error) {
	const blanks = " \t"
	lines, n := bufio.NewScanner(bytes.NewReader(file)), 0
	wrong := func(line int, what string) error { return fmt.Errorf("line %d: %s", line, what) }
	for lines.Scan() {
		n++
		line := strings.TrimLeft(lines.Text(), blanks)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		switch bare := strings.TrimRight(name, blanks); {
		case !ok:
			return "", wrong(n, "there is no '='")
		case bare == "":
			return "", wrong(n, "there is no name before '='")
		case bare != name:
			return "", wrong(n, "there is a blank before '='")
		case strings.TrimLeft(value, blanks) != value:
			if name == key {
				return "", nil
			}
			continue
		case value == "" || value[0] != '\'':
			return "", wrong(n, "the value is not in single quotes")
		}
		text, rest, closed := strings.Cut(value[1:], "'")
		for began := n; !closed; n++ {
			if !lines.Scan() {
				return "", wrong(began, "the quote is not closed")
			}
			var more string
			more, rest, closed = strings.Cut(lines.Text(), "'")
			text += "\n" + more
		}
		if rest = strings.TrimLeft(rest, blanks); rest != "" && rest[0] != '#' {
			return "", wrong(n, "something follows the value")
		}
		if name == key {
			return text, nil
		}
	}
	return "", lines.Err()
}
