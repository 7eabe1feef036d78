package image

import (
	"archive/tar"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/fettle-dev/fettle/internal/reasons"
)

// Failure is why an image is not on the host.
type Failure struct {
	// Reason is one of Reasons.
	Reason string
	// Image that was wanted.
	Image string
	Err   error
}

func (f *Failure) Error() string { return fmt.Sprintf("image %s: %v", f.Image, f.Err) }
func (f *Failure) Unwrap() error { return f.Err }

// Reasons of a Failure.
const (
	Unreachable  = "RegistryUnreachable"
	Unauthorized = "RegistryUnauthorized"
	NotFound     = "ImageNotFound"
	WrongDigest  = "ImageDigestMismatch"
	Malformed    = "ImageMalformed"
	TooLarge     = "ImageTooLarge"
	NoSpace      = "DiskFull"
	NotStored    = "ImageNotStored"
)

// Reasons is their table.
var Reasons = reasons.Table{
	{Name: Unreachable, Severity: reasons.Degraded, Says: "neither the registry nor a mirror of it answers as one", Do: "see that the machine reaches the registry, or give it a mirror or the image as a file; it is tried again"},
	{Name: Unauthorized, Severity: reasons.Degraded, Says: "the registry refuses the credentials, or wants some", Do: "see the pull secret of the packages"},
	{Name: NotFound, Severity: reasons.Degraded, Says: "the registry has no such image", Do: "see the package's image, version and containerSHA"},
	{Name: WrongDigest, Severity: reasons.Degraded, Says: "what was read is not what its digest promises", Do: "see that nothing alters what the registry sends, and that containerSHA is that of the image"},
	{Name: Malformed, Severity: reasons.Degraded, Says: "the image is none that can be unpacked", Do: "build the package anew; the message says what is wrong with it"},
	{Name: TooLarge, Severity: reasons.Degraded, Says: "the image has more bytes or entries than are allowed", Do: "make the image smaller, or raise the limit"},
	{Name: NoSpace, Severity: reasons.Degraded, Says: "the disk is too full for the image", Do: "free space on the file system of the store"},
	{Name: NotStored, Severity: reasons.Degraded, Says: "the store cannot be written", Do: "see that the file system of the store is there and can be written"},
}

// fault is an error that knows its reason.
type fault struct {
	reason string
	err    error
}

func (f fault) Error() string { return f.err.Error() }
func (f fault) Unwrap() error { return f.err }

func faultf(reason, format string, args ...any) error {
	return fault{reason: reason, err: fmt.Errorf(format, args...)}
}

// failure names the reason of an error.
func failure(image string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &Failure{Reason: reasonOf(err), Image: image, Err: err}
}

func reasonOf(err error) string {
	var f fault
	var answer *transport.Error
	var corrupt flate.CorruptInputError
	switch {
	case errors.As(err, &f):
		return f.reason
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return NoSpace
	case errors.Is(err, tar.ErrHeader):
		return Malformed
	case errors.As(err, &corrupt), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), saysMismatch(err):
		return WrongDigest
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return Unauthorized
	case errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound:
		return NotFound
	}
	return Unreachable
}

// saysMismatch : the library found that a digest or a size is not what was promised, which it says in words only.
func saysMismatch(err error) bool {
	for _, words := range []string{"error verifying", "does not match requested digest", "does not match expected size"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// notFolder : a path goes through something that is no folder, or is too long.
func notFolder(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ELOOP)
}
