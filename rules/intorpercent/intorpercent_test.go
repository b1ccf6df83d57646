package intorpercent_test

import (
	"testing"

	metav1 "monoplane.dev/api/meta/v1"
	"monoplane.dev/rules/intorpercent"
)

func TestAmounts(t *testing.T) {
	for _, x := range []struct {
		v               *metav1.IntOrString
		total, up, down int
		bad             bool
	}{
		{v: nil, total: 10},
		{v: intorpercent.Number(3), total: 10, up: 3, down: 3},
		{v: intorpercent.Text("25%"), total: 10, up: 3, down: 2},
		{v: intorpercent.Text("0%"), total: 10},
		{v: intorpercent.Text("100%"), total: 7, up: 7, down: 7},
		{v: intorpercent.Text("7"), bad: true},
		{v: intorpercent.Text("%"), bad: true},
		{v: intorpercent.Text("-1%"), bad: true},
		{v: intorpercent.Text("1.5%"), bad: true},
		{v: intorpercent.Text("99999999999999999999%"), bad: true},
	} {
		up, err := intorpercent.Up(x.v, x.total)
		if up != x.up || (err != nil) != x.bad {
			t.Errorf("%v of %d, rounded up, is %d, %v; want %d", x.v, x.total, up, err, x.up)
		}
		if down, _ := intorpercent.Down(x.v, x.total); down != x.down {
			t.Errorf("%v of %d, rounded down, is %d; want %d", x.v, x.total, down, x.down)
		}
	}
}
