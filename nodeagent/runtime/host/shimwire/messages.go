package shimwire

// Version is the newest dialect that this code speaks. A shim tells its own in HelloReply.
const Version = 7

// Views is the first version whose shims know mounts and security settings. An older one would ignore them.
const Views = 3

// Version4 is the first version whose shims know terminals and sub paths of mounts. An older one would ignore them.
const Version4 = 4

// Streams is the first version whose shims give an Exec an input or a terminal, and let clients attach.
const Streams = 5

// Bundles is the first version whose shims make containers from bundles, and namespaces for their pods.
const Bundles = 6

// Checkpoints is the first version whose shims have checkpoints of such containers made.
const Checkpoints = 7

// InitRequest tells a new shim which pod it is for. Its working directory is already the pod's.
type InitRequest struct {
	SandboxID string
	BootID    string
	Marker    uint64

	// Hostname is the pod's; empty leaves it that of the machine.
	Hostname string
	// NoView tells why the shim was started without the privileges that a view needs; empty when it has them.
	NoView string

	// OwnIPC and OwnNetwork give the pod namespaces of its own, and its host name too. They take a Bundles shim.
	OwnIPC, OwnNetwork bool
	// SharePID gives all containers of the pod one namespace of processes, with an init that reaps.
	SharePID bool
	// Sysctls are settings of the pod's namespaces, as "NAME=VALUE".
	Sysctls []string
	// UIDs and GIDs give the pod a user namespace, which owns its other ones, with these lines of uid_map and gid_map:
	// "INSIDE OUTSIDE COUNT". The pod has an IPC of its own then.
	UIDs, GIDs []string
}

// Encode returns the body.
func (m *InitRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.SandboxID)
	e.String(2, m.BootID)
	e.Int(3, int64(m.Marker))
	e.String(4, m.Hostname)
	e.String(5, m.NoView)
	e.Bool(6, m.OwnIPC)
	e.Bool(7, m.OwnNetwork)
	e.Bool(8, m.SharePID)
	e.Strings(9, m.Sysctls)
	e.Strings(10, m.UIDs)
	e.Strings(11, m.GIDs)
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
		case 4:
			m.Hostname = f.Text()
		case 5:
			m.NoView = f.Text()
		case 6:
			m.OwnIPC = f.Number() != 0
		case 7:
			m.OwnNetwork = f.Number() != 0
		case 8:
			m.SharePID = f.Number() != 0
		case 9:
			m.Sysctls = append(m.Sysctls, f.Text())
		case 10:
			m.UIDs = append(m.UIDs, f.Text())
		case 11:
			m.GIDs = append(m.GIDs, f.Text())
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
	NoView     string // Why the pod has no host name of its own, nor can its containers have a view of their own.
	Init       int64  // The process 1 that the containers of the pod share; 0 when they share none.
	Users      int64  // The shim's descriptor of the pod's user namespace; 0 when it has none.
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
	e.String(8, m.NoView)
	e.Int(9, m.Init)
	e.Int(10, m.Users)
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
		case 8:
			m.NoView = f.Text()
		case 9:
			m.Init = f.Number()
		case 10:
			m.Users = f.Number()
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

	// Stdin gives the container an input that stays open, and silent until somebody attaches, instead of one that is at
	// its end.
	Stdin bool

	// All below needs a Views shim.
	Mounts       []Mount // In the order in which they are made.
	ReadOnlyRoot bool    // All that is not one of Mounts cannot be written to.
	NoNewPrivs   bool
	SetCaps      bool // Caps is all that the container has or can get, and Ambient what a user other than root keeps.
	Caps         int64
	Ambient      int64
	Seccomp      string // A classic BPF program, as the kernel takes it.
	AppArmor     string // The profile that the command changes to.

	// Of the kernel's files, those that the container cannot see, and those that it cannot change. A shim of version 3
	// does not know them. They are left out where the container cannot have a view.
	MaskedPaths, ReadOnlyPaths []string

	// Terminal gives the container a terminal, as its input, its output and its errors. It needs a Version4 shim.
	Terminal bool

	// Bundle is the directory in which the container is described to the helper that makes it (see cmd/ocihelper);
	// empty for one whose root is the machine's. Beside it only ContainerID, LogPath, StopSignal, the score, the cgroup
	// directories, Expiry, Stdin, Terminal and Joins count. It needs a Bundles shim.
	Bundle string
	// Joins has the shim put a container with a bundle into its cgroups, because the helper may not.
	Joins bool
}

