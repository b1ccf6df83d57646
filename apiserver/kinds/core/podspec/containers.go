package podspec

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monoplane.dev/apiserver/validation"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/rules/initcontainer"
)

// container is what containers, init containers and ephemeral containers have in common.
type container interface {
	GetName() string
	GetImage() string
	GetPorts() []*corev1.ContainerPort
	GetEnv() []*corev1.EnvVar
	GetEnvFrom() []*corev1.EnvFromSource
	GetResources() *corev1.ResourceRequirements
	GetVolumeMounts() []*corev1.VolumeMount
	GetVolumeDevices() []*corev1.VolumeDevice
	GetLivenessProbe() *corev1.Probe
	GetReadinessProbe() *corev1.Probe
	GetStartupProbe() *corev1.Probe
	GetLifecycle() *corev1.Lifecycle
	GetTerminationMessagePolicy() string
	GetImagePullPolicy() string
	GetSecurityContext() *corev1.SecurityContext
	GetResizePolicy() []*corev1.ContainerResizePolicy
	GetRestartPolicyRules() []*corev1.ContainerRestartRule
}

// each goes through all containers of a pod, with their paths: init containers first, then the others, then
// ephemeral ones.
func (v *Checker) each(yield func(container, *validation.Path) bool) {
	p := v.at
	for i, c := range v.spec.GetInitContainers() {
		if !yield(c, p.Child("initContainers").Index(i)) {
			return
		}
	}
	for i, c := range v.spec.GetContainers() {
		if !yield(c, p.Child("containers").Index(i)) {
			return
		}
	}
	for i, c := range v.spec.GetEphemeralContainers() {
		if !yield(c.GetEphemeralContainerCommon(), p.Child("ephemeralContainers").Index(i)) {
			return
		}
	}
}

func (v *Checker) containers(p *validation.Path) {
	list := v.spec.GetContainers()
	if len(list) == 0 {
		v.Required(p, "")
		return
	}
	names, ports := map[string]bool{}, map[string]bool{}
	for i, c := range list {
		at := p.Index(i)
		v.anyContainer(at, c)
		if names[c.GetName()] {
			v.Duplicate(at.Child("name"), c.GetName())
		}
		names[c.GetName()] = true
		v.hooksAndProbes(at, c)
		v.containerRestart(at, policyOf(c), c.GetRestartPolicyRules())
		v.hostPorts(at, c, ports)
	}
}

// initContainers checks init containers and sidecars (INIT-2, INIT-4). Names are unique across all lists.
func (v *Checker) initContainers(p *validation.Path) {
	if len(v.spec.GetInitContainers()) == 0 {
		return
	}
	names := map[string]bool{}
	for _, c := range v.spec.GetContainers() {
		names[c.GetName()] = true
	}
	for i, c := range v.spec.GetInitContainers() {
		at := p.Index(i)
		v.anyContainer(at, c)
		if policyOf(c) != nil {
			v.containerRestart(at, policyOf(c), c.GetRestartPolicyRules())
		} else if len(c.GetRestartPolicyRules()) > 0 {
			v.Required(at.Child("restartPolicy"), rulesNeedPolicy)
		}
		if names[c.GetName()] {
			v.Duplicate(at.Child("name"), c.GetName())
		} else if c.GetName() != "" {
			names[c.GetName()] = true
		}
		// Plain init containers run one after another, so each may take any port. Kubernetes numbers them
		// from 0 here whatever their place; the place in the list says more.
		v.hostPorts(at, c, map[string]bool{})
		if initcontainer.IsSidecar(c) {
			v.hooksAndProbes(at, c)
			continue
		}
		v.plainInit(at, c)
	}
}

// plainInit refuses what only makes sense in a container that keeps running.
func (v *Checker) plainInit(at *validation.Path, c *corev1.Container) {
	const only = "may not be set for init containers without restartPolicy=Always"
	if c.GetLifecycle() != nil {
		v.Forbidden(at.Child("lifecycle"), only)
	}
	for _, probe := range probesOf(c) {
		if probe.probe != nil {
			v.Forbidden(at.Child(probe.name), only)
		}
	}
	for j, r := range c.GetResizePolicy() {
		if r.GetRestartPolicy() == "RestartContainer" {
			v.Invalid(at.Child("resizePolicy").Index(j).Child("restartPolicy"), r.GetRestartPolicy(),
				"must not be set to 'RestartContainer' for non-sidecar initContainers")
		}
	}
}

// ephemeralContainers checks containers for debugging (INIT-6).
func (v *Checker) ephemeralContainers(p *validation.Path) {
	if len(v.spec.GetEphemeralContainers()) == 0 {
		return
	}
	names, targets := map[string]bool{}, map[string]bool{}
	for _, list := range [][]*corev1.Container{v.spec.GetContainers(), v.spec.GetInitContainers()} {
		for _, c := range list {
			names[c.GetName()], targets[c.GetName()] = true, true
		}
	}
	for i, ec := range v.spec.GetEphemeralContainers() {
		at, c := p.Index(i), ec.GetEphemeralContainerCommon()
		v.anyContainer(at, c)
		if names[c.GetName()] {
			v.Duplicate(at.Child("name"), c.GetName())
		}
		names[c.GetName()] = true
		if t := ec.GetTargetContainerName(); t != "" && !targets[t] {
			v.NotFound(at.Child("targetContainerName"), t)
		}
		v.onlyForDebugging(at, c)
	}
}

