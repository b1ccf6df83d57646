package shimwire

// Phase is how far a container has come.
//
//	          intent on disk           process started          process 1 is gone        nothing is left of it
//	(absent) ---------------> Starting ---------------> Running ------------------> Ending -----------------> Exited
//	                             |  the command could not be executed: exit code 128, reason StartError          ^
//	                             +-------------------------------------------------------------------------------+
//
// A container never goes back, so that one that has an intent is never started again.
type Phase int64

// The phases. Ending is known to the shim alone: everyone else still sees Running.
const (
	Created Phase = iota
	Starting
	Running
	Ending
	Exited
)

// Reasons of an exit that the runtime itself knows.
const (
	ReasonStartError = "StartError"
	ReasonOOMKilled  = "OOMKilled"
	ReasonUnknown    = "ContainerStatusUnknown"
)

// Exit codes that are not the process's own.
const (
	// CodeNotStarted is for a command that could not be executed.
	CodeNotStarted = 128
	// CodeShimLost is for processes that the runtime killed because their shim had died.
	CodeShimLost = 137
	// CodeUnknown is for processes that ended with the machine.
	CodeUnknown = 255
)

// Container is what the shim knows of one container: its record on disk and the content of events.
type Container struct {
	ID    string
	Phase Phase
	PID   int64
	// Born is the start time of PID in clock ticks since boot.
	Born int64
	// Unix nanoseconds.
	StartedAt, FinishedAt int64
	ExitCode              int64
	Signal                int64 // The signal that ended process 1, if one did; ExitCode is 128 more.
	Reason, Message       string
	Warnings              []string
	// Error answers a call that failed; it is not recorded.
	Error string
}

// Encode returns the body.
func (c *Container) Encode() []byte {
	var e Encoder
	e.String(1, c.ID)
	e.Int(2, int64(c.Phase))
	e.Int(3, c.PID)
	e.Int(4, c.Born)
	e.Int(5, c.StartedAt)
	e.Int(6, c.FinishedAt)
	e.Int(7, c.ExitCode)
	e.Int(8, c.Signal)
	e.String(9, c.Reason)
	e.String(10, c.Message)
	e.Strings(11, c.Warnings)
	e.String(12, c.Error)
	return e.Bytes()
}

// Decode reads the body.
func (c *Container) Decode(body []byte) error {
	return Decode(body, func(f Field) {
		switch f.Tag {
		case 1:
			c.ID = f.Text()
		case 2:
			c.Phase = Phase(f.Number())
		case 3:
			c.PID = f.Number()
		case 4:
			c.Born = f.Number()
		case 5:
			c.StartedAt = f.Number()
		case 6:
			c.FinishedAt = f.Number()
		case 7:
			c.ExitCode = f.Number()
		case 8:
			c.Signal = f.Number()
		case 9:
			c.Reason = f.Text()
		case 10:
			c.Message = f.Text()
		case 11:
			c.Warnings = append(c.Warnings, f.Text())
		case 12:
			c.Error = f.Text()
		}
	})
}
