package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of a message.
const (
	mostBytes = 16 << 20
	mostFiles = 4
)

// Send writes a message and its files, which stay the caller's.
func Send(conn *net.UnixConn, message any, files ...*os.File) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(body) > mostBytes {
		return fmt.Errorf("a message of %d bytes is larger than %d", len(body), mostBytes)
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			raw, err := f.SyscallConn()
			if err != nil {
				return err
			}
			// Fd would make the file blocking, for the receiver too, since they share its state.
			if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
				return err
			}
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	}
	_, err = conn.Write(body)
	return err
}

// Receive reads a message into one of the same type as was sent, and the files that came with it.
func Receive(conn *net.UnixConn, message any) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			files = nil
		}
	}()
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(4*mostFiles))
	n, oobn, flags, _, err := conn.ReadMsgUnix(head[:], oob)
	if err != nil {
		return nil, err
	}
	if oobn > 0 {
		if files, err = received(oob[:oobn]); err != nil {
			return files, err
		}
	}
	if n == 0 {
		return files, io.ErrUnexpectedEOF
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return files, fmt.Errorf("the files of a message were not taken: it came with more than %d, or this process may "+
			"have no more open", mostFiles)
	}
	if _, err := io.ReadFull(conn, head[n:]); err != nil {
		return files, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > mostBytes {
		return files, fmt.Errorf("a message of %d bytes is larger than %d", size, mostBytes)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(conn, body); err != nil {
		return files, err
	}
	return files, json.Unmarshal(body, message)
}

func received(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// Fail puts an error into a reply.
func (r *Reply) Fail(err error) {
	r.Err = err.Error()
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		r.Errno = int(errno)
	}
}

// Failure returns the error of a reply, which is the kernel's for errors.Is; nil if there is none.
func (r *Reply) Failure() error {
	if r.Err == "" {
		return nil
	}
	return &failure{text: r.Err, errno: syscall.Errno(r.Errno)}
}

type failure struct {
	text  string
	errno syscall.Errno
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() error {
	if f.errno == 0 {
		return nil
	}
	return f.errno
}
