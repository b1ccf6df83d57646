// Package shimwire is the language between the runtime and its shims, and the format of the shim's records on disk.
//
// A frame is a 4-byte little-endian length, a 4-byte call number, one byte of type, and a body. The runtime numbers
// its calls; the shim answers each with a frame of the same number, in any order, and sends events under number 0.
// A body is a list of fields: tag, length, value; numbers are zigzag varints. A reader skips tags that it does not
// know and takes absent ones as zero, so that a newer runtime can go on with the shims of an older one: tags are never
// reused and their meaning never changes.
//
// A journal is a file of records, each with its length and checksum in front, only ever appended to. A torn last
// record, all that a crash can leave, is ignored.
//
// The package imports little, for the reason given in package sys.
package shimwire
