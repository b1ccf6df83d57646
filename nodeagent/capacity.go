package nodeagent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/codec/value"
	"monoplane.dev/nodeagent/eviction"
	rules "monoplane.dev/rules/resources"
)

// reservable are the resources of which something can be kept from pods.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

// CheckReserved returns what is wrong with amounts that are to be kept from pods, by resource.
func CheckReserved(reserved map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		if !slices.Contains(reservable, name) {
			errs = append(errs, fmt.Errorf("%q cannot be reserved; cpu, memory, ephemeral-storage and pid can", name))
			continue
		}
		if q, err := resource.ParseQuantity(reserved[name]); err != nil || q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("reserved %s: %q is no amount such as 500m or 1Gi", name, reserved[name]))
		}
	}
	return errors.Join(errs...)
}

// completeCapacity says how many pods the machine takes, and checks what is kept from them.
func (c *Config) completeCapacity() error {
	var err error
	if c.thresholds, err = c.Eviction.Thresholds(); err != nil {
		return err
	}
	c.ImageGC = c.ImageGC.Complete()
	if c.MaxPods > 0 || c.PodsPerCore > 0 {
		c.Machine.Capacity = maps.Clone(c.Machine.Capacity)
		have := rules.ListOf(c.Machine.Capacity)
		pods, _ := have.Get("pods")
		most := pods.Value()
		if c.MaxPods > 0 {
			most = int64(c.MaxPods)
		}
		if cpu, ok := have.Get("cpu"); ok && c.PodsPerCore > 0 {
			most = min(most, int64(c.PodsPerCore)*cpu.Value())
		}
		c.Machine.Capacity["pods"] = value.NewQuantity(*resource.NewQuantity(most, resource.DecimalSI))
	}
	return errors.Join(CheckReserved(c.SystemReserved), CheckReserved(c.KubeReserved))
}

// reserved returns how much of a resource is kept from pods for the system and the agent, in units.
func (c *Config) reserved(name string) int64 {
	q := c.reservedQuantity(name)
	return q.Value()
}

func (c *Config) reservedQuantity(name string) resource.Quantity {
	var sum resource.Quantity
	for _, m := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		if q, err := resource.ParseQuantity(m[name]); err == nil {
			sum.Add(q)
		}
	}
	return sum
}

// allocatable returns what pods may use: all there is, without what is reserved and what hard thresholds keep free.
// What is set aside for huge pages is not memory for anything else. spec: NODE-1
func (c *Config) allocatable() map[string]*metav1.Quantity {
	out := copyQuantities(c.Machine.Capacity)
	for _, name := range []string{"cpu", "memory", "ephemeral-storage"} {
		have, ok := rules.ListOf(c.Machine.Capacity).Get(name)
		if !ok {
			continue
		}
		left := have.DeepCopy()
		left.Sub(c.reservedQuantity(name))
		for _, a := range rules.ListOf(c.Machine.Capacity) {
			if name == "memory" && rules.IsHugePages(a.Name) {
				left.Sub(a.Quantity) // it is set aside for them, used or not
			}
		}
		if !c.Simulated {
			for _, t := range c.thresholds {
				keeps := t.Signal == eviction.Memory && name == "memory" ||
					t.Signal == eviction.NodeFS && name == "ephemeral-storage"
				if keeps && t.Hard() {
					left.Sub(*resource.NewQuantity(t.Value.Of(have.Value()), resource.BinarySI))
				}
			}
		}
		if left.Sign() < 0 {
			left = resource.Quantity{}
		}
		if left.Cmp(have) != 0 {
			out[name] = value.NewQuantity(left)
		}
	}
	return out
}