// IsPlain tells whether the container needs nothing of what a Views shim offers.
func (m *StartRequest) IsPlain() bool {
	return !m.HasView() && !m.IsConfined()
}

// IsConfined tells whether the processes of the container are to have fewer privileges than their user has.
func (m *StartRequest) IsConfined() bool {
	return m.NoNewPrivs || m.SetCaps || m.Seccomp != "" || m.AppArmor != ""
}

// HasView tells whether the container is to have a mount namespace of its own.
func (m *StartRequest) HasView() bool { return len(m.Mounts) > 0 || m.ReadOnlyRoot || m.IsMasked() }

// IsMasked tells whether the container is to have less of the kernel's files than the machine.
func (m *StartRequest) IsMasked() bool { return len(m.MaskedPaths) > 0 || len(m.ReadOnlyPaths) > 0 }

// IsViewOptional tells whether the container runs all the same where it cannot have a view.
func (m *StartRequest) IsViewOptional() bool {
	for _, mt := range m.Mounts {
		if !mt.Optional {
			return false
		}
	}
	return !m.ReadOnlyRoot
}

// NeedsVersion4 tells whether an older shim would leave out what the container cannot do without.
func (m *StartRequest) NeedsVersion4() bool {
	for _, mt := range m.Mounts {
		if mt.SubPath != "" {
			return true
		}
	}
	return m.Terminal
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
	for i := range m.Mounts {
		e.put(16, string(m.Mounts[i].Encode()))
	}
	e.Bool(17, m.ReadOnlyRoot)
	e.Bool(18, m.NoNewPrivs)
	e.Bool(19, m.SetCaps)
	e.Int(20, m.Caps)
	e.Int(21, m.Ambient)
	e.String(22, m.Seccomp)
	e.String(23, m.AppArmor)
	e.Bool(24, m.Stdin)
	e.Strings(25, m.MaskedPaths)
	e.Strings(26, m.ReadOnlyPaths)
	e.Bool(27, m.Terminal)
	e.String(28, m.Bundle)
	e.Bool(29, m.Joins)
	return e.Bytes()
}

// Decode reads the body.
func (m *StartRequest) Decode(body []byte) error {
	var bad error
	err := Decode(body, func(f Field) {
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
		case 16:
			var mt Mount
			if err := mt.Decode(f.Value); err != nil {
				bad = err
			}
			m.Mounts = append(m.Mounts, mt)
		case 17:
			m.ReadOnlyRoot = f.Number() != 0
		case 18:
			m.NoNewPrivs = f.Number() != 0
		case 19:
			m.SetCaps = f.Number() != 0
		case 20:
			m.Caps = f.Number()
		case 21:
			m.Ambient = f.Number()
		case 22:
			m.Seccomp = f.Text()
		case 23:
			m.AppArmor = f.Text()
		case 24:
			m.Stdin = f.Number() != 0
		case 25:
			m.MaskedPaths = append(m.MaskedPaths, f.Text())
		case 26:
			m.ReadOnlyPaths = append(m.ReadOnlyPaths, f.Text())
		case 27:
			m.Terminal = f.Number() != 0
		case 28:
			m.Bundle = f.Text()
		case 29:
			m.Joins = f.Number() != 0
		}
	})
	if err == nil {
		err = bad
	}
	return err
}

