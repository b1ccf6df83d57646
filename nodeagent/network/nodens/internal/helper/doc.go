// Package helper is the process that holds the node namespace: the program that imports this package, started again
// under the name Argv0 in the new namespaces; init branches off before the program does anything else.
//
// It keeps no state but the kernel's, so that a server which finds it again loses nothing, and does nothing unasked.
// It ends when it is told to, or when its socket is gone from its directory, and with it the namespace.
//
// Only processes of its own user may call it.
package helper
