//go:build linux && cgo

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// hold makes the namespaces ready that it was started in, as their root, and keeps them until the shim has taken them:
// it says "ok", or what is wrong, on the socket that is descriptor 3, and ends when the shim closes its end.
func hold(settings []string) int {
	shim := os.NewFile(reportFD, "shim")
	if err := writeSettings(settings); err != nil {
		_, _ = shim.WriteString(err.Error())
		return 1
	}
	if _, err := shim.WriteString("ok"); err != nil {
		return 1 // The shim has ended already.
	}
	_, _ = io.Copy(io.Discard, shim)
	return 0
}

// writeSettings sets what is below /proc/sys, each as "PATH=VALUE". Some of it only root of the namespace may set that
// it belongs to, not even the machine's.
func writeSettings(all []string) error {
	for _, s := range all {
		path, value, _ := strings.Cut(s, "=")
		if !filepath.IsLocal(path) {
			return fmt.Errorf("%q is below no directory of /proc/sys", path)
		}
		if err := os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0); err != nil {
			return fmt.Errorf("sysctl %s cannot be set: %w", strings.ReplaceAll(path, "/", "."), err)
		}
	}
	return nil
}