// StopRequest asks for a container's end: its stop signal at once, KILL to all that is left after Timeout.
type StopRequest struct {
	ContainerID string
	Timeout     int64 // Nanoseconds; 0 or less kills at once.
	// Begun is when the runtime began with this stop, by the boot clock, in nanoseconds; 0 in those of older runtimes.
	// A request that comes over another connection as well is the same stop by this, whose grace does not begin anew.
	Begun int64
}

// Encode returns the body.
func (m *StopRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.Int(2, m.Timeout)
	e.Int(3, m.Begun)
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
		case 3:
			m.Begun = f.Number()
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

// ExecRequest runs one more process in a container. The frame carries two descriptors: its output and its errors. A
// third one before them is its input, which takes a Streams shim; those behind them are kept open until it has ended.
type ExecRequest struct {
	ContainerID string
	Args        []string
	Timeout     int64 // Nanoseconds; 0 means no limit.
	// Terminal says that the descriptors are ends of a terminal, which becomes the controlling one of the process. It
	// takes a Streams shim.
	Terminal bool
	// Console says that the first descriptor is a socket that gets the terminal, which the command makes in its
	// container. It takes a container that was made from a bundle.
	Console bool
	// Width and Height are what that terminal begins with; 0 leaves it without a size.
	Width, Height int64
}

// Encode returns the body.
func (m *ExecRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.Strings(2, m.Args)
	e.Int(3, m.Timeout)
	e.Bool(4, m.Terminal)
	e.Bool(5, m.Console)
	e.Int(6, m.Width)
	e.Int(7, m.Height)
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
		case 4:
			m.Terminal = f.Number() != 0
		case 5:
			m.Console = f.Number() != 0
		case 6:
			m.Width = f.Number()
		case 7:
			m.Height = f.Number()
		}
	})
}

// AttachRequest joins a container's input and output. The frame carries three descriptors, which do not block: what
// is written to the container, and where its output and its errors are to go from now on.
type AttachRequest struct {
	ContainerID string
	// Once closes the container's input at the end of what is written to it.
	Once bool
}

// Encode returns the body.
func (m *AttachRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.Bool(2, m.Once)
	return e.Bytes()
}

// Decode reads the body.
func (m *AttachRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.ContainerID = f.Text()
		case 2:
			m.Once = f.Number() != 0
		}
	})
}

// ResizeRequest tells the terminal of a container its size.
type ResizeRequest struct {
	ContainerID   string
	Width, Height int64
}

// Encode returns the body.
func (m *ResizeRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.Int(2, m.Width)
	e.Int(3, m.Height)
	return e.Bytes()
}

// Decode reads the body.
func (m *ResizeRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.ContainerID = f.Text()
		case 2:
			m.Width = f.Number()
		case 3:
			m.Height = f.Number()
		}
	})
}

// CheckpointRequest has the processes of a container that was made from a bundle written to files. The container goes
// on running, also when that fails, or when the caller goes away.
type CheckpointRequest struct {
	ContainerID string
	Dir         string // An empty directory, where the files are to be.
	Criu        string // The program that writes them.
	Timeout     int64  // Nanoseconds.
}

// Encode returns the body.
func (m *CheckpointRequest) Encode() []byte {
	var e Encoder
	e.String(1, m.ContainerID)
	e.String(2, m.Dir)
	e.String(3, m.Criu)
	e.Int(4, m.Timeout)
	return e.Bytes()
}

// Decode reads the body.
func (m *CheckpointRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.ContainerID = f.Text()
		case 2:
			m.Dir = f.Text()
		case 3:
			m.Criu = f.Text()
		case 4:
			m.Timeout = f.Number()
		}
	})
}

// ExecReply tells how an Exec, or a Checkpoint, ended.
type ExecReply struct {
	ExitCode int64
	TimedOut bool
	Error    string // Why it was not started, or what has failed.
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
