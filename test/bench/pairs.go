package main

import (
	"slices"
	"syscall"
	"time"
)

// pair is what two sides that took turns have reached.
type pair struct {
	got, limit float64 // the medians
	// ratio is the median of the rounds' own ratios, got by limit: the machine's speed, which drifts, is nearly
	// the same in the two halves of a round.
	ratio float64
	// cpu is the median of the rounds' ratios of processor time, got by limit. Other programs on the machine
	// disturb it less than the time that passes.
	cpu float64
}

// paired measures a and its limit b in many short rounds. They take turns, also in who begins a round, so that
// a drift of the machine's speed and what one leaves for the other to do (garbage, dirty pages) hit both alike.
// The first rounds warm up and are not counted.
func paired(rounds int, a, b func(round int) (float64, error)) (pair, error) {
	const warm = 2
	var got, limit, ratio, cpu []float64
	for i := range warm + rounds {
		var value, used [2]float64
		for half := range 2 {
			side := (i + half) % 2
			f := a
			if side == 1 {
				f = b
			}
			before := processorTime()
			v, err := f(i)
			if err != nil {
				return pair{}, err
			}
			value[side], used[side] = v, (processorTime() - before).Seconds()
		}
		if i < warm {
			continue
		}
		got, limit = append(got, value[0]), append(limit, value[1])
		ratio, cpu = append(ratio, value[0]/value[1]), append(cpu, used[0]/used[1])
	}
	return pair{got: median(got), limit: median(limit), ratio: median(ratio), cpu: median(cpu)}, nil
}

// processorTime returns what this process, which holds the client, the server and the limit, has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
