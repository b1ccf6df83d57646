package userids

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []Range
	}{
		{"by name", "root:1:10\nme:100000:65536\n", []Range{{1, 100000, 65536}}},
		{"by number", "1000:200000:5", []Range{{1, 200000, 5}}},
		{"several lines follow each other", "me:1000:10\n1000:5000:20\n", []Range{{1, 1000, 10}, {11, 5000, 20}}},
		{"another user whose name begins so", "mee:1:1\nm:1:1", nil},
		{"no number", "me:x:1\nme:1:\nme:1\nme:-1:5\nme:1:2:3", nil},
		{"none, and root's own", "me:0:10\nme:100:0", nil},
		{"beyond all ids", "me:4294967290:10\nme:1:4294967295", nil},
		{"comments and spaces", "# me:1:2\n  me:7:2  \n", []Range{{1, 7, 2}}},
		{"no more than is asked for at once", strings.Repeat("me:7:2\n", mostRanges+1), func() (all []Range) {
			for i := range mostRanges {
				all = append(all, Range{1 + 2*uint32(i), 7, 2})
			}
			return all
		}()},
		{"nothing", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := parse(strings.NewReader(c.file), "me", "1000"); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
	if got, _ := parse(strings.NewReader(":1:5\n"), "", "1000"); got != nil {
		t.Errorf("a user without a name has the ids of a line without one: %v", got)
	}
	long := "me:100000:65536\n# " + strings.Repeat("x", 1<<17) + "\nme:300000:65536\n"
	if got, err := parse(strings.NewReader(long), "me", "1000"); err == nil {
		t.Errorf("a file that was read in part has %v", got)
	}
}

// FuzzParse: whatever the file says, ranges are apart inside, and none has an id that there is not.
func FuzzParse(f *testing.F) {
	f.Add("me:100000:65536\n1000:4294967294:1\n")
	f.Fuzz(func(t *testing.T, file string) {
		next := uint64(1)
		all, _ := parse(strings.NewReader(file), "me", "1000")
		for _, r := range all {
			if uint64(r.Inside) != next || r.Size == 0 || uint64(r.Outside)+uint64(r.Size) > 1<<32-1 || r.Outside == 0 {
				t.Fatal(fmt.Sprint("the ranges of ", file, " have ", r))
			}
			next += uint64(r.Size)
		}
		if next > 1<<32-1 {
			t.Fatal("there are more ids than there can be")
		}
	})
}
