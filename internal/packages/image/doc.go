// Package image brings the images of packages to a host: from a registry or a mirror of it, an OCI layout or an archive,
// verified, unpacked once for each digest into a store that gives up what nobody needs.
//
// Images are hostile until shown otherwise. Nothing is written outside of the folder an image is unpacked into, whatever
// names and links it has; devices are left out; size and number of entries are bounded; and an image counts as there only
// once all of it was read, matched its digests and is on the disk.
package image
