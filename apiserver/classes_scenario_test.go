package apiserver_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"monoplane.dev/apierrors"

	corev1rpc "monoplane.dev/api/core/v1/rpc"
	metav1 "monoplane.dev/api/meta/v1"
)

var rewrite = flag.Bool("rewrite", false, "write what happened into the scenario file")

// What 002 says of classes, as a script for the server: one command a line; what it prints stands below it, indented.
// Run the test with -rewrite to write down what happens now, and read the difference.
//
//	class NAME value=N [policy=Never] [default]
//	delete-class NAME
//	pod NAME [class=NAME] [priority=N]
//	show
//
// spec: PRIO-1, PRIO-2, PRIO-3, PRIO-4
func TestClassScenario(t *testing.T) {
	const file = "testdata/002-classes.txt"
	want := must(os.ReadFile(file))(t)
	c, got := start(t), bytes.Buffer{}
	for line := range strings.Lines(string(want)) {
		if strings.HasPrefix(line, "    ") {
			continue // an expectation
		}
		got.WriteString(line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			if err := c.classCommand(t, words, &got); err != nil {
				fmt.Fprintf(&got, "    %s\n", apierrors.From(err).Error())
			}
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if got.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func (c *cluster) classCommand(t testing.TB, words []string, out *bytes.Buffer) error {
	t.Helper()
	admin, set := c.admin(), map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		set[k] = v
	}
	number := func(s string) int32 {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int32(n)
	}
	switch words[0] {
	case "class":
		class := newClass(words[1], number(set["value"]))
		_, class.GlobalDefault = set["default"]
		if policy := set["policy"]; policy != "" {
			class.PreemptionPolicy = &policy
		}
		_, err := createClass(t, admin, class)
		return err
	case "delete-class":
		return deleteClass(t, admin, words[1])
	case "pod":
		p := classPod(words[1], set["class"])
		if v, ok := set["priority"]; ok {
			p.Spec.Priority = ptr(number(v))
		}
		_, err := admin.Pods.Create(ctx(t), &corev1rpc.CreatePodRequest{Object: p})
		return err
	case "show":
		list, err := admin.Pods.List(ctx(t), &metav1.ListRequest{})
		for _, p := range list.GetItems() {
			fmt.Fprintf(out, "    %s:%s\n", p.GetMetadata().GetName(), strings.TrimRight(" "+showPriority(p), " "))
		}
		return err
	default:
		return fmt.Errorf("unknown command %q", words[0])
	}
}
