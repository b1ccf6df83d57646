//go:build !linux

package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccompOf is there on Linux only.
func seccompOf(*runtimeapi.LinuxContainerSecurityContext, *specs.Spec) (*specs.LinuxSeccomp, error) {
	return nil, nil
}
