//go:build rootonly

package nodens_test

import (
	"fmt"
	"testing"
)

// spec: NET-1
func TestRootEveryWay(t *testing.T) {
	if !onMachine(t, false) {
		return
	}
	w := world(t)
	for _, forwards := range []bool{true, false} {
		t.Run(fmt.Sprintf("forwards=%v", forwards), func(t *testing.T) {
			if !forwards {
				undo := policyDrops(t)
				defer undo()
			}
			n := open(t, config(t))
			testEveryWay(t, ways{
				n: n, reaches: true, elsewhere: map[string]string{"tcp": neighbour + ":80", "udp": neighbour + ":80"},
				clients: map[string]func(string, string) (string, error){
					"the machine": asks, "a pod": asking(podIn(t, n, "a", plain(5))), "another machine": asking(w),
				}})
		})
	}
}
