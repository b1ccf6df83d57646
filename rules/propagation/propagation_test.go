package propagation_test

import (
	"slices"
	"testing"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/propagation"
)

// A client's choice counts before a finalizer, and that before the kind's default. spec: OBJ-12
func TestFinalizers(t *testing.T) {
	const (
		foreground = propagation.ForegroundFinalizer
		orphan     = propagation.OrphanFinalizer
		other      = "example.com/hold"
	)
	policy := func(p string) *metav1.DeleteOptions { return &metav1.DeleteOptions{PropagationPolicy: &p} }
	orphans := func(yes bool) *metav1.DeleteOptions { return &metav1.DeleteOptions{OrphanDependents: &yes} }
	for name, x := range map[string]struct {
		has  []string
		opts *metav1.DeleteOptions
		kind propagation.Default
		want []string
	}{
		"nothing said":                    {nil, nil, propagation.Deletes, nil},
		"background":                      {[]string{other}, policy("Background"), propagation.Deletes, []string{other}},
		"foreground":                      {[]string{other}, policy("Foreground"), propagation.Deletes, []string{other, foreground}},
		"orphan":                          {nil, policy("Orphan"), propagation.Deletes, []string{orphan}},
		"the old form":                    {nil, orphans(true), propagation.Deletes, []string{orphan}},
		"the old form, no":                {nil, orphans(false), propagation.Orphans, nil},
		"the kind orphans":                {nil, &metav1.DeleteOptions{}, propagation.Orphans, []string{orphan}},
		"the kind orphans, the client no": {nil, policy("Background"), propagation.Orphans, nil},
		"the kind owns nothing":           {nil, policy("Foreground"), propagation.None, nil},
		"the kind owns nothing, held":     {[]string{orphan, other}, nil, propagation.None, []string{other}},
		"a finalizer before the default":  {[]string{foreground}, nil, propagation.Orphans, []string{foreground}},
		"a finalizer stays":               {[]string{orphan, other}, &metav1.DeleteOptions{}, propagation.Deletes, []string{orphan, other}},
		"another mind":                    {[]string{foreground, other}, policy("Orphan"), propagation.Deletes, []string{other, orphan}},
		"back to background":              {[]string{orphan}, policy("Background"), propagation.Deletes, []string{}},
		"once more":                       {[]string{foreground}, policy("Foreground"), propagation.Deletes, []string{foreground}},
	} {
		before := slices.Clone(x.has)
		got := propagation.Finalizers(x.has, x.opts, x.kind)
		if !slices.Equal(got, x.want) || !slices.Equal(x.has, before) {
			t.Errorf("%s: %v of %v, want %v", name, got, x.has, x.want)
		}
	}
}
