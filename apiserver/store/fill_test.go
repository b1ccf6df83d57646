package store

import (
	"context"
	"fmt"
	"os"
	"time"
)

// fullDir tells the test binary to fill the file system that this directory is on.
const fullDir = "MONOPLANE_STORE_TEST_FULL"

// fillDisk writes until the store fails, and prints how many writes were acknowledged and why it ended.
func fillDisk() bool {
	dir := os.Getenv(fullDir)
	if dir == "" {
		return false
	}
	s, err := Open(context.Background(), fsyncConfig(dir))
	if err != nil {
		fmt.Printf("open: %v\n", err)
		return true
	}
	n := 0
	for ; err == nil; n++ {
		p := benchPod(fmt.Sprintf("pod-%d-%d", os.Getpid(), n))
		_, err = s.Commit(context.Background(), Txn{Ops: []Op{{Key: keyOf(p), Object: p}}})
	}
	select {
	case <-s.Failed():
	case <-time.After(time.Minute):
		fmt.Println("the store says it works")
	}
	_, werr := s.Commit(context.Background(), Txn{Ops: []Op{{Key: podKey("default", "z"), Object: pod("default", "z")}}})
	fmt.Printf("acknowledged %d\nerror: %v\nready: %v\nthen: %v\n", n-1, err, s.Ready(context.Background()), werr)
	_ = s.Close()
	return true
}
