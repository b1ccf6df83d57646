package shimwire

import "io"

// MaxFrame bounds a frame. Environment and arguments of a container are the largest content; Linux limits them to 6
// MiB.
const MaxFrame = 8 << 20

const frameHeader = 9

// Type says what a frame is.
type Type byte

// The calls, the answer to any of them, and the event.
const (
	Hello      Type = 1 + iota // Empty; the answer is a HelloReply.
	Init                       // InitRequest; the first call to a new shim, answered like Hello.
	Start                      // StartRequest; answered by a Container.
	Stop                       // StopRequest; answered by a Container once nothing is left of it.
	Reopen                     // ContainerRequest: open the log file anew.
	Forget                     // ContainerRequest: drop an exited container.
	Exec                       // ExecRequest with two descriptors; answered by an ExecReply.
	Shutdown                   // Empty: kill everything, answer, exit.
	Attach                     // AttachRequest with three descriptors; answered by a Container once its output has ended.
	Resize                     // ResizeRequest; answered by a Container.
	Checkpoint                 // CheckpointRequest with a descriptor, closed when it is over; answered by an ExecReply.
	Reply      Type = 0x80
	Event      Type = 0x81 // Container: something about it has changed.
)

// Frame is one message.
type Frame struct {
	Call uint32
	Type Type
	Body []byte
}

// AppendFrame appends the frame's bytes.
func AppendFrame(b []byte, f Frame) []byte {
	n := uint32(frameHeader - 4 + len(f.Body))
	b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24),
		byte(f.Call), byte(f.Call>>8), byte(f.Call>>16), byte(f.Call>>24), byte(f.Type))
	return append(b, f.Body...)
}

// ReadFrame reads one frame. io.EOF means that the stream ended between frames.
func ReadFrame(r io.Reader) (Frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	n := le32(h[:])
	if n < frameHeader-4 || n > MaxFrame {
		return Frame{}, ErrMalformed
	}
	f := Frame{Call: le32(h[4:]), Type: Type(h[8]), Body: make([]byte, n-(frameHeader-4))}
	if _, err := io.ReadFull(r, f.Body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
