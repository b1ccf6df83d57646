// Package endmessage finds what a container that has ended says of its end (spec: CTR-1): what its process left in the
// file of its terminationMessagePath, or the end of its log if it asked for that and failed, and what the runtime
// says.
//
// The bounds are those of Kubernetes' agent, and so is what is left out, which test/oracle compares: of a file and of
// a log the end counts.
package endmessage

import (
	"io"
	"os"
	"strings"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monoplane.dev/nodeagent/criconfig"
	"monoplane.dev/nodeagent/podlog"
)

// Bounds, in bytes.
const (
	maxFile     = 4096
	maxRuntime  = 4096
	maxLogTail  = 2048
	maxLogLines = 80
)

// Of returns what a container that has ended says, as UTF-8. Only what own reports to be one of the node's own files
// is read: the paths are the runtime's word.
func Of(s *runtimeapi.ContainerStatus, own func(path string) bool) string {
	fallback := s.GetAnnotations()[criconfig.AnnotationMessagePolicy] == "FallbackToLogsOnError" &&
		s.GetExitCode() != 0 && s.GetReason() != "ContainerCannotRun"
	said := ""
	if file, mounted := messageFile(s); mounted {
		if own(file) {
			said = Read(file)
		}
	} else if s.GetMessage() != "" {
		fallback = false // a runtime that mounts no file has read its own
	}
	if said == "" && fallback && own(s.GetLogPath()) {
		said = podlog.Last(s.GetLogPath(), maxLogLines, maxLogTail)
	}
	message := s.GetMessage()
	message = message[:min(len(message), maxRuntime)]
	if message != "" && said != "" {
		said = message + ": " + said
	} else if said == "" {
		said = message
	}
	return strings.ToValidUTF8(said, "?")
}

// messageFile returns the file of the node that the container sees as its terminationMessagePath.
func messageFile(s *runtimeapi.ContainerStatus) (string, bool) {
	path := s.GetAnnotations()[criconfig.AnnotationMessagePath]
	if path == "" {
		return "", false
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	for _, m := range s.GetMounts() {
		if m.GetContainerPath() == path {
			return m.GetHostPath(), true
		}
	}
	return "", false
}

// Read returns the end of a regular file; empty when there is nothing to read. The container's processes may have put
// something else in the file's place: links are not followed and pipes not waited for.
func Read(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // the caller's
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	at := max(0, info.Size()-maxFile)
	data, err := io.ReadAll(io.NewSectionReader(f, at, maxFile))
	if err != nil {
		return ""
	}
	return string(data)
}
