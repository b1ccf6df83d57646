package main

import (
	"github.com/spf13/pflag"

	"monoplane.dev"
)

// addPodSecurity adds the flags of the standards of pod security.
func addPodSecurity(flags *pflag.FlagSet, c *monoplane.PodSecurityConfig) {
	flags.StringToStringVar(&c.Defaults, "pod-security", nil,
		"labels pod-security.kubernetes.io/... of namespaces that have none of that name, such as "+
			"enforce=baseline,warn=restricted")
	flags.StringSliceVar(&c.ExemptNamespaces, "pod-security-exempt-namespaces", nil,
		"namespaces that are held to no standard of pod security")
	flags.StringSliceVar(&c.ExemptUsers, "pod-security-exempt-users", nil,
		"users who may create pods that keep to no standard of pod security")
	flags.StringSliceVar(&c.ExemptRuntimeClasses, "pod-security-exempt-runtime-classes", nil,
		"runtime classes whose pods are held to no standard of pod security")
}
