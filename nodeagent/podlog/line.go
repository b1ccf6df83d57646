// Package podlog reads and rotates container logs in the CRI format, in which every line is
//
//	2026-11-20T23:41:00.000000001Z stdout F the text
//
// with the time, the stream, and F for a whole line or P for a part of one whose rest follows.
//
// Reading is bounded in memory whatever a file holds; lines that are not in the format are left out. A file that is
// missing reads as empty. Rotated files are kept for the operator, but Read, like Kubernetes, reads only the
// newest, unless so many lines from the end are asked for that they begin in another.
package podlog

import (
	"bytes"
	"time"
)

// entry is a line of a log.
type entry struct {
	time   time.Time
	stream string // "stdout" or "stderr"
	part   bool   // the rest of the line follows
	text   []byte // without the end of the line
}

// parse takes a line, without its end, apart. ok is false when it is not in the format.
func parse(line []byte) (e entry, ok bool) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return e, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(stream) != "stdout" && string(stream) != "stderr" {
		return e, false
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok { // an empty line may lack the last space
		tags, text = rest, nil
	}
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	if string(tag) != "F" && string(tag) != "P" {
		return e, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return e, false
	}
	return entry{time: t, stream: string(stream), part: tag[0] == 'P', text: text}, true
}
