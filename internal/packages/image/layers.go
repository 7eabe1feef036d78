package image

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxLayers is more than any container runtime can stack.
const maxLayers = 256

// layer is one of an image, and the digest that its unpacked content must have.
type layer struct {
	v1.Layer
	want v1.Hash
}

// layers reads the configuration, and holds it against its digest and the manifest.
func (i *Image) layers() (all []layer, env []string, err error) {
	manifest, err := i.content.Manifest()
	if err != nil {
		return nil, nil, faultf(Malformed, "manifest: %w", err)
	}
	raw, err := i.content.RawConfigFile()
	if err != nil {
		return nil, nil, err
	}
	if got := digestOf(raw); got != manifest.Config.Digest.String() {
		return nil, nil, faultf(WrongDigest, "configuration: it has the digest %s, not %s", got, manifest.Config.Digest)
	}
	config, err := i.content.ConfigFile()
	if err != nil {
		return nil, nil, faultf(Malformed, "configuration: %w", err)
	}
	layers, err := i.content.Layers()
	if err != nil {
		return nil, nil, faultf(Malformed, "layers: %w", err)
	}
	if len(layers) > maxLayers {
		return nil, nil, faultf(TooLarge, "it has %d layers, more than %d", len(layers), maxLayers)
	}
	if len(layers) != len(config.RootFS.DiffIDs) {
		return nil, nil, faultf(Malformed, "the manifest has %d layers and the configuration %d", len(layers), len(config.RootFS.DiffIDs))
	}
	for n, l := range layers {
		want := config.RootFS.DiffIDs[n]
		if want.Algorithm != "sha256" {
			return nil, nil, faultf(Malformed, "layer %d: only digests with sha256 are known, not %s", n+1, want)
		}
		all = append(all, layer{l, want})
	}
	return all, config.Config.Env, nil
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// contents is the unpacked content of a layer. It is to be finished, which fails unless it is what the configuration names:
// so the digest of the image vouches for every byte.
type contents struct {
	io.Reader
	closer io.Closer
	sum    hash.Hash
	want   v1.Hash
}

func (l layer) open() (*contents, error) {
	stream, err := l.Uncompressed()
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	return &contents{Reader: io.TeeReader(stream, sum), closer: stream, sum: sum, want: l.want}, nil
}

// finish reads what follows the archive's end, and compares.
func (c *contents) finish() error {
	if _, err := io.Copy(io.Discard, c.Reader); err != nil {
		return err
	}
	if got := hex.EncodeToString(c.sum.Sum(nil)); got != c.want.Hex {
		return faultf(WrongDigest, "unpacked it has the digest sha256:%s, not %s", got, c.want)
	}
	return nil
}

func (c *contents) close() { _ = c.closer.Close() } // it was read to its end, or is given up
