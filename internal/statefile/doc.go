// Package statefile keeps small pieces of state that must survive a crash and a power cut.
//
// Write returns only once the new content is on disk: it writes a temporary file in the same folder, syncs it, renames
// it over the old one and syncs the folder, so that a reader finds the old content or the new, never a part. Each file
// carries the number of its format and a checksum; what does not match is ErrDamaged, never a guess.
//
// No call waits for ever: what a file system does not answer within seconds is ErrHangs. A write that was given up may
// still come about.
//
// The package knows nothing of what the content means.
package statefile
