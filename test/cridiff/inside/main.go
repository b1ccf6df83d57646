// Command inside tells what a container sees of itself and of its machine: it prints one JSON object of strings, each
// under a name that says where it comes from, so that what two runtimes give the same container can be compared line
// by line. Nothing that it tries changes anything beyond the container.
//
//	inside            prints, then waits for SIGTERM and ends with 7
//	inside … once     prints and ends with 0
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// exitCode is what a container that was asked to end ends with.
const exitCode = 7

// view is what is seen, by name.
type view map[string]string

// set notes a value or why there is none.
func (v view) set(name, value string, err error) {
	if err != nil {
		value = "error: " + reason(err)
	}
	v[name] = value
}

// reason is an error without the paths in it.
func reason(err error) string {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err.Error()
		}
		err = inner.Unwrap()
	}
}

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	v := view{}
	v.process()
	v.files()
	v.mounts()
	v.devices()
	v.kernel()
	v.calls()
	text, err := json.Marshal(v)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(text))
	if os.Args[len(os.Args)-1] == "once" {
		return
	}
	<-end
	os.Exit(exitCode)
}
