package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/runtime/host/shim"
	"monoplane.dev/nodeagent/runtime/host/shimwire"
	"monoplane.dev/nodeagent/runtime/host/sys"
)

// Names below the runtime's directory; the package comment draws the tree.
const (
	podsDir     = "pods"
	lockName    = "lock"
	sandboxName = "sandbox"
	configName  = "config"
	givenName   = "resources"
	messageName = "termination-log"
	resolvName  = "resolv.conf"
	nameName    = "hostname"
	// draftPrefix marks a directory that is being made or removed: nothing of it runs.
	draftPrefix = ".draft-"
)

// sandboxRecord is the file "sandbox": all that is known of a sandbox before its shim starts. It never changes.
type sandboxRecord struct {
	config    *runtimeapi.PodSandboxConfig
	createdAt int64 // Unix nanoseconds.
	bootID    string
	marker    sys.Marker
	group     sys.Cgroup // The directories that may have been made for it.
	handler   string
	place     place // Of the sandbox's directory.
	isolated  bool  // It has namespaces of its own, as far as it has asked for them.

	damaged bool // The file cannot be read: all of this is made up.
	copied  bool // It is another directory's sandbox that is meant: see disown.
}

func (r *sandboxRecord) save(name string) error {
	config, err := proto.Marshal(r.config)
	if err != nil {
		return err
	}
	var e shimwire.Encoder
	e.String(1, string(config))
	e.Int(2, r.createdAt)
	e.String(3, r.bootID)
	e.Int(4, int64(r.marker))
	e.String(5, r.group.Unified)
	e.Strings(6, r.group.V1)
	e.String(7, r.handler)
	e.Int(8, r.place.device)
	e.Int(9, r.place.inode)
	e.Bool(10, r.isolated)
	return shimwire.Append(name, e.Bytes(), false)
}

func loadSandbox(name string) (*sandboxRecord, error) {
	r := &sandboxRecord{config: &runtimeapi.PodSandboxConfig{}}
	var config []byte
	err := loadRecord(name, func(f shimwire.Field) {
		switch f.Tag {
		case 1:
			config = f.Value
		case 2:
			r.createdAt = f.Number()
		case 3:
			r.bootID = f.Text()
		case 4:
			r.marker = sys.Marker(f.Number())
		case 5:
			r.group.Unified = f.Text()
		case 6:
			r.group.V1 = append(r.group.V1, f.Text())
		case 7:
			r.handler = f.Text()
		case 8:
			r.place.device = f.Number()
		case 9:
			r.place.inode = f.Number()
		case 10:
			r.isolated = f.Number() != 0
		}
	})
	if err == nil {
		err = proto.Unmarshal(config, r.config)
	}
	return r, err
}

// containerRecord is the file "config": all that is known of a container before it starts. It never changes.
type containerRecord struct {
	config    *runtimeapi.ContainerConfig
	createdAt int64 // Unix nanoseconds.
	group     sys.Cgroup
	warnings  []string
	image     string // The image's id; empty for the machine's own filesystem.
	reference string // What the image is called for those who look which one runs; empty in records of before.
}

func (r *containerRecord) save(name string) error {
	config, err := proto.Marshal(r.config)
	if err != nil {
		return err
	}
	var e shimwire.Encoder
	e.String(1, string(config))
	e.Int(2, r.createdAt)
	e.String(3, r.group.Unified)
	e.Strings(4, r.group.V1)
	e.Strings(5, r.warnings)
	e.String(6, r.image)
	e.String(7, r.reference)
	return shimwire.Append(name, e.Bytes(), false)
}

func loadContainer(name string) (*containerRecord, error) {
	r := &containerRecord{config: &runtimeapi.ContainerConfig{}}
	var config []byte
	err := loadRecord(name, func(f shimwire.Field) {
		switch f.Tag {
		case 1:
			config = f.Value
		case 2:
			r.createdAt = f.Number()
		case 3:
			r.group.Unified = f.Text()
		case 4:
			r.group.V1 = append(r.group.V1, f.Text())
		case 5:
			r.warnings = append(r.warnings, f.Text())
		case 6:
			r.image = f.Text()
		case 7:
			r.reference = f.Text()
		}
	})
	if err == nil {
		err = proto.Unmarshal(config, r.config)
	}
	return r, err
}

// saveResources adds to the file "resources" what a container, or a pod as a whole, was given after it was made. Its
// last record holds.
func saveResources(dir string, r *runtimeapi.LinuxContainerResources) error {
	text, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	return shimwire.Append(filepath.Join(dir, givenName), text, false)
}

// loadResources returns what saveResources added last, nil for nothing.
func loadResources(dir string) (*runtimeapi.LinuxContainerResources, error) {
	text, err := shimwire.Last(filepath.Join(dir, givenName))
	if err != nil || text == nil {
		return nil, err
	}
	r := &runtimeapi.LinuxContainerResources{}
	return r, proto.Unmarshal(text, r)
}

func loadRecord(name string, each func(shimwire.Field)) error {
	b, err := shimwire.Last(name)
	if err != nil {
		return err
	}
	if b == nil {
		return fmt.Errorf("%s holds no whole record", name)
	}
	return shimwire.Decode(b, each)
}

// loadState reads what the shim has recorded of a container; the phase is Created when it was never told to start it.
func loadState(dir string) (shimwire.Container, error) {
	var rec shimwire.Container
	b, err := shimwire.Last(filepath.Join(dir, shim.StateName))
	if err == nil && b != nil {
		err = rec.Decode(b)
	}
	return rec, err
}

// loadShim reads which process the shim of a sandbox is.
func loadShim(dir string) (sys.Proc, bool) {
	b, err := shimwire.Last(filepath.Join(dir, shim.RecordName))
	var h shimwire.HelloReply
	if err != nil || b == nil || h.Decode(b) != nil {
		return sys.Proc{}, false
	}
	return sys.Proc{PID: int(h.PID), Start: uint64(h.Born)}, true
}

// publish makes a directory appear whole or not at all: fill writes into a draft, which is then renamed.
func publish(parent, name string, fill func(draft string) error) error {
	draft := filepath.Join(parent, draftPrefix+name)
	if err := os.Mkdir(draft, 0o700); err != nil {
		return err
	}
	err := fill(draft)
	if err == nil {
		err = os.Rename(draft, filepath.Join(parent, name))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(draft))
	}
	return nil
}

// withdraw removes a directory, the other way round.
func withdraw(parent, name string) error {
	draft := filepath.Join(parent, draftPrefix+name)
	err := os.Rename(filepath.Join(parent, name), draft)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(draft)
}

// procPath is a name for an open directory that is always short.
func procPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
