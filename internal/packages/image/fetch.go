package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is where images come from.
type Registry struct {
	Mirrors     []Mirror
	Credentials Credentials
	// Transport makes the requests; nil for the usual one.
	Transport http.RoundTripper
	// Agent identifies the requests.
	Agent string
}

// Image is one that can be unpacked.
type Image struct {
	// Name as it was asked for.
	Name string
	// Pinned is the digest that names exactly this image, on machines of every kind: that of an index where there is one.
	Pinned string
	// Digest of the image for this machine.
	Digest v1.Hash

	content v1.Image
}

// Platform is the kind of machine that images are for.
var Platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// Find asks the mirrors and the registry for an image. Only its manifest is read.
func (r Registry) Find(ctx context.Context, ref Reference) (*Image, error) {
	places, err := ref.places(r.Mirrors)
	if err != nil {
		return nil, failure(ref.String(), err)
	}
	var tried []error
	for _, at := range places {
		found, err := r.at(ctx, at)
		if err == nil {
			found.Name = ref.String()
			return found, nil
		}
		if len(places) > 1 {
			err = fmt.Errorf("at %s: %w", at.Context().RegistryStr(), err)
		}
		tried = append(tried, err)
		if ctx.Err() != nil {
			break
		}
	}
	// The registry itself, asked last, decides on the reason.
	return nil, failure(ref.String(), last(tried))
}

// last keeps the reason of the last error and the words of all.
func last(tried []error) error {
	return &several{text: errors.Join(tried...).Error(), end: tried[len(tried)-1]}
}

type several struct {
	text string
	end  error
}

func (s *several) Error() string { return s.text }
func (s *several) Unwrap() error { return s.end }

func (r Registry) at(ctx context.Context, ref name.Reference) (*Image, error) {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(r.Credentials), remote.WithPlatform(Platform)}
	if r.Transport != nil {
		options = append(options, remote.WithTransport(r.Transport))
	}
	if r.Agent != "" {
		options = append(options, remote.WithUserAgent(r.Agent))
	}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, err
	}
	content, err := found.Image()
	if err != nil {
		return nil, faultf(NotFound, "no image for %s: %w", Platform, err)
	}
	return newImage(found.Digest, content)
}

func newImage(pinned v1.Hash, content v1.Image) (*Image, error) {
	digest, err := content.Digest()
	if err != nil {
		return nil, faultf(Malformed, "manifest: %w", err)
	}
	return &Image{Pinned: pinned.String(), Digest: digest, content: content}, nil
}
