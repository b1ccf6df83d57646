//go:build !linux

package main

import (
	"context"
	"io"
	"syscall"
)

func endUnwritable(context.Context, io.Writer, string) error { return syscall.EROFS }
