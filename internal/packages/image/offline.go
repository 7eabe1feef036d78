package image

import (
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// refName is the annotation of an OCI layout's index that names a manifest.
const refName = "org.opencontainers.image.ref.name"

// FromFile finds an image without a registry: in a folder that is an OCI layout, or in an archive as docker save writes
// it. It is the manifest with the reference's digest, else the one that is named after its version or as the whole
// reference, else the only one there is.
func FromFile(path string, ref Reference) (*Image, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, failure(ref.String(), fault{NotFound, err})
	}
	var found *Image
	if info.IsDir() {
		found, err = fromLayout(path, ref)
	} else {
		found, err = fromArchive(path, ref)
	}
	if err != nil {
		return nil, failure(ref.String(), fmt.Errorf("in %s: %w", path, err))
	}
	found.Name = ref.String()
	return found, nil
}

func fromLayout(path string, ref Reference) (*Image, error) {
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return nil, faultf(Malformed, "not an OCI layout: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, faultf(Malformed, "not an OCI layout: %w", err)
	}
	at, err := pick(manifest.Manifests, ref)
	if err != nil {
		return nil, err
	}
	content, err := image(index, at)
	if err != nil {
		return nil, err
	}
	return newImage(at.Digest, content)
}

func pick(from []v1.Descriptor, ref Reference) (v1.Descriptor, error) {
	for _, d := range from {
		switch named := d.Annotations[refName]; {
		case ref.Digest != "" && d.Digest.String() == ref.Digest,
			ref.Digest == "" && named != "" && (named == ref.Version || named == ref.String()):
			return d, nil
		}
	}
	if len(from) == 1 && ref.Digest == "" && from[0].Annotations[refName] == "" {
		return from[0], nil
	}
	return v1.Descriptor{}, faultf(NotFound, "no image %s among %d", ref, len(from))
}

// image follows a descriptor to the image for this machine.
func image(index v1.ImageIndex, at v1.Descriptor) (v1.Image, error) {
	if at.MediaType.IsImage() {
		content, err := index.Image(at.Digest)
		if err != nil {
			return nil, faultf(Malformed, "image: %w", err)
		}
		return content, nil
	}
	inner, err := index.ImageIndex(at.Digest)
	if err != nil {
		return nil, faultf(Malformed, "index: %w", err)
	}
	fitting, err := partial.FindImages(inner, func(d v1.Descriptor) bool {
		return d.MediaType.IsImage() && d.Platform != nil && d.Platform.Satisfies(Platform)
	})
	if err != nil {
		return nil, faultf(Malformed, "index: %w", err)
	}
	if len(fitting) == 0 {
		return nil, faultf(NotFound, "no image for %s", Platform)
	}
	return fitting[0], nil
}

func fromArchive(path string, ref Reference) (*Image, error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	if err != nil {
		return nil, faultf(Malformed, "not an archive of images: %w", err)
	}
	if len(manifest) == 0 {
		return nil, faultf(NotFound, "the archive has no image")
	}
	content, err := tarball.ImageFromPath(path, nil)
	if len(manifest) > 1 {
		own, perr := Reference{Repository: ref.Repository, Version: ref.Version}.parse()
		if perr != nil {
			return nil, perr
		}
		tag, ok := own.(name.Tag)
		if !ok {
			return nil, faultf(NotFound, "the archive has %d images, and none is named by a digest", len(manifest))
		}
		content, err = tarball.ImageFromPath(path, &tag)
	}
	if err != nil {
		return nil, faultf(NotFound, "no image %s among %d: %w", ref, len(manifest), err)
	}
	digest, err := content.Digest()
	if err != nil {
		return nil, faultf(Malformed, "image: %w", err)
	}
	if ref.Digest != "" && ref.Digest != digest.String() {
		return nil, faultf(WrongDigest, "the image has the digest %s", digest)
	}
	return newImage(digest, content)
}
