package main

import "slices"

// paired measures a and its limit b in turn, so that a drift of the machine's speed hits both, and returns
// the median of each. The first round warms up and is not counted.
func paired(rounds int, a, b func(round int) (float64, error)) (got, limit float64, err error) {
	var as, bs []float64
	for i := range rounds + 1 {
		x, err := a(i)
		if err != nil {
			return 0, 0, err
		}
		y, err := b(i)
		if err != nil {
			return 0, 0, err
		}
		if i > 0 {
			as, bs = append(as, x), append(bs, y)
		}
	}
	return median(as), median(bs), nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
