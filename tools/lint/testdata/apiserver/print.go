package apiserver

import "fmt"

// Sprint is what Logf calls.
func Sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }
