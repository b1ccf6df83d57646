package main

import (
	"errors"

	"monoplane.dev"
	"monoplane.dev/internal/datadir"
	"monoplane.dev/internal/dirlock"
)

// notes are what a server keeps in its data directory for when it was killed: for the next start, and for whoever
// stops what it has left.
type notes struct {
	cfg *monoplane.Config
	// settings are those that the configuration was made of.
	settings map[string][]string
	// chosen: nobody named the range of the pods' addresses.
	chosen bool

	made []string // the files that were not there before
}

// locked is called when the data directory is this server's. Nothing runs yet, and from now on it may be killed. A
// range that was chosen is noted before the machine has a link with it, which another start would take for somebody
// else's; one that was named may still be refused.
func (n *notes) locked() error {
	if !n.cfg.Runtime.Simulated() {
		made, err := keepLastUp(n.cfg.DataDir, n.settings, true)
		if err != nil {
			return err
		}
		if made {
			n.made = append(n.made, lastUpFile)
		}
	}
	if !n.chosen {
		return nil
	}
	isFirst, err := keepPodRange(n.cfg)
	if isFirst {
		n.made = append(n.made, podRangeFile)
	}
	return err
}

// failed is called when nothing has come of the start.
func (n *notes) failed() error {
	if len(n.made) == 0 {
		return nil
	}
	return forget(n.cfg.DataDir, n.made...)
}

// started is called when the server runs: what is left from now on has its settings.
func (n *notes) started() error {
	if n.cfg.Runtime.Simulated() {
		return nil
	}
	_, err := keepLastUp(n.cfg.DataDir, n.settings, false)
	return err
}

// ready is called when the node takes pods.
func (n *notes) ready() error {
	_, err := keepPodRange(n.cfg)
	return err
}

// emptied is called when the server ends and has left nothing, while the data directory is still this server's.
func (n *notes) emptied() error {
	dir, err := datadir.Open(n.cfg.DataDir)
	if err != nil {
		return err
	}
	return dir.Remove(lastUpFile)
}

// forget removes notes that no server needs any more. One that has started meanwhile has written its own.
func forget(dataDir string, files ...string) error {
	dir, err := datadir.Open(dataDir)
	if err != nil {
		return err
	}
	lock, err := dirlock.AcquireIn(dir)
	if used := (*dirlock.InUseError)(nil); errors.As(err, &used) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range files {
		err = errors.Join(err, dir.Remove(name))
	}
	return errors.Join(err, lock.Release())
}
