package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccompOf returns the filter of system calls; nil for none.
func seccompOf(sec *runtimeapi.LinuxContainerSecurityContext, s *specs.Spec) (*specs.LinuxSeccomp, error) {
	if sec.GetPrivileged() || sec.GetSeccomp() == nil {
		return nil, nil
	}
	switch p := sec.GetSeccomp(); p.GetProfileType() {
	case runtimeapi.SecurityProfile_RuntimeDefault:
		return seccomp.GetDefaultProfile(s)
	case runtimeapi.SecurityProfile_Localhost:
		name := strings.TrimPrefix(p.GetLocalhostRef(), "localhost/")
		if !filepath.IsAbs(name) {
			return nil, fmt.Errorf("the seccomp profile %q is not an absolute path", name)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("the seccomp profile cannot be used: %w", err)
		}
		out, err := seccomp.LoadProfile(string(text), s)
		if err != nil {
			return nil, fmt.Errorf("the seccomp profile %s cannot be used: %w", name, err)
		}
		return out, nil
	}
	return nil, nil
}
