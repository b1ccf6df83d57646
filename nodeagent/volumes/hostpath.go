package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	corev1 "monoplane.dev/api/core/v1"
)

// hostPath is a path of the node.
type hostPath struct{}

func (hostPath) name() string                   { return "kubernetes.io~host-path" }
func (hostPath) is(v *corev1.VolumeSource) bool { return v.GetHostPath() != nil }

func (hostPath) setUp(_ context.Context, v *volume) (place, error) {
	from := v.source.GetHostPath()
	return place{Path: from.GetPath()}, checkType(from.GetPath(), from.GetType())
}

// checkType makes sure that what the type asks for is at path, and makes a directory or file where the type allows it.
func checkType(path, kind string) error {
	if kind == "" {
		return nil
	}
	info, err := os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	mode := fs.ModeIrregular
	if !missing {
		mode = info.Mode()
	}
	is := func(ok bool, what string) error {
		if !ok {
			return fmt.Errorf("hostPath type check failed: %s is not %s", path, what)
		}
		return nil
	}
	switch kind {
	case "DirectoryOrCreate":
		if missing {
			return os.MkdirAll(path, 0o755)
		}
		return is(mode.IsDir(), "a directory")
	case "Directory":
		return is(mode.IsDir(), "a directory")
	case "FileOrCreate":
		if missing {
			f, err := os.OpenFile(path, os.O_CREATE, 0o644)
			if err != nil {
				return err
			}
			return f.Close()
		}
		return is(mode.IsRegular(), "a file")
	case "File":
		return is(mode.IsRegular(), "a file")
	case "Socket":
		return is(mode.Type() == fs.ModeSocket, "a socket file")
	case "CharDevice":
		return is(mode.Type() == fs.ModeDevice|fs.ModeCharDevice, "a character device")
	case "BlockDevice":
		return is(mode.Type() == fs.ModeDevice, "a block device")
	default:
		return fmt.Errorf("%s is an invalid volume type", kind)
	}
}
