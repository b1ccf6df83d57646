package fieldmanager

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxManager is the longest name of a manager in bytes.
const maxManager = 128

// Program returns the name of the program in the User-Agent of a client, which is its manager when a request names
// none.
func Program(agent string) string {
	name, _, _ := strings.Cut(agent, "/")
	var b strings.Builder
	for _, r := range name {
		if b.Len()+utf8.RuneLen(r) > maxManager {
			break
		}
		if unicode.IsPrint(r) && r != utf8.RuneError {
			b.WriteRune(r)
		}
	}
	return b.String()
}
