package criconfig

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
)

// ImageUser is who an image says that its processes are. An image that says nothing means root, unless the runtime
// knows better.
type ImageUser struct {
	// UID is the user's number, nil when the image has none.
	UID *int64
	// Name is the user's name where the image has that in place of a number.
	Name string
	// Root is set where the image has neither, which is certain to mean root.
	Root bool
}

// effective returns what applies to container c of pod p: what the container says wins over what the pod says.
// Fields that only containers or only pods have are not all there. spec: SEC-1
func effective(p *corev1.Pod, c *corev1.Container) *corev1.SecurityContext {
	pod, own := p.GetSpec().GetSecurityContext(), c.GetSecurityContext()
	s := &corev1.SecurityContext{}
	if own != nil {
		s = own.Shallow()
	}
	if s.SeLinuxOptions == nil {
		s.SeLinuxOptions = pod.GetSeLinuxOptions()
	}
	if s.RunAsUser == nil && pod != nil {
		s.RunAsUser = pod.RunAsUser
	}
	if s.RunAsGroup == nil && pod != nil {
		s.RunAsGroup = pod.RunAsGroup
	}
	if s.RunAsNonRoot == nil && pod != nil {
		s.RunAsNonRoot = pod.RunAsNonRoot
	}
	if s.SeccompProfile == nil {
		s.SeccompProfile = pod.GetSeccompProfile()
	}
	if s.AppArmorProfile == nil {
		s.AppArmorProfile = annotatedAppArmor(p, c.GetName())
	}
	if s.AppArmorProfile == nil {
		s.AppArmorProfile = pod.GetAppArmorProfile()
	}
	return s
}

// security returns the identity and the restrictions of a container. The error, which names the field, is the user's
// to mend. spec: SEC-1
func security(p *corev1.Pod, c *corev1.Container, f Facts) (*runtimeapi.LinuxContainerSecurityContext, error) {
	s := effective(p, c)
	if err := verifyNonRoot(p, c, s, f.ImageUser); err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:     capabilities(s.GetCapabilities()),
		Privileged:       s.GetPrivileged(),
		NamespaceOptions: namespaces(p, f),
		SelinuxOptions:   selinux(s.GetSeLinuxOptions()),
		RunAsUser:        number(s.RunAsUser),
		RunAsGroup:       number(s.RunAsGroup),
		ReadonlyRootfs:   s.GetReadOnlyRootFilesystem(),
		NoNewPrivs:       s.AllowPrivilegeEscalation != nil && !s.GetAllowPrivilegeEscalation(),
	}
	if f.TargetID != "" && out.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		out.NamespaceOptions.Pid, out.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, f.TargetID
	}
	if out.RunAsUser == nil && out.RunAsGroup != nil {
		// Runtimes take a group with a user only. Without a group the user is left to them: to name it, as kubelets do,
		// would make them forget the group that the image has for it.
		out.RunAsUser, out.RunAsUsername = number(f.ImageUser.UID), f.ImageUser.Name
		if f.ImageUser.Root {
			out.RunAsUser = &runtimeapi.Int64Value{}
		}
	}
	if s.GetProcMount() != "Unmasked" {
		out.MaskedPaths, out.ReadonlyPaths = append(maskedPaths(), f.node().MaskedPaths...), readonlyPaths()
	}
	var err error
	if out.SupplementalGroups, out.SupplementalGroupsPolicy, err = groups(p.GetSpec().GetSecurityContext()); err != nil {
		return nil, err
	}
	if out.Seccomp, err = seccomp(s.GetSeccompProfile(), f.node()); err != nil {
		return nil, fmt.Errorf("container %q: %w", c.GetName(), err)
	}
	if out.Apparmor, err = appArmor(s.GetAppArmorProfile()); err != nil {
		return nil, fmt.Errorf("container %q: %w", c.GetName(), err)
	}
	return out, nil
}

// sandboxSecurity returns the identity and the restrictions of what holds the pod's namespaces. It runs no code of the
// user's, so that the runtime's own filter of system calls is always right for it.
func sandboxSecurity(p *corev1.Pod, f Facts) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	s := p.GetSpec().GetSecurityContext()
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p, f),
		SelinuxOptions:   selinux(s.GetSeLinuxOptions()),
		Privileged:       anyPrivileged(p.GetSpec()),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	if s != nil {
		out.RunAsUser, out.RunAsGroup = number(s.RunAsUser), number(s.RunAsGroup)
	}
	var err error
	out.SupplementalGroups, out.SupplementalGroupsPolicy, err = groups(s)
	return out, err
}