func (v *Checker) onlyForDebugging(at *validation.Path, c *corev1.EphemeralContainerCommon) {
	const cannot = "cannot be set for an Ephemeral Container"
	r := c.GetResources()
	for _, x := range []struct {
		name string
		set  bool
	}{
		{"ports", len(c.GetPorts()) > 0},
		{"resources", len(r.GetLimits())+len(r.GetRequests())+len(r.GetClaims()) > 0},
		{"resizePolicy", len(c.GetResizePolicy()) > 0},
		{"restartPolicy", c != nil && c.RestartPolicy != nil},
		{"restartPolicyRules", len(c.GetRestartPolicyRules()) > 0},
		{"livenessProbe", c.GetLivenessProbe() != nil},
		{"readinessProbe", c.GetReadinessProbe() != nil},
		{"startupProbe", c.GetStartupProbe() != nil},
		{"lifecycle", c.GetLifecycle() != nil},
	} {
		if x.set {
			v.Forbidden(at.Child(x.name), cannot)
		}
	}
	for j, m := range c.GetVolumeMounts() {
		if m.GetSubPath() != "" {
			v.Forbidden(at.Child("volumeMounts").Index(j).Child("subPath"), cannot)
		}
		if m.GetSubPathExpr() != "" {
			v.Forbidden(at.Child("volumeMounts").Index(j).Child("subPathExpr"), cannot)
		}
	}
}

// anyContainer checks what holds for containers of every list.
func (v *Checker) anyContainer(at *validation.Path, c container) {
	v.RequiredLabel(at.Child("name"), c.GetName())
	if c.GetImage() == "" {
		v.Required(at.Child("image"), "")
	}
	if _, ephemeral := c.(*corev1.EphemeralContainerCommon); (ephemeral || !v.template) &&
		c.GetImage() != strings.TrimSpace(c.GetImage()) {
		v.Invalid(at.Child("image"), c.GetImage(), "must not have leading or trailing whitespace")
	}
	v.RequiredOneOf(at.Child("terminationMessagePolicy"), c.GetTerminationMessagePolicy(),
		"File", "FallbackToLogsOnError")
	v.ports(at.Child("ports"), c.GetPorts())
	v.env(at.Child("env"), c.GetEnv())
	v.envFrom(at.Child("envFrom"), c.GetEnvFrom())
	v.mounts(at.Child("volumeMounts"), c)
	v.devices(at.Child("volumeDevices"), c)
	v.pullPolicy(at.Child("imagePullPolicy"), c.GetImagePullPolicy())
	v.Requirements(at.Child("resources"), c.GetResources(), validation.OfContainer)
	v.resizePolicy(at.Child("resizePolicy"), c.GetResizePolicy())
	v.securityContext(at.Child("securityContext"), c.GetSecurityContext())
}

func (f *faults) pullPolicy(p *validation.Path, policy string) {
	f.RequiredOneOf(p, policy, "Always", "IfNotPresent", "Never")
}

func (v *Checker) resizePolicy(p *validation.Path, policies []*corev1.ContainerResizePolicy) {
	if len(policies) == 0 {
		return
	}
	seen := map[string]bool{}
	for i, r := range policies {
		if seen[r.GetResourceName()] {
			v.Duplicate(p.Index(i), r.GetResourceName())
		}
		seen[r.GetResourceName()] = true
		v.RequiredOneOf(p, r.GetResourceName(), "cpu", "memory")
		v.RequiredOneOf(p, r.GetRestartPolicy(), "NotRequired", "RestartContainer")
		if v.spec.GetRestartPolicy() == "Never" && r.GetRestartPolicy() != "NotRequired" {
			v.Invalid(p, r.GetRestartPolicy(), "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

const (
	rulesNeedPolicy = "must specify restartPolicy when restart rules are used"
	maxRestartRules = 20
	maxExitCodes    = 255
)

func policyOf(c *corev1.Container) *string {
	if c == nil {
		return nil
	}
	return c.RestartPolicy
}

// containerRestart checks a container's own restart policy and rules (CTR-2).
func (f *faults) containerRestart(at *validation.Path, policy *string, rules []*corev1.ContainerRestartRule) {
	switch {
	case policy != nil:
		f.OneOf(at.Child("restartPolicy"), *policy, "Always", "Never", "OnFailure")
	case len(rules) > 0:
		f.Required(at.Child("restartPolicy"), rulesNeedPolicy)
	}
	p := at.Child("restartPolicyRules")
	if len(rules) > maxRestartRules {
		f.Add(p, field.TooMany(nil, len(rules), maxRestartRules))
	}
	for i, r := range rules {
		rp := p.Index(i)
		f.OneOf(rp.Child("action"), r.GetAction(), "Restart", "RestartAllContainers")
		codes := r.GetExitCodes()
		if codes == nil {
			f.Required(rp.Child("exitCodes"), "must be specified")
			continue
		}
		f.OneOf(rp.Child("exitCodes").Child("operator"), codes.GetOperator(), "In", "NotIn")
		if n := len(codes.GetValues()); n > maxExitCodes {
			f.Add(rp.Child("exitCodes").Child("values"), field.TooMany(nil, n, maxExitCodes))
		}
	}
}
