package helper

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// SpareArgv0 is the program name under which the program waits for the helper to die.
const SpareArgv0 = "monoplane-spare"

// Files of a spare besides those that it hands on to the helper that it becomes.
const spareFD = 5

// A helper that is killed would take the node namespace with it, and only the first process of a user namespace could
// make another: nobody can enter one later, since a program of Go has several threads. So there are two processes in
// it. The spare waits for the helper's end, which it sees by a pipe, and becomes the helper; a helper sees that its
// spare has ended and starts another. Calls wait meanwhile: both have the listening socket.

// spare waits, and returns the exit code if the helper has ended as it was told to.
func spare() int {
	pipe := os.NewFile(spareFD, "pipe")
	var word [1]byte
	if n, _ := pipe.Read(word[:]); n > 0 {
		return 0
	}
	pipe.Close()
	err := syscall.Exec("/proc/self/exe", []string{Argv0}, os.Environ())
	fmt.Fprintln(os.Stderr, "the spare cannot become the helper:", err)
	return 1
}

// keepSpare has a spare while the helper lives. When done is closed, it tells it to end.
func keepSpare(listen, dir *os.File, done <-chan struct{}) {
	for {
		ended, tell, err := startSpare(listen, dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "the helper has no spare:", err)
		}
		select {
		case <-done:
			if err == nil {
				tell()
				<-ended
			}
			return
		case <-ended:
		}
		// Not faster than something that kills it again and again, or has no memory for it.
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startSpare returns when the spare has ended, and how to tell it to. Without a spare, it counts as ended.
func startSpare(listen, dir *os.File) (ended <-chan struct{}, tell func(), err error) {
	end := make(chan struct{})
	read, write, err := os.Pipe()
	if err != nil {
		close(end)
		return end, nil, err
	}
	defer read.Close()
	cmd := exec.Cmd{Path: "/proc/self/exe", Args: []string{SpareArgv0}, Stderr: os.Stderr,
		ExtraFiles: []*os.File{listen, dir, read}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		write.Close()
		close(end)
		return end, nil, err
	}
	go func() {
		_ = cmd.Wait()
		write.Close()
		close(end)
	}()
	return end, func() { _, _ = write.Write([]byte{1}) }, nil
}
