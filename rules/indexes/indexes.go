// Package indexes is about sets of the indexes of an Indexed Job, written as in its status and its success policy:
// "1,3-5,7". It guarantees the texts and the errors of Kubernetes, which test/oracle compares over random sets. A set
// takes as much memory and time as it has gaps, not members: a Job may have a hundred thousand indexes.
package indexes

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Interval is a row of indexes without a gap, from First to Last, both of them in it.
type Interval struct{ First, Last int32 }

// Set is a set of indexes: intervals in increasing order, with at least one index missing between two of them. The
// zero value is the empty set. Sets are never changed.
type Set []Interval

// Parse reads a set that somebody wrote, whose indexes have to be below completions, and says what is wrong with it.
func Parse(text string, completions int32) (Set, error) {
	if text == "" {
		return nil, nil
	}
	var s Set
	for part := range strings.SplitSeq(text, ",") {
		in, err := interval(part, completions)
		if err != nil {
			return nil, err
		}
		if n := len(s); n > 0 && s[n-1].Last >= in.First {
			return nil, fmt.Errorf("non-increasing order, previous: %d, current: %d", s[n-1].Last, in.First)
		}
		s = s.add(in)
	}
	return s, nil
}

func interval(part string, completions int32) (Interval, error) {
	first, last, pair := strings.Cut(part, "-")
	if strings.Contains(last, "-") {
		return Interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have "+
			"at most two parts separated by '-'", part)
	}
	a, err := index(first, completions)
	if err != nil || !pair {
		return Interval{a, a}, err
	}
	b, err := index(last, completions)
	if err == nil && a >= b {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", a, b)
	}
	return Interval{a, b}, err
}

func index(s string, completions int32) (int32, error) {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", s)
	case n >= int(completions):
		return 0, fmt.Errorf("too large index: %q", s)
	}
	return int32(n), nil
}

// Read reads a set out of a status. What is beyond completions, which may have become fewer since, is left out, and so
// is what cannot be read: the rest of it is still true.
func Read(text string, completions int32) Set {
	if text == "" {
		return nil
	}
	var s Set
	for part := range strings.SplitSeq(text, ",") {
		first, last, pair := strings.Cut(part, "-")
		if !pair {
			last = first
		}
		a, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		if a >= int(completions) {
			break
		}
		b, err := strconv.Atoi(last)
		if err != nil || b < a || len(s) > 0 && a <= int(s[len(s)-1].Last) {
			continue
		}
		s = s.add(Interval{int32(a), int32(min(b, int(completions)-1))})
	}
	return s
}

// Of returns the set of these indexes, in any order. It takes the slice over.
func Of(list []int32) Set {
	slices.Sort(list)
	var s Set
	for _, i := range list {
		s = s.add(Interval{i, i})
	}
	return s
}

// add appends an interval that begins nowhere before those in s do.
func (s Set) add(in Interval) Set {
	if n := len(s); n > 0 && in.First <= s[n-1].Last+1 {
		s[n-1].Last = max(s[n-1].Last, in.Last)
		return s
	}
	return append(s, in)
}

// Union returns the indexes that are in s or in t.
func (s Set) Union(t Set) Set {
	if len(t) == 0 {
		return s
	}
	if len(s) == 0 {
		return t
	}
	out := make(Set, 0, len(s)+len(t))
	for len(s) > 0 && len(t) > 0 {
		if s[0].First < t[0].First {
			out, s = out.add(s[0]), s[1:]
		} else {
			out, t = out.add(t[0]), t[1:]
		}
	}
	for _, in := range s {
		out = out.add(in)
	}
	for _, in := range t {
		out = out.add(in)
	}
	return out
}

// Without returns the indexes that are in s and not in t.
func (s Set) Without(t Set) Set {
	var out Set
	for _, in := range s {
		for len(t) > 0 && t[0].Last < in.First {
			t = t[1:]
		}
		for i := 0; i < len(t) && t[i].First <= in.Last; i++ {
			if t[i].First > in.First {
				out = append(out, Interval{in.First, t[i].First - 1})
			}
			in.First = t[i].Last + 1
		}
		if in.First <= in.Last {
			out = append(out, in)
		}
	}
	return out
}

// Common returns how many indexes are in both s and t, and the first of them.
func (s Set) Common(t Set) (n, first int32) {
	for len(s) > 0 && len(t) > 0 {
		a, b := max(s[0].First, t[0].First), min(s[0].Last, t[0].Last)
		if a <= b {
			if n == 0 {
				first = a
			}
			n += b - a + 1
		}
		if s[0].Last < t[0].Last {
			s = s[1:]
		} else {
			t = t[1:]
		}
	}
	return n, first
}

// Has says whether an index is in s.
func (s Set) Has(i int32) bool {
	at, found := slices.BinarySearchFunc(s, i, func(in Interval, i int32) int { return cmp.Compare(in.Last, i) })
	return found || at < len(s) && s[at].First <= i
}

// Len returns how many indexes s has.
func (s Set) Len() int32 {
	var n int32
	for _, in := range s {
		n += in.Last - in.First + 1
	}
	return n
}

// Missing ranges over the indexes below completions that are not in s, the least first.
func (s Set) Missing(completions int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		next, rest := int32(0), s
		for next < completions {
			if len(rest) > 0 && rest[0].First <= next {
				next, rest = max(next, rest[0].Last+1), rest[1:]
				continue
			}
			if !yield(next) {
				return
			}
			next++
		}
	}
}

// String writes s as it stands in a status. Two indexes in a row are written one by one.
func (s Set) String() string {
	var b []byte
	for _, in := range s {
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(in.First), 10)
		if in.Last > in.First {
			sep := byte('-')
			if in.Last == in.First+1 {
				sep = ','
			}
			b = strconv.AppendInt(append(b, sep), int64(in.Last), 10)
		}
	}
	return string(b)
}
