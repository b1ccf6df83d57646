package shimwire

// Propagation says which mounts that come later are seen on the other side.
type Propagation int64

// The propagations: none; from the machine into the container; both ways.
const (
	Private Propagation = iota
	FromHost
	Bidirectional
)

// Mount is one thing that a container sees at a path of its own.
type Mount struct {
	HostPath, ContainerPath string
	// SubPath is what is mounted of the host path, a directory; empty for all of it. No link leads it out of there. It
	// needs a Version4 shim.
	SubPath  string
	ReadOnly bool
	// Recursive makes what is mounted below read-only too.
	Recursive   bool
	Propagation Propagation
	// Optional is set for what the container can do without where it cannot have a view.
	Optional bool
}

// Encode returns the body.
func (m *Mount) Encode() []byte {
	var e Encoder
	e.String(1, m.HostPath)
	e.String(2, m.ContainerPath)
	e.Bool(3, m.ReadOnly)
	e.Bool(4, m.Recursive)
	e.Int(5, int64(m.Propagation))
	e.Bool(6, m.Optional)
	e.String(7, m.SubPath)
	return e.Bytes()
}

// Decode reads the body.
func (m *Mount) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.HostPath = f.Text()
		case 2:
			m.ContainerPath = f.Text()
		case 3:
			m.ReadOnly = f.Number() != 0
		case 4:
			m.Recursive = f.Number() != 0
		case 5:
			m.Propagation = Propagation(f.Number())
		case 6:
			m.Optional = f.Number() != 0
		case 7:
			m.SubPath = f.Text()
		}
	})
}

// SetupRequest tells a setup process what to make of itself. It travels from the shim to its child only, which are
// the same program.
type SetupRequest struct {
	Start  []byte   // The StartRequest of the container.
	Args   []string // The command.
	Parent int64    // The shim's pid.
	Join   bool     // Enter the mount namespace that came as a descriptor, instead of making one.
}

// Encode returns the body.
func (m *SetupRequest) Encode() []byte {
	var e Encoder
	e.String(1, string(m.Start))
	e.Strings(2, m.Args)
	e.Int(3, m.Parent)
	e.Bool(4, m.Join)
	return e.Bytes()
}

// Decode reads the body.
func (m *SetupRequest) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			m.Start = f.Value
		case 2:
			m.Args = append(m.Args, f.Text())
		case 3:
			m.Parent = f.Number()
		case 4:
			m.Join = f.Number() != 0
		}
	})
}
