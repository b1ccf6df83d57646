// Package pages gives back the memory in which this process sees files. What is needed again comes back from the
// system's page cache, or from the disk, so that nothing is lost: only pages of files may be released, never memory
// that was written.
//
// On systems other than Linux it does nothing: the memory of mapped files counts for nothing there.
package pages

// Mapping is a part of the address space of the process.
type Mapping struct {
	// Begin is the first address, End the one behind the last.
	Begin, End uintptr
	// Permissions are "rwxp", with "-" for what is missing and "s" in place of "p" when what is written goes to the file.
	Permissions string
	// Path is that of the file; empty, or in brackets, for what is none.
	Path string
}

// Shared chooses mappings of which the file has all that was written.
func Shared(m Mapping) bool { return m.Permissions[3] == 's' }

// ReadOnly chooses mappings to which nothing was written.
func ReadOnly(m Mapping) bool { return m.Permissions[1] == '-' }
