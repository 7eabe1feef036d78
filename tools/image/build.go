package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch stands for every time in an image, so that the digest depends on the content alone.
var epoch = time.Unix(0, 0).UTC()

// imageSpec is what goes into one image of one layer.
type imageSpec struct {
	Tag          string
	Files        []imageFile
	Entrypoint   []string
	User         string
	Architecture string
}

// imageFile is one regular file: Source on this machine, Path in the image.
type imageFile struct {
	Source, Path string
}

// parseFile reads source=/path/in/image.
func parseFile(s string) (imageFile, error) {
	source, target, found := strings.Cut(s, "=")
	if !found || source == "" || !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
		return imageFile{}, fmt.Errorf("%q: want source=/path/in/image with a clean absolute path", s)
	}
	return imageFile{Source: source, Path: target}, nil
}

// build makes the image in memory.
func build(spec imageSpec) (v1.Image, error) {
	if spec.Tag == "" || len(spec.Files) == 0 || len(spec.Entrypoint) == 0 {
		return nil, errors.New("an image needs a --tag, and at least one --file and one --entrypoint")
	}
	content, err := layerTar(spec.Files)
	if err != nil {
		return nil, err
	}
	// Not compressed: compressed bytes change with the compressor's version, and the image travels by file only.
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(content, types.DockerUncompressedLayer))
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", spec.Architecture, v1.Time{Time: epoch}
	config.Config.Entrypoint = spec.Entrypoint
	config.Config.User = spec.User
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, fmt.Errorf("set the image's configuration: %w", err)
	}
	return image, nil
}

// layerTar is the layer: the files in order of their paths, each after the folders above it, all owned by root.
func layerTar(files []imageFile) ([]byte, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b imageFile) int { return strings.Compare(a.Path, b.Path) })
	var buffer bytes.Buffer
	out := tar.NewWriter(&buffer)
	seen := map[string]bool{}
	regular := map[string]bool{}
	for _, file := range files {
		if seen[file.Path] {
			return nil, fmt.Errorf("%s is given twice", file.Path)
		}
		for _, folder := range above(file.Path) {
			if regular[folder] {
				return nil, fmt.Errorf("%s is both a file and a folder", folder)
			}
			if seen[folder] {
				continue
			}
			seen[folder] = true
			err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder[1:] + "/", Mode: 0o755, ModTime: epoch})
			if err != nil {
				return nil, fmt.Errorf("add folder %s: %w", folder, err)
			}
		}
		seen[file.Path], regular[file.Path] = true, true
		if err := addFile(out, file); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("finish the layer: %w", err)
	}
	return buffer.Bytes(), nil
}

// above lists the folders above an absolute path, from the root down, without the root itself.
func above(file string) []string {
	var folders []string
	for folder := path.Dir(file); folder != "/"; folder = path.Dir(folder) {
		folders = append([]string{folder}, folders...)
	}
	return folders
}

func addFile(out *tar.Writer, file imageFile) error {
	stat, err := os.Stat(file.Source)
	if err != nil {
		return fmt.Errorf("add %s: %w", file.Path, err)
	}
	if !stat.Mode().IsRegular() {
		return fmt.Errorf("add %s: %s is not a regular file", file.Path, file.Source)
	}
	content, err := os.ReadFile(file.Source)
	if err != nil {
		return fmt.Errorf("add %s: %w", file.Path, err)
	}
	mode := int64(0o644)
	if stat.Mode().Perm()&0o111 != 0 {
		mode = 0o755
	}
	err = out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file.Path[1:], Size: int64(len(content)), Mode: mode, ModTime: epoch})
	if err != nil {
		return fmt.Errorf("add %s: %w", file.Path, err)
	}
	if _, err := out.Write(content); err != nil {
		return fmt.Errorf("add %s: %w", file.Path, err)
	}
	return nil
}

// write puts the image into a tarball. The tarball appears whole or not at all.
func write(output, tagName string, image v1.Image) error {
	tag, err := name.NewTag(tagName, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--tag %s: %w", tagName, err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(output), "."+filepath.Base(output)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // gone already when all went well
	if err := tarball.Write(tag, image, temporary); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", output, err), temporary.Close())
	}
	if err := errors.Join(temporary.Chmod(0o644), temporary.Close()); err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	if err := os.Rename(temporary.Name(), output); err != nil {
		return fmt.Errorf("write %s: %w", output, err)
	}
	return nil
}
