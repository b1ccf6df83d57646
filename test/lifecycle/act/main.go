// Command act is the process of a container, probe or hook in a lifecycle scenario: it does what its arguments say and
// appends what happens to it to a file of marks, one line each. See package lifecycle for the words.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	args := os.Args[1:]
	name := os.Getenv("ACT_NAME")
	switch {
	case len(args) > 0 && args[0] == "check":
		os.Exit(check(name))
	case len(args) > 1 && args[0] == "hook":
		os.Exit(hook(name, args[1], args[2:]))
	}
	os.Exit(live(name, args))
}

// live is the life of a container.
func live(name string, args []string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	begin := time.Now()
	code, after := 0, time.Duration(-1)
	termCode, termAfter := 143, time.Duration(0)
	ignore := false
	health := "0 0"
	for _, arg := range args {
		switch words := strings.Fields(arg); words[0] {
		case "run":
			after = duration(words[1])
		case "exit":
			code = number(words[1])
		case "term":
			if ignore = words[1] == "ignore"; !ignore {
				termAfter, termCode = duration(words[1]), number(words[2])
			}
		case "healthy":
			from, until := duration(words[1]), time.Duration(0)
			if len(words) > 2 {
				until = duration(words[2])
			}
			health = fmt.Sprint(int64(from), " ", int64(until))
		}
	}
	state := fmt.Sprint(begin.UnixNano(), " ", health)
	if err := os.WriteFile(statePath(name), []byte(state), 0o600); err != nil {
		fail(err)
	}
	mark(name, "START")
	end := make(<-chan time.Time)
	if after >= 0 {
		end = time.After(after)
	}
	for {
		select {
		case <-end:
			return leave(name, code)
		case <-signals:
			mark(name, "TERM")
			if !ignore {
				code, end = termCode, time.After(termAfter)
			}
		}
	}
}

func leave(name string, code int) int {
	mark(name, fmt.Sprintf("END(%d)", code))
	return code
}

// check is an exec probe: is the container in the healthy part of its life?
func check(name string) int {
	text, err := os.ReadFile(statePath(name))
	if err != nil {
		fail(err)
	}
	var begin, from, until int64
	if _, err := fmt.Sscan(string(text), &begin, &from, &until); err != nil {
		fail(err)
	}
	age := time.Now().UnixNano() - begin
	if age < from || until > 0 && age >= until {
		fmt.Println("not healthy")
		return 1
	}
	return 0
}

// hook leaves a mark, lets time pass, and leaves another.
func hook(name, what string, args []string) int {
	mark(name, what)
	code := 0
	for _, arg := range args {
		switch words := strings.Fields(arg); words[0] {
		case "run":
			time.Sleep(duration(words[1]))
		case "exit":
			code = number(words[1])
		}
	}
	mark(name, what+"-END")
	return code
}

func statePath(name string) string { return os.Getenv("ACT_JOURNAL") + "." + name }

// mark appends one line in one write: processes of several containers share the file.
func mark(name, what string) {
	f, err := os.OpenFile(os.Getenv("ACT_JOURNAL"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		fail(err)
	}
	_, err = fmt.Fprintf(f, "%d %s %s\n", time.Now().UnixNano(), name, what)
	if err != nil {
		fail(err)
	}
	_ = f.Close()
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		fail(err)
	}
	return d
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fail(err)
	}
	return n
}

func fail(err error) {
	fmt.Println("act:", err)
	os.Exit(99)
}
