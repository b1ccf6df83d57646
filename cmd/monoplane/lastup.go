package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"monoplane.dev/internal/datadir"
)

// lastUpFile, in the data directory, holds a lastUp from the start of a server until it has ended without leaving a
// pod: what it runs can be stopped with the same settings when it was killed.
const lastUpFile = "up.json"

// lastUp is how a server was started.
type lastUp struct {
	// Directory is where its command was given: paths among the settings may begin there.
	Directory string `json:"directory"`
	// Settings are the flags that had a value, wherever that came from. Lists have several.
	Settings map[string][]string `json:"settings"`
}

// unkept are the flags that do not matter when pods are stopped: where the server was, and what tells it what to run.
var unkept = []string{
	"config", "help", "data-dir", confirmation, "listen", "grpc-listen", "ingress", "ingress-http", "ingress-https",
	"manifest-url", "manifest-url-header",
}

// readSettings returns the settings that flags have.
func readSettings(flags *pflag.FlagSet) map[string][]string {
	settings := map[string][]string{}
	flags.Visit(func(f *pflag.Flag) {
		if slices.Contains(unkept, f.Name) {
			return
		}
		switch v, isList := f.Value.(pflag.SliceValue); {
		case isList:
			settings[f.Name] = v.GetSlice()
		case f.Value.Type() == "stringToString": // it says itself in brackets, and is set without them
			text := strings.TrimSuffix(strings.TrimPrefix(f.Value.String(), "["), "]")
			if text != "" {
				settings[f.Name] = []string{text}
			}
		default:
			settings[f.Name] = []string{f.Value.String()}
		}
	})
	return settings
}

// options returns the options with which the same pods can be stopped. It goes to where the server was started.
func (l *lastUp) options(dataDir string) (*upOptions, error) {
	if err := os.Chdir(l.Directory); err != nil {
		return nil, err
	}
	o := &upOptions{}
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	o.add(flags)
	if err := l.apply(flags); err != nil {
		return nil, err
	}
	*o.dataDir = dataDir
	// Another cluster may have the addresses by now.
	o.listen, o.grpcListen = "127.0.0.1:0", "127.0.0.1:0"
	return o, nil
}

// apply gives flags the settings.
func (l *lastUp) apply(flags *pflag.FlagSet) error {
	for name, values := range l.Settings {
		f := flags.Lookup(name)
		if f == nil {
			return fmt.Errorf("another version of monoplane had the setting %q", name)
		}
		var err error
		if list, isList := f.Value.(pflag.SliceValue); isList {
			err = list.Replace(values)
		} else {
			for _, v := range values {
				err = errors.Join(err, f.Value.Set(v))
			}
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// keepLastUp writes down how the server is started that has locked the directory, and reports whether it did. A server
// that is only just starting may fail, and then what an earlier one has left is still that one's.
func keepLastUp(dataDir string, settings map[string][]string, starting bool) (kept bool, err error) {
	dir, err := datadir.Open(dataDir)
	if err != nil {
		return false, err
	}
	if earlier, err := dir.Exists(lastUpFile); err != nil || earlier && starting {
		return false, err
	}
	at, err := os.Getwd()
	if err != nil {
		return false, err
	}
	text, err := json.Marshal(lastUp{Directory: at, Settings: settings})
	if err != nil {
		return false, err
	}
	// After a power failure there is nothing left to stop.
	err = dir.Replace(lastUpFile, datadir.Unflushed, func(f *os.File) error {
		_, err := f.Write(append(text, '\n'))
		return err
	})
	return err == nil, err
}

// readLastUp returns how the server was started that may have left pods; nil when none has.
func readLastUp(dir *datadir.Dir) (*lastUp, error) {
	text, err := dir.ReadSecret(lastUpFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	last := &lastUp{}
	if err := json.Unmarshal(text, last); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir.Path(), lastUpFile), err)
	}
	return last, nil
}
