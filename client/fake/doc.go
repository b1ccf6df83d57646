// Package fake is the API in memory, for tests of programs that use it: the typed clients of a fake Server behave
// like those of a real one as far as resourceVersions, compare-and-swap, watches with resume, graceful and forced deletion
// of pods, finalizers, Bind and the status subresources go.
//
// Faults can be injected: React makes calls fail, Expire makes watches start over, Cut ends them.
//
// What it does not do: validation, defaulting, authorization, server-side guards (DEL-8), field selectors other than on
// metadata and spec.nodeName, server-side apply. Tests of those need the real server.
package fake
