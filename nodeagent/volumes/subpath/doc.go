// Package subpath opens a path inside a volume in such a way that no symbolic link, whether it lies there or is put
// there while the path is being opened, leads out of the volume. What is opened is then mounted by its descriptor.
package subpath
