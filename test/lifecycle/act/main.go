// Command act is the process of a container, probe or hook in a lifecycle scenario: it does what its arguments say and
// appends what happens to it to a file of marks, one line each. See package lifecycle for the words.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	args := os.Args[1:]
	name := os.Getenv("ACT_NAME")
	switch {
	case len(args) > 0 && args[0] == "check":
		os.Exit(check(name))
	case len(args) > 1 && args[0] == "hook":
		awaitProcess(name)
		os.Exit(hook(name, args[1], args[2:]))
	}
	os.Exit(live(name, args))
}

// live is the life of a container.
func live(name string, args []string) int {
	signals := make(chan os.Signal, 1)
	code, after := 0, time.Duration(-1)
	termCode, termAfter := 143, time.Duration(0)
	ignore := false
	var healthy health
	stop := "TERM"
	var shows, serves, looks []string
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
		case "stop":
			stop = words[1]
		case "show":
			shows = append(shows, words[1])
		case "say":
			fmt.Println(strings.Join(words[1:], " "))
		case "leave":
			leaveMessage(strings.Join(words[1:], " "))
		case "eat":
			eat()
		case "users", "terminal", "input", "first", "peer", "follow":
			looks = append(looks, arg)
		case "serve":
			serves = words[1:]
		case "healthy":
			healthy.from = duration(words[1])
			if len(words) > 2 {
				healthy.until = duration(words[2])
			}
		}
	}
	signal.Notify(signals, stops[stop])
	lock, beside := lockName(name)
	defer func() { _ = lock.Close() }()
	if beside {
		mark(name, "BESIDE")
	}
	mark(name, "START")
	healthy.begin = time.Now()
	healthy.tell(name)
	if len(serves) > 0 {
		go serve(name, ":"+serves[0], duration(serves[1]), duration(serves[2]), serves[3:])
	}
	for _, what := range looks {
		look(name, strings.Fields(what))
	}
	for _, what := range shows {
		show(name, what)
	}
	end := make(<-chan time.Time)
	if after >= 0 {
		end = time.After(after)
	}
	for {
		select {
		case <-end:
			return leave(name, code)
		case <-signals:
			mark(name, stop)
			if !ignore {
				code, end = termCode, time.After(termAfter)
			}
		}
	}
}

// stops are the signals that a container may be stopped with.
var stops = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "USR1": syscall.SIGUSR1}

// show marks a variable, or the lines of a file.
func show(name, what string) {
	if variable, is := strings.CutPrefix(what, "$"); is {
		mark(name, variable+"="+os.Getenv(variable))
		return
	}
	text, err := os.ReadFile(what) //nolint:gosec // the scenario says which
	if err != nil {
		fail(err)
	}
	for line := range strings.Lines(string(text)) {
		mark(name, strings.TrimSuffix(line, "\n"))
	}
}

// leaveMessage writes the termination message.
func leaveMessage(text string) {
	f, err := os.OpenFile("/dev/termination-log", os.O_WRONLY, 0)
	if err != nil {
		fail(err)
	}
	if _, err := f.WriteString(text); err != nil {
		fail(err)
	}
	_ = f.Close()
}

// serve listens at an address for a part of the life, and answers each request with 200, or with the health of a
// service of gRPC. Who plays the scenario may hold the port so that nobody else takes it: they share it.
func serve(name, address string, open, shut time.Duration, byGRPC []string) {
	time.Sleep(open)
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, failed)
	}}
	l, err := shared.Listen(context.Background(), "tcp4", address)
	if err != nil {
		fail(err)
	}
	if len(byGRPC) > 0 {
		serveHealth(l, byGRPC[1], shut-open)
		return
	}
	time.AfterFunc(shut-open, func() { _ = l.Close() })
	for {
		c, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		go answer(c, name)
	}
}

// answer answers the one request of a connection, if it brings one. One for /mark/WORD leaves the mark WORD.
func answer(c net.Conn, name string) {
	defer func() { _ = c.Close() }()
	first := ""
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if first == "" {
			first = line
		}
		if strings.TrimSpace(line) == "" {
			if word, is := strings.CutPrefix(strings.Fields(first + " / /")[1], "/mark/"); is {
				mark(name, word)
			}
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
			return
		}
	}
}

// eat takes memory while it is hungry, and never more than does no harm where nothing bounds it.
func eat() {
	const most, bite = 256 << 20, 1 << 20
	var eaten [][]byte
	for len(eaten)*bite < most {
		if _, err := os.Stat(filepath.Join(filepath.Dir(os.Getenv("ACT_JOURNAL")), "hungry")); err != nil {
			return
		}
		more := make([]byte, bite)
		for i := 0; i < bite; i += 4096 {
			more[i] = 1
		}
		eaten = append(eaten, more)
	}
}

func leave(name string, code int) int {
	mark(name, fmt.Sprintf("END(%d)", code))
	return code
}

// check is an exec probe: is the container in the healthy part of its life?
func check(name string) int {
	h := awaitProcess(name)
	age := time.Since(h.begin)
	if age < h.from || h.until > 0 && age >= h.until {
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

// lockName locks the container's own byte of the journal, far beyond its end. The lock is held until the file that is
// returned is closed, or this process ends, however it ends. Beside says that another process of the container has it.
func lockName(name string) (held *os.File, beside bool) {
	f, err := os.OpenFile(os.Getenv("ACT_JOURNAL"), os.O_WRONLY, 0)
	if err != nil {
		fail(err)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 1<<40 + int64(h.Sum32()), Len: 1}
	// The lock belongs to the open file, which processes that this one starts do not get.
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		fail(err)
	}
	return f, err != nil
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
