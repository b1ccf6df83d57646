// Package kindtest holds what the tests of many kinds need: short ways to write objects, and to say which faults are
// expected.
package kindtest

import (
	"fmt"
	"strings"
	"testing"

	"monoplane.dev/apierrors"

	metav1 "monoplane.dev/api/meta/v1"
)

// Meta returns the metadata of an object that has just a name, and a namespace if that is not empty.
func Meta(name, namespace string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: name, Namespace: namespace}
}

// Amounts returns amounts of resources from pairs of a name and an amount.
func Amounts(pairs ...string) map[string]*metav1.Quantity {
	m := map[string]*metav1.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &metav1.Quantity{String_: pairs[i+1]}
	}
	return m
}

// Show renders amounts, in the order of their names.
func Show(m map[string]*metav1.Quantity) string {
	plain := map[string]string{}
	for k, v := range m {
		plain[k] = v.GetString_()
	}
	return fmt.Sprint(plain)
}

// Faults renders causes as "Type path", one per line.
func Faults(causes []apierrors.Cause) string {
	var b strings.Builder
	for _, c := range causes {
		fmt.Fprintf(&b, "%s %s\n", strings.TrimPrefix(c.Type, "FieldValue"), c.Field)
	}
	return b.String()
}

// Lines renders the faults that a test expects as Faults does.
func Lines(s ...string) string {
	if len(s) == 0 {
		return ""
	}
	return strings.Join(s, "\n") + "\n"
}

// Judge reports faults other than those that are wanted, each of which is written "Type path".
func Judge(t *testing.T, name string, got []apierrors.Cause, want ...string) {
	t.Helper()
	if g, w := Faults(got), Lines(want...); g != w {
		t.Errorf("%s: faults:\n%swant:\n%s", name, g, w)
	}
}
