//go:build !linux || !cgo

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "ocihelper makes containers on Linux only, and only where it was built with cgo")
	os.Exit(1)
}
