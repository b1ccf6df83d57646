package main

import (
	"os"

	"monoplane.dev/internal/pages"
)

// releaseProgram gives back the memory in which the process sees its own program. Starting reads a good deal that is
// not needed afterwards, such as the descriptions of all messages. What is comes back from the system's page cache
// within milliseconds.
func releaseProgram() {
	program, err := os.Executable()
	if err == nil {
		_ = pages.Release(program, pages.ReadOnly) // it stays where it is
	}
}
