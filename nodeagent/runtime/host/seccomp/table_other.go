//go:build !amd64 && !arm64

package seccomp

// On machines whose calls are not listed here every profile is refused.
const (
	table     = ""
	auditArch = 0
	otherABI  = 0
)

var archNames []string
