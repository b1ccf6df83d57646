// Package view gives a process a mount namespace of its own: the machine's root, with other directories and files at
// some of its paths.
//
// # How a path is made
//
// The sources are opened before anything is mounted, so that no mount hides another's source and nothing that is
// renamed meanwhile changes what was meant. Then the mounts are made, those of shorter paths first. The path of each
// is walked through descriptors, one component at a time, with the symbolic links that are met, in the view as it is
// by then: a link leads to where a process in the view would be led, never to a place outside it, because the view has
// no outside.
//
// A path that is missing is made in one of two places:
//
//   - below something that was mounted for the container: there, as container runtimes do, so that the directory is
//     an empty one in the volume;
//   - below a directory of the machine, or of a volume that cannot be written to: in a tmpfs that takes the place of
//     that directory, in this namespace only. The entries that the directory has are mounted into the tmpfs, so that
//     they can be used, and written to, as before; its symbolic links are copied. What the machine adds to the
//     directory later is not seen, and what the container adds to it is in memory and goes with the container.
//
// The namespace receives what is mounted on the machine later (it is a slave of it), and hands on nothing, except
// below mounts with propagation Bidirectional.
//
// # Errors
//
// Every error names the mount and the step. Refused is the one that says that this machine does not let this user make
// views at all.
//
// The package is for a process that is about to execute another program: it changes the calling thread only, and
// leaves descriptors open that are closed by that. It imports little, for the reason given in package sys.
package view
