#!/usr/bin/env bash
# Software: go-fuse 2.12.1 (github.com/hanwen/go-fuse/v2), package fs; needs root, /dev/fuse and Linux 6.9 or later
# Guess: a file system whose nodes embed LoopbackNode and have a Write and an Fsync of their own is asked at each write
#   and each fsync, and so can count, delay or fail them.
# Behaviour: mounted as root, the kernel writes to the file behind, past the node (FUSE passthrough, which the loopback's
#   open files offer), unless CAP_PASSTHROUGH is among the DisabledCapabilities. Fsync of a directory goes to the open
#   directory of the loopback, past the node, either way; fsync of a file comes.
# Seen:
#   by default: 0 writes seen of 3, 1 fsync of a file, 0 fsyncs of a directory
#   without passthrough: 3 writes seen of 3, 1 fsync of a file, 0 fsyncs of a directory
set -euo pipefail
sed -n '/^# /s/^# //p' "$0"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed -n '/^# Seen:/,/^set/s/^#   //p' "$0" >"$dir/expected"
cd "$dir"
export GOWORK=off

cat >go.mod <<'MOD'
module finding

go 1.26

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	golang.org/x/sys v0.49.0 // indirect
)
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

var writes, files, dirs atomic.Int32

type node struct{ *fs.LoopbackNode }

func (n *node) WrapChild(_ context.Context, child fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{child.(*fs.LoopbackNode)}
}

func (n *node) Write(ctx context.Context, h fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	writes.Add(1)
	return h.(fs.FileWriter).Write(ctx, data, at)
}

func (n *node) Fsync(ctx context.Context, h fs.FileHandle, flags uint32) syscall.Errno {
	if n.IsDir() {
		dirs.Add(1)
		return 0
	}
	files.Add(1)
	return h.(fs.FileFsyncer).Fsync(ctx, flags)
}

func main() {
	try("by default", 0)
	try("without passthrough", fuse.CAP_PASSTHROUGH)
}

func try(what string, disabled uint64) {
	writes.Store(0)
	files.Store(0)
	dirs.Store(0)
	behind, err := os.MkdirTemp(".", "behind")
	check(err)
	at, err := os.MkdirTemp(".", "at")
	check(err)
	root, err := fs.NewLoopbackRoot(behind)
	check(err)
	top := &node{root.(*fs.LoopbackNode)}
	top.RootData.RootNode = top
	server, err := fs.Mount(at, top, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, DisabledCapabilities: disabled,
	}})
	check(err)
	defer server.Unmount()

	f, err := os.Create(filepath.Join(at, "file"))
	check(err)
	for range 3 {
		_, err = f.WriteString("text")
		check(err)
	}
	check(f.Sync())
	check(f.Close())
	d, err := os.Open(at)
	check(err)
	check(d.Sync())
	check(d.Close())
	fmt.Printf("%s: %d writes seen of 3, %d fsync of a file, %d fsyncs of a directory\n", what, writes.Load(),
		files.Load(), dirs.Load())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
GO
go build -mod=mod -o finding .
./finding >seen
diff expected seen && echo "Still so."
