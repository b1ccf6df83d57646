// Package scheduling describes the kinds of scheduling.k8s.io, and those of Monoplane's own that are about scheduling.
package scheduling