// anyPrivileged reports whether a container has the privileges of the node: then the sandbox must have them.
func anyPrivileged(spec *corev1.PodSpec) bool {
	for _, list := range [...][]*corev1.Container{spec.GetInitContainers(), spec.GetContainers()} {
		for _, c := range list {
			if c.GetSecurityContext().GetPrivileged() {
				return true
			}
		}
	}
	for _, c := range spec.GetEphemeralContainers() {
		if c.GetEphemeralContainerCommon().GetSecurityContext().GetPrivileged() {
			return true
		}
	}
	return false
}

// verifyNonRoot refuses a container that must not run as root and would, or that may. Messages are those of
// Kubernetes, which people search for.
func verifyNonRoot(p *corev1.Pod, c *corev1.Container, s *corev1.SecurityContext, user ImageUser) error {
	if !s.GetRunAsNonRoot() {
		return nil
	}
	meta := p.GetMetadata()
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s (pod: %q, container: %s)", fmt.Sprintf(format, args...),
			meta.GetName()+"_"+meta.GetNamespace()+"("+meta.GetUid()+")", c.GetName())
	}
	switch {
	case s.RunAsUser != nil && s.GetRunAsUser() == 0:
		return wrong("container's runAsUser breaks non-root policy")
	case s.RunAsUser != nil:
		return nil
	case user.UID == nil && user.Name != "":
		return wrong("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root",
			user.Name)
	case user.UID == nil || *user.UID == 0:
		return wrong("container has runAsNonRoot and image will run as root")
	case *user.UID < 0 || *user.UID > math.MaxInt32:
		return wrong("container has runAsNonRoot and image has an invalid user id (%d): must be between 1 and %d",
			*user.UID, math.MaxInt32)
	}
	return nil
}

// groups returns the further groups of the processes: the one that owns the volumes, and those that the pod names.
func groups(s *corev1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy, error) {
	var list []int64
	if s != nil && s.FsGroup != nil {
		list = append(list, s.GetFsGroup())
	}
	list = append(list, s.GetSupplementalGroups()...)
	switch policy := s.GetSupplementalGroupsPolicy(); policy {
	case "", "Merge":
		return list, runtimeapi.SupplementalGroupsPolicy_Merge, nil
	case "Strict":
		return list, runtimeapi.SupplementalGroupsPolicy_Strict, nil
	default:
		return nil, 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", policy)
	}
}

func number(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	return &runtimeapi.Capability{AddCapabilities: c.GetAdd(), DropCapabilities: c.GetDrop()}
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.GetUser(), Role: o.GetRole(), Type: o.GetType(), Level: o.GetLevel()}
}

// seccomp returns the filter of system calls: none when none is asked for, as in Kubernetes, unless the node has a
// default. Privileged containers are not told apart here: runtimes leave them without a filter. The profiles of
// Localhost are files below SeccompDir.
func seccomp(s *corev1.SeccompProfile, n *Node) (*runtimeapi.SecurityProfile, error) {
	kind := s.GetType()
	if s == nil && n.SeccompDefault {
		kind = "RuntimeDefault"
	}
	switch kind {
	case "RuntimeDefault":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case "Localhost":
		name := s.GetLocalhostProfile()
		if name == "" || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("seccompProfile.localhostProfile %q must be a path below the node's %q", name, n.SeccompDir)
		}
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: filepath.Join(n.SeccompDir, name),
		}, nil
	default:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
}

// appArmor returns the profile; nothing leaves it to the runtime.
func appArmor(a *corev1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	switch a.GetType() {
	case "":
		return nil, nil
	case "RuntimeDefault":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case "Unconfined":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case "Localhost":
		if a.GetLocalhostProfile() == "" {
			return nil, errors.New("appArmorProfile.localhostProfile is missing")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: a.GetLocalhostProfile(),
		}, nil
	default:
		return nil, fmt.Errorf("appArmorProfile.type %q is not known", a.GetType())
	}
}

// appArmorAnnotation begins the names of the annotations that were used before there was a field; a container's name
// follows.
const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

// annotatedAppArmor reads the annotation, nil for none. The server writes such into the fields of what it gets; pods
// from files have not been there.
func annotatedAppArmor(p *corev1.Pod, container string) *corev1.AppArmorProfile {
	const localhost = "localhost/"
	switch v := p.GetMetadata().GetAnnotations()[appArmorAnnotation+container]; {
	case v == "runtime/default":
		return &corev1.AppArmorProfile{Type: "RuntimeDefault"}
	case v == "unconfined":
		return &corev1.AppArmorProfile{Type: "Unconfined"}
	case strings.HasPrefix(v, localhost):
		name := strings.TrimPrefix(v, localhost)
		return &corev1.AppArmorProfile{Type: "Localhost", LocalhostProfile: &name}
	default:
		return nil
	}
}
