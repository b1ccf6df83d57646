package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/nodeagent/volumes/mount"
)

// nfs is a directory of an NFS server.
type nfs struct{}

func (nfs) name() string                   { return "kubernetes.io~nfs" }
func (nfs) is(v *corev1.VolumeSource) bool { return v.GetNfs() != nil }

func (nfs) setUp(ctx context.Context, v *volume) (place, error) {
	from := v.source.GetNfs()
	return place{Path: v.dir, ReadOnly: from.GetReadOnly()}, mountNFS(ctx, from, v.dir, from.GetReadOnly(), nil)
}

// mountNFS mounts a directory of a server at dir, unless that is done. The protocol is the system's: the kernel speaks
// it, and the program that comes with it finds out how.
func mountNFS(ctx context.Context, from *corev1.NFSVolumeSource, dir string, readOnly bool, options []string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if mounted, err := mount.Is(dir); err != nil || mounted {
		return err
	}
	program, err := nfsProgram()
	if err != nil {
		return err
	}
	source := from.GetServer() + ":" + from.GetPath()
	if strings.Contains(from.GetServer(), ":") && !strings.HasPrefix(from.GetServer(), "[") {
		source = "[" + from.GetServer() + "]:" + from.GetPath()
	}
	if readOnly {
		options = append([]string{"ro"}, options...)
	}
	args := []string{source, dir}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // its children may hold the output open
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount failed: %w: mount.nfs %s: %s", err, strings.Join(args, " "),
			strings.TrimSpace(string(out)))
	}
	return nil
}

// nfsProgram finds the program that mounts, which distributions put where only root looks.
func nfsProgram() (string, error) {
	for _, name := range []string{"mount.nfs", "/sbin/mount.nfs", "/usr/sbin/mount.nfs"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the program mount.nfs is not on this node: install the package nfs-common (Debian, Ubuntu) " +
		"or nfs-utils (Fedora, Red Hat, Alpine, Arch)")
}
