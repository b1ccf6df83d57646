package taints

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
)

// Parse reads taints as kubelet's --register-with-taints has them: key=value:effect or key:effect.
func Parse(list []string) ([]*corev1.Taint, error) {
	var out []*corev1.Taint
	for _, text := range list {
		t := &corev1.Taint{}
		spec, effect, ok := strings.Cut(text, ":")
		t.Key, t.Value, _ = strings.Cut(spec, "=")
		if t.Effect = effect; !ok || effect == "" {
			return nil, fmt.Errorf("taint %q is not of the form key=value:effect", text)
		}
		out = append(out, t)
	}
	return out, Check(out)
}

// Check returns what is wrong with taints for a node.
func Check(list []*corev1.Taint) error {
	for i, t := range list {
		text := fmt.Sprintf("taint %s=%s:%s", t.GetKey(), t.GetValue(), t.GetEffect())
		if wrong := validation.IsQualifiedName(t.GetKey()); len(wrong) > 0 {
			return fmt.Errorf("%s: the key %q is not valid: %s", text, t.GetKey(), wrong[0])
		}
		if wrong := validation.IsValidLabelValue(t.GetValue()); len(wrong) > 0 {
			return fmt.Errorf("%s: the value %q is not valid: %s", text, t.GetValue(), wrong[0])
		}
		if e := t.GetEffect(); e != NoSchedule && e != PreferNoSchedule && e != NoExecute {
			return fmt.Errorf("%s: the effect %q is not %s, %s or %s", text, e, NoSchedule, PreferNoSchedule, NoExecute)
		}
		if slices.ContainsFunc(list[:i], func(o *corev1.Taint) bool {
			return o.GetKey() == t.GetKey() && o.GetEffect() == t.GetEffect()
		}) {
			return fmt.Errorf("%s: there are two of this key and effect", text)
		}
	}
	return nil
}
