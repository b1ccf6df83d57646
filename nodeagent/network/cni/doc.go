// Package cni has pods connected by plugins of the Container Network Interface
// (https://github.com/containernetworking/cni/blob/main/SPEC.md, versions up to 1.1): it is an oci.Network.
//
// Of a directory of configurations, the first one counts, as for containerd. Ready says why there is none, or why
// plugins are not ready (STATUS). Each sandbox is added once, as eth0, with Kubernetes' arguments, and with its host
// ports, bandwidth and ranges where the configuration asks for these capabilities.
//
// Guarantees: before a plugin is asked to add a sandbox, what it is asked is on the disk, so that it can be asked to
// delete it, with the same configuration, whatever is killed when. A deletion is repeated until the plugins have
// succeeded. Its network namespace is kept for that by a mount in NamespaceDir, which other programs may look at;
// where it is gone, such as after a restart of the machine, plugins are asked without one. Plugins are asked about one
// sandbox by one call at a time. One that does not end within its time is killed with what it has started, and so is
// one of a server that dies.
//
// Services, names and NetworkPolicies are not the business of this package, but of the plugins, or of other programs.
package cni
