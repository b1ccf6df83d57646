// Package store keeps the objects of the API in etcd. It is the only package that talks to etcd, embedded in
// this process or external.
//
// What it guarantees:
//   - A transaction happens wholly, at one revision, or not at all, and only if every comparison it makes holds at
//     that revision: the mod revision of each object that it writes, and its guards (OBJ-2, DEL-8).
//   - An acknowledged transaction survives a crash of the process and, with fsync, of the machine (DEL-13).
//   - A read without a resourceVersion sees every write that was acknowledged before it began. A list shows one
//     revision, over all its pages (OBJ-6).
//   - A watcher sees every change exactly once and in order, from any revision that is still kept, or an error
//     (OBJ-7). Watchers do not slow each other, or the writers.
//   - A damaged data directory, one in use, or one written by a newer version is refused with one clear line.
//
// One etcd watch feeds an in-memory cache of every kind, which serves all gets, lists and watches; etcd itself
// is read when the store opens, for old revisions, and to explain a transaction that was refused. A write is
// acknowledged before the watch has delivered it; reads, and writes that begin with one, wait those few microseconds.
//
// Objects are immutable once stored or returned. The store knows nothing of what they mean: defaults, validation,
// deletion rules and authorization are its callers' concern.
package store
