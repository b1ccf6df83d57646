package criconfig

import "strings"

// Expand replaces $(NAME) by what lookup returns for NAME. A name that lookup does not know stays as it is
// written, as does a $( that is not closed, and $$ stands for one $, so that $$(NAME) is never replaced. spec: CTR-7
func Expand(s string, lookup func(name string) (string, bool)) string {
	first := strings.IndexByte(s, '$')
	if first < 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s))
	closed := true // it is not known that there is no further )
	for rest := s; ; {
		i := strings.IndexByte(rest, '$')
		if i < 0 || i+1 == len(rest) {
			out.WriteString(rest)
			return out.String()
		}
		out.WriteString(rest[:i])
		rest = rest[i:]
		switch rest[1] {
		case '$':
			out.WriteByte('$')
			rest = rest[2:]
		case '(':
			end := -1
			if closed {
				end = strings.IndexByte(rest, ')')
			}
			if closed = end >= 0; !closed {
				out.WriteString("$(")
				rest = rest[2:]
				continue
			}
			if v, ok := lookup(rest[2:end]); ok {
				out.WriteString(v)
			} else {
				out.WriteString(rest[:end+1])
			}
			rest = rest[end+1:]
		default:
			out.WriteString(rest[:2])
			rest = rest[2:]
		}
	}
}
