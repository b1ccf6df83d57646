// Package portion reads fields that are a number or a percentage of some total: how many pods of a budget must stay,
// how many of a rollout may be missing.
//
// It guarantees the answers of Kubernetes, which test/oracle compares over random values. It does not judge whether a
// value makes sense; that is validation's part.
package portion

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	metav1 "monoplane.dev/api/meta/v1"
)

// text is the type of an IntOrString that is text.
const text = 1

// Text returns a value that is text, such as "25%".
func Text(s string) *metav1.IntOrString { return &metav1.IntOrString{Type: text, StrVal: s} }

// IsPercentage says whether the value is text, which means a percentage, and not a number.
func IsPercentage(v *metav1.IntOrString) bool { return v.GetType() == text }

// Percent returns the number before the sign of a percentage. It is the largest or smallest there is for one that is
// out of range; ok is false for what is no percentage.
func Percent(s string) (value int, ok bool) {
	digits, ok := strings.CutSuffix(s, "%")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	value, _ = strconv.Atoi(digits)
	return value, true
}

// Up returns the number, or that percentage of total, rounded up.
func Up(v *metav1.IntOrString, total int) (int, error) { return of(v, total, math.Ceil) }

// Down returns the number, or that percentage of total, rounded down.
func Down(v *metav1.IntOrString, total int) (int, error) { return of(v, total, math.Floor) }

func of(v *metav1.IntOrString, total int, round func(float64) float64) (int, error) {
	if !IsPercentage(v) {
		return int(v.GetIntVal()), nil
	}
	value, ok := Percent(v.GetStrVal())
	if !ok {
		return 0, fmt.Errorf("%q is not a percentage", v.GetStrVal())
	}
	return int(round(float64(value) * float64(total) / 100)), nil
}
