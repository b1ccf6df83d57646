// Package core describes the kinds of the core group: one file per kind with its strategy, its defaults, what is wrong
// with an object and with a change of one, its table and who may do what. Pods have packages of their own: pod, and
// podspec for what templates of pods have too.
package core

import (
	"monoplane.dev/apiserver/defaults"
	"monoplane.dev/object"

	metav1 "monoplane.dev/api/meta/v1"
)

// metadata returns what asked wants the metadata to be, under the name that it has.
func metadata(asked, live object.Object) *metav1.ObjectMeta {
	m := object.Clone(asked.GetMetadata())
	defaults.Message(&m)
	m.Name, m.Namespace = live.GetMetadata().GetName(), live.GetMetadata().GetNamespace()
	return m
}
