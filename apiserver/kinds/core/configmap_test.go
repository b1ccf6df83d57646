package core_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"monoplane.dev/apiserver/kinds/core"
	"monoplane.dev/apiserver/kinds/test/kindtest"

	corev1 "monoplane.dev/api/core/v1"
)

// spec: OBJ-4
func TestValidateConfigMap(t *testing.T) {
	full := strings.Repeat("x", 1<<20)
	configMap := func(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
		c := &corev1.ConfigMap{Metadata: kindtest.Meta("c", "d")}
		change(c)
		return c
	}
	kindtest.Judge(t, "the largest", core.ValidateConfigMap(configMap(func(c *corev1.ConfigMap) {
		c.Data = map[string]string{"a": full}
	})))
	kindtest.Judge(t, "a bad key, a key twice, and too much", core.ValidateConfigMap(configMap(func(c *corev1.ConfigMap) {
		c.Data, c.BinaryData = map[string]string{"a b": "", "k": full}, map[string][]byte{"k": []byte("x")}
	})), "Invalid data[a b]", "Invalid data[k]", "TooLong []")
	kindtest.Judge(t, "an immutable one that changes", core.ValidateConfigMapUpdate(configMap(func(c *corev1.ConfigMap) {
		c.Data = map[string]string{"a": "b"}
	}), configMap(func(c *corev1.ConfigMap) {
		c.Immutable, c.BinaryData = proto.Bool(true), map[string][]byte{"x": nil}
	})), "Forbidden immutable", "Forbidden data", "Forbidden binaryData")
}
