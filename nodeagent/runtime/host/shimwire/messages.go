package shimwire

// Version is the newest dialect that this code speaks. A shim tells its own in HelloReply.
const Version = 2

// InitRequest tells a new shim which pod it is for. Its working directory is already the pod's.
type InitRequest struct {
	SandboxID string
	BootID    string
	Marker    uint64
}

// Encode returns the body.
func (m *InitRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.SandboxID)
	e.String(2, m.BootID)
	e.Int(3, int64(m.Marker))
	return e.Bytes()
}

// Decode reads the body.
func (m *InitRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.SandboxID = f.Text()
		case 2:
			m.BootID = f.Text()
		case 3:
			m.Marker = uint64(f.Number())
		}
	})
}

// HelloReply is what a shim tells of itself.
type HelloReply struct {
	Version    int64
	SandboxID  string
	BootID     string
	PID        int64
	Born       int64 // The start time of PID in clock ticks since boot.
	Containers []Container
	Error      string // Why Init failed.
}

// Encode returns the body.
func (m *HelloReply) Encode() []byte {
	var e Encoder
	e.Int(1, m.Version)
	e.String(2, m.SandboxID)
	e.String(3, m.BootID)
	e.Int(4, m.PID)
	for i := range m.Containers {
		e.put(5, string(m.Containers[i].Encode()))
	}
	e.String(6, m.Error)
	e.Int(7, m.Born)
	return e.Bytes()
}

// Decode reads the body.
func (m *HelloReply) Decode(body []byte) error {
	var bad error
	err := Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.Version = f.Number()
		case 2:
			m.SandboxID = f.Text()
		case 3:
			m.BootID = f.Text()
		case 4:
			m.PID = f.Number()
		case 5:
			var c Container
			if err := c.Decode(f.Value); err != nil {
				bad = err
			}
			m.Containers = append(m.Containers, c)
		case 6:
			m.Error = f.Text()
		case 7:
			m.Born = f.Number()
		}
	})
	if err == nil {
		err = bad
	}
	return err
}

// StartRequest says all about a container that its shim needs. The shim starts a ContainerID at most once.
type StartRequest struct {
	ContainerID string
	Args        []string
	Env         []string
	Dir         string
	LogPath     string // Empty: output is read and dropped.
	StopSignal  int64  // 0 means SIGTERM.

	OOMScoreAdj    int64
	SetOOMScoreAdj bool

	SetUser  bool
	UID, GID int64
	Groups   []int64

	Unified string   // The container's cgroup2 directory, if it has one.
	V1      []string // Its cgroup v1 directories.

	// Expiry is when the request loses its meaning, in nanoseconds since the machine has started (sys.BootTime): a
	// shim that comes to the fork later refuses the container for good. 0 means never. A shim of version 1 does not
	// know it.
	Expiry int64
}

// Encode returns the body.
func (m *StartRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.Strings(2, m.Args)
	e.Strings(3, m.Env)
	e.String(4, m.Dir)
	e.String(5, m.LogPath)
	e.Int(6, m.StopSignal)
	e.Int(7, m.OOMScoreAdj)
	e.Bool(8, m.SetOOMScoreAdj)
	e.Bool(9, m.SetUser)
	e.Int(10, m.UID)
	e.Int(11, m.GID)
	e.Ints(12, m.Groups)
	e.String(13, m.Unified)
	e.Strings(14, m.V1)
	e.Int(15, m.Expiry)
	return e.Bytes()
}

// Decode reads the body.
func (m *StartRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.ContainerID = f.Text()
		case 2:
			m.Args = append(m.Args, f.Text())
		case 3:
			m.Env = append(m.Env, f.Text())
		case 4:
			m.Dir = f.Text()
		case 5:
			m.LogPath = f.Text()
		case 6:
			m.StopSignal = f.Number()
		case 7:
			m.OOMScoreAdj = f.Number()
		case 8:
			m.SetOOMScoreAdj = f.Number() != 0
		case 9:
			m.SetUser = f.Number() != 0
		case 10:
			m.UID = f.Number()
		case 11:
			m.GID = f.Number()
		case 12:
			m.Groups = append(m.Groups, f.Number())
		case 13:
			m.Unified = f.Text()
		case 14:
			m.V1 = append(m.V1, f.Text())
		case 15:
			m.Expiry = f.Number()
		}
	})
}

// StopRequest asks for a container's end: its stop signal at once, KILL to all that is left after Timeout.
type StopRequest struct {
	ContainerID string
	Timeout     int64 // Nanoseconds; 0 or less kills at once.
}

// Encode returns the body.
func (m *StopRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.Int(2, m.Timeout)
	return e.Bytes()
}

// Decode reads the body.
func (m *StopRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.ContainerID = f.Text()
		case 2:
			m.Timeout = f.Number()
		}
	})
}

// ContainerRequest names the container that a call is about.
type ContainerRequest struct{ ContainerID string }

// Encode returns the body.
func (m *ContainerRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	return e.Bytes()
}

// Decode reads the body.
func (m *ContainerRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		if f.Tag == 1 {
			m.ContainerID = f.Text()
		}
	})
}

// ExecRequest runs one more process in a container. The frame carries two descriptors: its output and its errors.
type ExecRequest struct {
	ContainerID string
	Args        []string
	Timeout     int64 // Nanoseconds; 0 means no limit.
}

// Encode returns the body.
func (m *ExecRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.Strings(2, m.Args)
	e.Int(3, m.Timeout)
	return e.Bytes()
}

// Decode reads the body.
func (m *ExecRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.ContainerID = f.Text()
		case 2:
			m.Args = append(m.Args, f.Text())
		case 3:
			m.Timeout = f.Number()
		}
	})
}

// ExecReply tells how an Exec ended.
type ExecReply struct {
	ExitCode int64
	TimedOut bool
	Error    string // Why it was not started.
}

// Encode returns the body.
func (m *ExecReply) Encode() []byte {
	var e Encoder
	e.Int(1, m.ExitCode)
	e.Bool(2, m.TimedOut)
	e.String(3, m.Error)
	return e.Bytes()
}

// Decode reads the body.
func (m *ExecReply) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.ExitCode = f.Number()
		case 2:
			m.TimedOut = f.Number() != 0
		case 3:
			m.Error = f.Text()
		}
	})
}
