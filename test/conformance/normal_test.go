package conformance

import (
	"strings"
	"testing"
)

// Which version was built does not matter to what is compared, nor does it change what else looks like it.
//
// spec: CLI-2
func TestToldVersion(t *testing.T) {
	const output = `NAME     STATUS   ROLES    AGE   VERSION
node-0   Ready    <none>   5s    %s
node-1   Ready    <none>   5s    %s   127.0.0.1   <none>
    kubeletVersion: %s
      "kubeletVersion": "%s",
      Kubelet Version:  %s
`
	const other = `    terminationMessagePath: /dev/termination-log
      monoplane.dev/machine-key: KEY
      name: dev
`
	filled := func(version string) string { return strings.ReplaceAll(output, "%s", version) + other }
	for _, version := range []string{"dev", "v1.2.3", "5b33f2ca-dirty"} {
		if got := toldVersion(filled(version), version, "v1.36.3"); got != filled("v1.36.3") {
			t.Errorf("of %s is made\n%s", version, got)
		}
	}
}
