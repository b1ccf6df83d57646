package eviction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal names something that a machine can run out of.
type Signal string

// The signals.
const (
	Memory            Signal = "memory.available"
	AllocatableMemory Signal = "allocatableMemory.available"
	NodeFS            Signal = "nodefs.available"
	NodeFSInodes      Signal = "nodefs.inodesFree"
	ImageFS           Signal = "imagefs.available"
	ImageFSInodes     Signal = "imagefs.inodesFree"
	PIDs              Signal = "pid.available"
)

// The conditions of a node under pressure.
const (
	MemoryPressure = "MemoryPressure"
	DiskPressure   = "DiskPressure"
	PIDPressure    = "PIDPressure"
)

// signals says which condition a signal leads to, and the resource that evictions name.
var signals = map[Signal]struct{ condition, resource string }{
	Memory:            {MemoryPressure, "memory"},
	AllocatableMemory: {MemoryPressure, "memory"},
	NodeFS:            {DiskPressure, "ephemeral-storage"},
	NodeFSInodes:      {DiskPressure, "inodes"},
	ImageFS:           {DiskPressure, "ephemeral-storage"},
	ImageFSInodes:     {DiskPressure, "inodes"},
	PIDs:              {PIDPressure, "pids"},
}

// Resource returns the name of what runs out.
func (s Signal) Resource() string { return signals[s].resource }

// bytes reports whether the signal counts bytes.
func (s Signal) bytes() bool {
	r := s.Resource()
	return r == "memory" || r == "ephemeral-storage"
}

// Amount is so much of something, or a share of all there is.
type Amount struct {
	Quantity int64
	// Share is from 0 to 1; it counts when it is positive.
	Share float64
}

// Of returns the amount, of a capacity.
func (a Amount) Of(capacity int64) int64 {
	if a.Share > 0 {
		return int64(float64(capacity) * a.Share)
	}
	return a.Quantity
}

// Threshold is crossed while less than Value is available.
type Threshold struct {
	Signal Signal
	Value  Amount
	// Grace is how long a soft threshold must be crossed before pods go. Hard ones have none.
	Grace time.Duration
	// Reclaim is how much more than Value must become available before the threshold is no longer crossed.
	Reclaim Amount
}

// Hard reports whether pods go as soon as the threshold is crossed, and get no time.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Settings are thresholds as they are written: by signal, such as "memory.available", an amount such as "100Mi", "10%"
// or "30s".
type Settings struct {
	// Hard replaces DefaultHard when it is not nil. An amount of 0 switches a threshold off.
	Hard map[string]string
	// Soft thresholds need a period each, in SoftGrace.
	Soft, SoftGrace map[string]string
	// MinimumReclaim holds for hard and soft ones.
	MinimumReclaim map[string]string
	// MaxGrace bounds the time that a pod gets at a soft threshold; the pod's own holds where it is shorter. No time at
	// all when zero.
	MaxGrace time.Duration
	// Transition is how long a condition stays after the last crossing; 5 min when zero.
	Transition time.Duration
}

// DefaultHard returns the hard thresholds of a machine of which nothing is said. They leave less of a disk free than
// kubelets do: a directory on somebody's large disk is the rule here, and not a disk of the node's own.
func DefaultHard() map[string]string {
	return map[string]string{
		string(Memory): "100Mi", string(NodeFS): "1Gi", string(NodeFSInodes): "1%", string(ImageFS): "1Gi",
		string(ImageFSInodes): "1%",
	}
}

// DefaultTransition is how long a condition stays after the last crossing.
const DefaultTransition = 5 * time.Minute

// Thresholds reads settings. Whatever is wrong is said at once.
func (s Settings) Thresholds() ([]Threshold, error) {
	hard := s.Hard
	if hard == nil {
		hard = DefaultHard()
	}
	var out []Threshold
	var errs []error
	for _, of := range []struct {
		name string
		text map[string]string
		soft bool
	}{{"hard", hard, false}, {"soft", s.Soft, true}} {
		for _, name := range slices.Sorted(maps.Keys(of.text)) {
			t := Threshold{Signal: Signal(name)}
			value, err := t.Signal.amount(of.text[name])
			if err == nil && of.soft {
				t.Grace, err = time.ParseDuration(s.SoftGrace[name])
				if err == nil && t.Grace <= 0 {
					err = errors.New("its grace period must be positive")
				}
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s eviction threshold %s: %w", of.name, name, err))
				continue
			}
			t.Value = value
			if more, ok := s.MinimumReclaim[name]; ok {
				if t.Reclaim, err = t.Signal.amount(more); err != nil {
					errs = append(errs, fmt.Errorf("minimum reclaim of %s: %w", name, err))
				}
			}
			if value == (Amount{}) {
				continue
			}
			out = append(out, t)
			if t.Signal == Memory && t.Hard() {
				t.Signal = AllocatableMemory
				out = append(out, t)
			}
		}
	}
	for name := range s.SoftGrace {
		if _, ok := s.Soft[name]; !ok {
			errs = append(errs, fmt.Errorf("grace period of %s: there is no such soft threshold", name))
		}
	}
	for name := range s.MinimumReclaim {
		if _, ok := signals[Signal(name)]; !ok {
			errs = append(errs, fmt.Errorf("minimum reclaim of %s: there is no such signal", name))
		}
	}
	return out, errors.Join(errs...)
}

// amount reads an amount of the signal.
func (s Signal) amount(text string) (Amount, error) {
	if _, ok := signals[s]; !ok || s == AllocatableMemory {
		return Amount{}, fmt.Errorf("%q is no signal; they are memory.available, nodefs.available, nodefs.inodesFree, "+
			"imagefs.available, imagefs.inodesFree and pid.available", string(s))
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.ParseFloat(share, 64)
		if err != nil || n < 0 || n > 100 {
			return Amount{}, fmt.Errorf("%q is no percentage from 0%% to 100%%", text)
		}
		return Amount{Share: n / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return Amount{}, fmt.Errorf("%q is no amount such as 100Mi or 10%%", text)
	}
	return Amount{Quantity: q.Value()}, nil
}
