package image

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Reference names an image as plans do.
type Reference struct {
	// Repository without a tag or digest, e.g. ghcr.io/org/package.
	Repository string
	// Version is the tag.
	Version string
	// Digest, e.g. sha256:…, takes the place of the tag where it is given.
	Digest string
}

func (r Reference) String() string {
	if r.Digest != "" {
		return r.Repository + "@" + r.Digest
	}
	return r.Repository + ":" + r.Version
}

func (r Reference) parse() (name.Reference, error) {
	ref, err := name.ParseReference(r.String(), name.StrictValidation)
	if err != nil && r.Digest == "" { // a repository without a registry is one of the default registry
		ref, err = name.ParseReference(r.String(), name.WeakValidation)
	}
	if err != nil {
		return nil, faultf(NotFound, "not the name of an image: %w", err)
	}
	return ref, nil
}

// Mirror stands in for a registry.
type Mirror struct {
	// Registry that it mirrors, e.g. ghcr.io; empty for all.
	Registry string
	// Endpoint takes the registry's place in names, e.g. mirror.example.com:5000 or mirror.example.com/ghcr.
	Endpoint string
}

// places gives the references to try in turn: those of mirrors, then the image's own.
func (r Reference) places(mirrors []Mirror) ([]name.Reference, error) {
	own, err := r.parse()
	if err != nil {
		return nil, err
	}
	var all []name.Reference
	for _, m := range mirrors {
		if m.Registry != "" && m.Registry != own.Context().RegistryStr() {
			continue
		}
		there := Reference{Repository: strings.TrimSuffix(m.Endpoint, "/") + "/" + own.Context().RepositoryStr(), Version: r.Version, Digest: r.Digest}
		ref, err := there.parse()
		if err != nil {
			return nil, fmt.Errorf("mirror %s: %w", m.Endpoint, err)
		}
		all = append(all, ref)
	}
	return append(all, own), nil
}
