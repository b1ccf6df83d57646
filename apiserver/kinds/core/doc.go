// Package core describes the kinds of the core group: one file per kind with its strategy, its defaults, what is wrong
// with an object and with a change of one, its table and who may do what. Pods have packages of their own: pod, and
// podspec for what templates of pods have too.
package core
