package scheduler // find revive

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"monoplane.dev/apiserver" // find depguard
)

//go:genrate nothing // find gocheckcompilerdirectives

var _ = apiserver.Answer // find staticcheck

func init() { // find gochecknoinits
	_ = apiserver.Logf("%d", "a string") // find govet
	_ = time.Second * wait(1)            // find durationcheck
	os.Remove("nothing")                 // find errcheck
	io.EOF = errors.New("my own")        // find reassign
	_ = int(len("a"))                    // find unconvert
	_ = unheard()
}

func wait(n int) time.Duration { return time.Duration(n) }

func unused() {} // find unused

// unheard has an error that is not recieved. // find misspell
func unheard() error {
	_, err := os.Open("nothing")
	if err != nil {
		return nil // find nilerr
	}
	if err == io.EOF { // find errorlint
		return err
	}
	err = errors.New("lost") // find ineffassign staticcheck wastedassign
	err = errors.New("kept")
	return err
}

// Get gets.
func Get() (string, error) {
	answer, err := http.Get("http://localhost") // find bodyclose
	if err != nil {
		return "", err
	}
	sum := make([]string, 3)
	sum = append(sum, answer.Status) // find makezero
	for i := range sum {
		i := i // find copyloopvar
		fmt.Println(i)
	}

	_, err = http.NewRequest("GET", "http://localhost", nil) // find usestdlibvars

	fmt.Println("a line that is as long as this one is too long to be read, and it must be said where it is, so that it ends") // find lll

	_ = int(len("b")) //nolint:unconvert // this is excused
	// below: nolintlint
	_ = int(len("c")) //nolint:unconvert
	return sum[0], err
}

//nolint:unconvert // and so is all of this
func excused() int {
	return int(len("d"))
}

var _ = excused
