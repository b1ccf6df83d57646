package volumes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
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
	// Image is what the runtime calls the image whose files are the volume.
	Image string `json:"image,omitempty"`
	// Claim is the uid of the claim that it is bound to.
	Claim string `json:"claim,omitempty"`
	// ReadOnly: containers may not write to it whatever they ask for.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Written: only the agent writes to it, so that nothing in it is put there by a container.
	Written bool `json:"written,omitempty"`
	// Device: it is a block device.
	Device bool `json:"device,omitempty"`
	// Held: something is to be released, even though the volume could not be set up.
	Held bool `json:"-"`
}

// readRecord reads the record of the pod whose directory is home; it is empty when there is none.
func readRecord(home string) (*record, error) {
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
		return nil, fmt.Errorf("%s cannot be read: %w", filepath.Join(home, recordFile), err)
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
	next := filepath.Join(home, recordFile+".next")
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return os.Rename(next, filepath.Join(home, recordFile))
}

func tooLong(err error) bool { return errors.Is(err, syscall.ENAMETOOLONG) }
