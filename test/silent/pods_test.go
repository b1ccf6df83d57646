package silent_test

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	corev1 "monoplane.dev/api/core/v1"
	optionsv1 "monoplane.dev/api/options/v1"
)

// docs/pods.md names every field of a pod's spec that has no effect, says whether it is refused, and why.
// spec: OBJ-3
func TestTheFieldsOfAPodWithoutEffect(t *testing.T) {
	has := make(map[string]string)
	withoutEffect((&corev1.PodSpec{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]bool{}, has)
	text, err := os.ReadFile("../../docs/pods.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Fields that have no effect\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("the section is missing")
	}
	told := make(map[string]string)
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != 3 || len(cells[2]) < 5 {
			t.Errorf("%q: the fields, what becomes of them, and the reason were expected", line)
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			told[m[1]] = cells[1]
		}
	}
	if !maps.Equal(has, told) {
		t.Errorf("the fields without effect are\n%v\nand the table has\n%v", has, told)
	}
}

// withoutEffect collects, by their names, the fields in and below a message that are refused or only kept.
func withoutEffect(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool, out map[string]string) {
	if seen[d.FullName()] {
		return
	}
	seen[d.FullName()] = true
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		name := string(d.Name()) + "." + string(fd.Name())
		switch support, _ := proto.GetExtension(fd.Options(), optionsv1.E_Support).(optionsv1.Support); {
		case support == optionsv1.Support_REFUSED:
			out[name] = "refused"
		case support == optionsv1.Support_STORED:
			out[name] = "kept"
		case fd.Message() != nil:
			withoutEffect(fd.Message(), seen, out)
		}
	}
}
