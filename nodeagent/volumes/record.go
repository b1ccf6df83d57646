package volumes

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"monoplane.dev/internal/datadir"
	"monoplane.dev/nodeagent/quota"
)

const recordFile = "volumes.json"

// record says where a pod's volumes are. It is kept in a file, so that containers can be started while the API does
// not answer, and volumes be taken away, by an agent that has come back.
type record struct {
	Volumes map[string]place `json:"volumes"`

	was []byte
}

// place is where a volume is.
type place struct {
	// Plugin is the name of the plugin that set it up.
	Plugin string `json:"plugin,omitempty"`
	// Path is what containers mount, or the device that they get; empty for an image.
	Path string `json:"path,omitempty"`
	// Claim is the uid of the claim that it is bound to.
	Claim string `json:"claim,omitempty"`
	// Driven is what a driver is to release.
	Driven *driven `json:"driven,omitempty"`
	// ReadOnly: containers may not write to it whatever they ask for.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Written: only the agent writes to it, so that nothing in it is put there by a container.
	Written bool `json:"written,omitempty"`
	// Device: it is a block device.
	Device bool `json:"device,omitempty"`
	// OnDisk: it is on disk, though it was to be in memory.
	OnDisk bool `json:"onDisk,omitempty"`
	// Project bounds what the volume can hold.
	Project quota.Project `json:"project,omitempty"`
	// Held: something is to be released, even though the volume could not be set up.
	Held bool `json:"-"`
}

// readRecord reads the record of the pod whose directory is home; it is empty when there is none. So it is when it is
// broken, as a power failure leaves it: one that was flushed is not, so that there is nothing to release of it, and
// what it was about is set up again.
func (m *Manager) readRecord(home string) (*record, error) {
	r := &record{}
	data, err := os.ReadFile(filepath.Join(home, recordFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), tooLong(err):
		return r, nil
	case err != nil:
		return nil, err
	}
	r.was = data
	if err := json.Unmarshal(data, r); err != nil {
		m.cfg.Logger.Warn("it is not known which volumes a pod has; they are set up again, or removed",
			"file", filepath.Join(home, recordFile), "error", err)
		return &record{was: data}, nil
	}
	return r, nil
}

func (r *record) began() {
	if r.Volumes == nil {
		r.Volumes = make(map[string]place)
	}
}

// write keeps the record, if it has changed, in one step.
func (r *record) write(home string) error {
	data, err := json.Marshal(r)
	if err != nil || bytes.Equal(data, r.was) {
		return err
	}
	how := datadir.Unflushed // Pods need not wait for the disk: mounts do not outlive a power failure either.
	for _, at := range r.Volumes {
		if at.Driven != nil || at.Project != 0 {
			how = datadir.Flushed
		}
	}
	return datadir.Keep(filepath.Join(home, recordFile), how, data)
}

// reserve notes where a volume will be before anything is done about it, unless that is known already. Other pods see
// it, and so does the agent that comes back.
func reserve(v *volume, at place) error {
	rec, err := v.m.readRecord(v.home)
	if err != nil {
		return err
	}
	rec.began()
	if was, ok := rec.Volumes[v.name]; ok && (was.Driven != nil || at.Driven == nil) {
		return nil
	}
	rec.Volumes[v.name] = at
	return rec.write(v.home)
}

// eachOther calls f with each volume of all pods but one, until f fails.
func (m *Manager) eachOther(home string, f func(uid string, at place) error) error {
	pods, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		other := filepath.Join(m.cfg.Dir, pod.Name())
		if other == home || !pod.IsDir() {
			continue
		}
		rec, err := m.readRecord(other)
		if err != nil {
			return err
		}
		for _, at := range rec.Volumes {
			if err := f(pod.Name(), at); err != nil {
				return err
			}
		}
	}
	return nil
}

func tooLong(err error) bool { return errors.Is(err, syscall.ENAMETOOLONG) }
