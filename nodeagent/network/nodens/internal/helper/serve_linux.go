package helper

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"monoplane.dev/nodeagent/network/nodens/internal/wire"
)

// Patience of the helper: for what a caller has to say, and between two looks at whether its socket is still there.
const (
	callTime  = 10 * time.Second
	watchTime = 10 * time.Second
)

type server struct {
	hello    wire.Hello
	ends     chan struct{}
	once     sync.Once
	replaced chan replacement

	setup sync.Mutex     // One setup at a time.
	pods  [64]sync.Mutex // One call at a time for a sandbox: the lock of its hash.
}

// run serves until it is told to end, and returns the exit code.
func run() int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	listen, dir := os.NewFile(ListenFD, Socket), os.NewFile(DirFD, "directory")
	for _, fd := range []int{ListenFD, DirFD} {
		unix.CloseOnExec(fd)
	}
	// Only the first helper has somebody who waits for it; for others the number is any file's.
	var ready, lock *os.File
	if os.Getenv(First) != "" {
		unix.CloseOnExec(ReadyFD)
		unix.CloseOnExec(LockFD)
		ready, lock = os.NewFile(ReadyFD, "ready"), os.NewFile(LockFD, "lock")
		_ = os.Unsetenv(First)
		begin := os.NewFile(BeginFD, "begin")
		if n, _ := begin.Read(make([]byte, 1)); n == 0 {
			fmt.Fprintln(os.Stderr, "the helper was not told to begin")
			return 1
		}
		begin.Close()
	}
	// Callers learn from the socket who has listened on it last: that is how they know the helper.
	if err := unix.Listen(ListenFD, backlog); err != nil {
		fmt.Fprintln(os.Stderr, "the helper cannot listen:", err)
		return 1
	}
	l, err := net.FileListener(listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the helper has no socket to listen on:", err)
		return 1
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &ns); err != nil {
		fmt.Fprintln(os.Stderr, "the helper does not see /proc:", err)
		return 1
	}
	program, err := wire.OwnProgram()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the helper does not know itself:", err)
		return 1
	}
	_, err = os.Stat("/proc/sys/net/ipv6")
	s := &server{ends: make(chan struct{}), replaced: make(chan replacement),
		hello: wire.Hello{Version: wire.Version, Program: program, Namespace: ns.Ino, IPv6: err == nil}}
	mine, err := ownSocket()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the helper's socket is gone:", err)
		return 1
	}
	spares := keep(listen, dir, inherited())
	go s.watch(mine)
	go s.accept(l.(*net.UnixListener))
	if ready != nil {
		_, _ = ready.Write([]byte{1})
		ready.Close()
		lock.Close()
	}
	for {
		select {
		case <-s.ends:
			spares.end()
			return 0
		case by := <-s.replaced:
			now := spares.handOver()
			by.failed <- become(by.program, now)
			spares = keep(listen, dir, now)
		}
	}
}

func (s *server) end() { s.once.Do(func() { close(s.ends) }) }

// socketFile is set in the environment of the helpers and spares of a namespace: which file their socket is.
const socketFile = "MONOPLANE_SOCKET_FILE"

// ownSocket returns which file the helper's socket is. The first helper sees it, while nobody else may bind another.
func ownSocket() (string, error) {
	if mine := os.Getenv(socketFile); mine != "" {
		return mine, nil
	}
	mine, err := socketNow()
	if err != nil {
		return "", err
	}
	return mine, os.Setenv(socketFile, mine)
}

// socketNow returns which file the socket is that callers find.
func socketNow() (string, error) {
	var now unix.Stat_t
	if err := unix.Fstatat(DirFD, Socket, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	return fmt.Sprint(now.Dev, now.Ino), nil
}

// watch ends the helper when nobody can find it any more: another namespace has taken the place of its own, also while
// it was a spare that did not go on.
func (s *server) watch(mine string) {
	for ; ; time.Sleep(watchTime) {
		now, err := socketNow()
		if errors.Is(err, unix.ENOENT) || err == nil && now != mine {
			s.end()
			return
		}
	}
}

func (s *server) accept(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			// Out of descriptors or memory, which passes.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go s.serve(conn)
	}
}

func (s *server) serve(conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(callTime))
	if err := ours(conn); err != nil {
		return
	}
	var request wire.Request
	files, err := wire.Receive(conn, &request)
	if err != nil {
		return
	}
	defer closeAll(files)
	reply := wire.Reply{Hello: s.hello}
	answers, err := s.do(&request, files, &reply)
	if err != nil {
		reply.Fail(err)
	}
	_ = conn.SetDeadline(time.Now().Add(callTime))
	_ = wire.Send(conn, &reply, answers...)
	closeAll(answers)
	if request.End != nil {
		s.end()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// ours tells whether the caller is of the helper's user.
func ours(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil {
		return cerr
	}
	if err != nil {
		return err
	}
	if int(cred.Uid) != os.Geteuid() {
		return errors.New("the caller is another user")
	}
	return nil
}

// do carries a request out, and returns the files of its answer.
func (s *server) do(r *wire.Request, files []*os.File, reply *wire.Reply) (answers []*os.File, err error) {
	switch {
	case r.Replace != nil:
		if len(files) != 1 {
			return nil, fmt.Errorf("the helper is replaced by one program, not %d", len(files))
		}
		by := replacement{program: files[0], failed: make(chan error, 1)}
		select {
		case s.replaced <- by:
			return nil, <-by.failed
		case <-s.ends:
			return nil, errors.New("the helper ends")
		}
	case r.Setup != nil:
		s.setup.Lock()
		defer s.setup.Unlock()
		return nil, s.setUp(r.Setup)
	case r.Attach != nil:
		if len(files) != 1 {
			return nil, fmt.Errorf("a pod is connected with one namespace, not %d", len(files))
		}
		defer s.lock(r.Attach.Sandbox)()
		return nil, attach(r.Attach, files[0])
	case r.Detach != nil:
		defer s.lock(r.Detach.Sandbox)()
		return nil, detach(r.Detach.Sandbox)
	case r.Attached != nil:
		reply.Attached, err = attached()
		return nil, err
	case r.Socket != nil:
		f, err := socketIn(r.Socket, files)
		if err != nil {
			return nil, err
		}
		return []*os.File{f}, nil
	case r.Namespace != nil:
		f, err := namespace(r.Namespace.Kind)
		if err != nil {
			return nil, err
		}
		return []*os.File{f}, nil
	case r.Addresses != nil:
		return nil, changeAddresses(r.Addresses)
	}
	return nil, nil
}

// lock admits one call at a time for a sandbox, and returns how to admit the next.
func (s *server) lock(sandbox string) (unlock func()) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(sandbox))
	mu := &s.pods[hash.Sum32()%uint32(len(s.pods))]
	mu.Lock()
	return mu.Unlock
}
