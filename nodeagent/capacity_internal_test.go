package nodeagent

import (
	"testing"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/nodeagent/hostinfo"
)

// What is set aside for huge pages can be had as such, and not as memory. spec: NODE-1
func TestHugePagesAreNoOtherMemory(t *testing.T) {
	for pages, want := range map[string]string{"0": "9Gi", "2Gi": "7Gi", "20Gi": "0"} {
		c := Config{
			SystemReserved: map[string]string{"memory": "1Gi"}, Simulated: true, // there are no thresholds
			Machine: hostinfo.Facts{Capacity: map[string]*metav1.Quantity{
				"memory": {String_: "10Gi"}, "hugepages-2Mi": {String_: pages}, "hugepages-1Gi": {String_: "0"},
			}},
		}
		if err := c.completeCapacity(); err != nil {
			t.Fatal(err)
		}
		got := c.allocatable()
		have, err := value.Quantity(got["memory"])
		wanted, _ := value.Quantity(&metav1.Quantity{String_: want})
		if err != nil || have.Cmp(wanted) != 0 || got["hugepages-2Mi"].GetString_() != pages {
			t.Errorf("with %s of huge pages: %v, %v", pages, got, err)
		}
	}
}
