package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// stoppingEvery is the least time between two lines about the pods that are being stopped.
const stoppingEvery = 2 * time.Second

// stopping tells a person which pods are still being stopped: at once, and then whenever it has changed, but not more
// often than somebody can read.
type stopping struct {
	w    io.Writer
	hint string // what follows the pods on each line
	now  func() time.Time
	last time.Time
	text string
}

func (s *stopping) show(pods []string) {
	text, now := summary(pods), s.now()
	if len(pods) == 0 || text == s.text || !s.last.IsZero() && now.Sub(s.last) < stoppingEvery {
		return
	}
	s.last, s.text = now, text
	fmt.Fprintf(s.w, "Stopping %s%s\n", text, s.hint)
}

// summary names up to five pods.
func summary(pods []string) string {
	const most = 5
	if len(pods) <= most {
		return "pods " + strings.Join(pods, ", ")
	}
	return fmt.Sprintf("pods %s and %d more", strings.Join(pods[:most], ", "), len(pods)-most)
}
