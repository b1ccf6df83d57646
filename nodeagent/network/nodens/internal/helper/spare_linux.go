package helper

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// SpareArgv0 is the program name under which the program waits for the helper to die.
const SpareArgv0 = "monoplane-spare"

// Files of a spare besides those that it hands on to the helper that it becomes.
const spareFD = 5

// A helper that is killed would take the node namespace with it, and only the first process of a user namespace could
// make another: nobody can enter one later, since a program of Go has several threads. So there are two processes in
// it. The spare waits for the helper's end, which it sees by a pipe, and becomes the helper; a helper sees that its
// spare has ended and starts another. Calls wait meanwhile: both have the listening socket.

// armed is the first byte that a spare reads from its pipe: from then on it becomes the helper when the pipe ends.
// Another byte has it end. It is so in all versions, since a helper that is replaced by one of another program leaves
// it its spare.
const armed = 'a'

// spare waits, and returns the exit code if it is not to become the helper.
func spare() int {
	pipe := os.NewFile(spareFD, "pipe")
	var word [1]byte
	if n, _ := pipe.Read(word[:]); n == 0 || word[0] != armed {
		return 0
	}
	if n, _ := pipe.Read(word[:]); n > 0 {
		return 0
	}
	pipe.Close()
	err := syscall.Exec(wire.Self, []string{Argv0}, os.Environ())
	fmt.Fprintln(os.Stderr, "the spare cannot become the helper:", err)
	return 1
}

// spareProcess is a spare that has been started.
type spareProcess struct {
	process *os.Process
	pipe    *os.File      // Where it is told to end.
	ended   chan struct{} // Closed when it has ended.
}

// endTime is how long a spare may take to end.
const endTime = time.Second

// end tells the spare to end, and waits until it has. One that hangs is killed.
func (p *spareProcess) end() {
	_, _ = p.pipe.Write([]byte{0})
	for {
		select {
		case <-p.ended:
			return
		case <-time.After(endTime):
			_ = p.process.Kill() // It may have ended.
		}
	}
}

// keeper has a spare while the helper lives.
type keeper struct {
	listen, dir *os.File

	stop chan bool // Whether the spare is to go on.
	left chan *spareProcess
}

// keep starts spares, one after the other, until end or handOver. Before, if it is not nil, is one that there is, of
// another program: it ends when the first other is there.
func keep(listen, dir *os.File, before *spareProcess) *keeper {
	k := &keeper{listen: listen, dir: dir, stop: make(chan bool), left: make(chan *spareProcess, 1)}
	go func() { k.left <- k.run(before) }()
	return k
}

// end ends the spare.
func (k *keeper) end() {
	k.stop <- false
	<-k.left
}

// handOver returns the spare, which goes on; nil if there is none at the moment.
func (k *keeper) handOver() *spareProcess {
	k.stop <- true
	return <-k.left
}

func (k *keeper) run(now *spareProcess) *spareProcess {
	for {
		next, err := startSpare(k.listen, k.dir, now == nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, "the helper has no new spare:", err)
		} else {
			if now != nil {
				// There is none between the two writes: better than two, which would both become the helper.
				_, _ = now.pipe.Write([]byte{0})
				_, _ = next.pipe.Write([]byte{armed})
				go now.end() // Should it hang.
			}
			now = next
		}
		var ended chan struct{}
		if err == nil {
			ended = now.ended
		}
		// Not faster than something that kills it again and again, or has no memory for it.
		again := time.After(100 * time.Millisecond)
		for ended != nil || again != nil {
			select {
			case goesOn := <-k.stop:
				if now == nil || goesOn {
					return now
				}
				now.end()
				return nil
			case <-ended:
				now, ended = nil, nil
			case <-again:
				again = nil
			}
		}
	}
}

// startSpare starts one, which is armed from the beginning or not yet.
func startSpare(listen, dir *os.File, isArmed bool) (*spareProcess, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	if isArmed {
		if _, err := write.Write([]byte{armed}); err != nil {
			write.Close()
			return nil, err
		}
	}
	cmd := exec.Cmd{Path: wire.Self, Args: []string{SpareArgv0}, Stderr: os.Stderr,
		ExtraFiles: []*os.File{listen, dir, read}, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, err
	}
	p := &spareProcess{process: cmd.Process, pipe: write, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		write.Close()
		close(p.ended)
	}()
	return p, nil
}
