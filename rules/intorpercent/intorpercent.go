// Package intorpercent reads amounts that are written as a number or as a percentage of something: how many pods may
// be missing during an update, "3" or "25%".
//
// It guarantees the answers of Kubernetes, which test/oracle compares. It knows nothing of what the amounts are for.
package intorpercent

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	metav1 "monoplane.dev/api/meta/v1"
)

// Number returns a value that is a number.
func Number(n int32) *metav1.IntOrString { return &metav1.IntOrString{IntVal: n} }

// Text returns a value that is a text, such as "25%".
func Text(s string) *metav1.IntOrString { return &metav1.IntOrString{Type: 1, StrVal: s} }

// IsText says whether a value is a text, which is to be a percentage.
func IsText(v *metav1.IntOrString) bool { return v.GetType() == 1 }

// Percent returns the number before the sign; ok is false for what is not a percentage.
func Percent(v *metav1.IntOrString) (n int, ok bool) {
	digits, ok := strings.CutSuffix(v.GetStrVal(), "%")
	if !IsText(v) || !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

// Up returns how many of total a value is; parts of one count as one. None is 0 of any total.
func Up(v *metav1.IntOrString, total int) (int, error) { return of(v, total, math.Ceil) }

// Down is Up where parts of one do not count.
func Down(v *metav1.IntOrString, total int) (int, error) { return of(v, total, math.Floor) }

func of(v *metav1.IntOrString, total int, round func(float64) float64) (int, error) {
	if !IsText(v) {
		return int(v.GetIntVal()), nil
	}
	n, ok := Percent(v)
	if !ok {
		return 0, fmt.Errorf("%q is neither a number nor a percentage such as \"25%%\"", v.GetStrVal())
	}
	return int(round(float64(n) * float64(total) / 100)), nil
}
