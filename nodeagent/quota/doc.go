// Package quota bounds what the files in a directory can take of the disk, by a project quota of the file system: ext4
// or XFS, mounted with prjquota. Who only looks at the files now and then finds the disk full before he looks again.
//
//	New ──► Add further directories ──► Limit ──► Limit 0, before the directories are removed
//
// Guarantees:
//   - What is made in the directory after New, at any depth, counts for its project, and nothing is written that would
//     take the project above its limit: writing fails with EDQUOT on ext4, with ENOSPC on XFS.
//   - An id is given that nothing uses, and none of the small ones that administrators choose. A directory that is in
//     somebody's project stays in it.
//   - Nothing is kept but by the file system: New finds the project that it has given a directory before. The owner of
//     the directory can change it, so that only New of a directory that nobody else could use yet may be believed.
//   - Errors that are errors.ErrUnsupported mean that there are no such quotas here: another file system, one that
//     does not enforce them, a kernel before 5.14, a process that is not root, a system other than Linux.
//
// On ext4 processes with CAP_SYS_RESOURCE are not bound. Processes that share the machine's user namespace can move
// files of their own into any project, so that what a project holds says little of what a directory does.
package quota

// Project is the id of a project, 0 for none.
type Project uint32

// A directory can hold a part more than it should, at least so many bytes.
const (
	part  = 10
	least = 16 << 20
)

// Hard returns the limit of a directory that should hold no more than so many bytes: a tenth more, at least 16 MiB
// more. Thus whoever stores too much is found to do so, and ended with a reason; else all he would see is a failed
// write.
func Hard(bytes int64) int64 {
	bytes = min(bytes, 1<<62) // More than any file system holds, and less than overflows.
	return bytes + max(bytes/part, least)
}
