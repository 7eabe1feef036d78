// Command image builds a container image from static binaries, without a container engine, and writes it as a
// docker-archive tarball that `ctr images import`, `docker load` and `skopeo` read.
//
//	image --output bin/nodeagent-image.tar --tag fettle.dev/nodeagent:dev \
//	      --file bin/nodeagent=/usr/bin/nodeagent --entrypoint /usr/bin/nodeagent
//
// The same input gives the same bytes: nothing of the building machine enters the image, neither time nor owner.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds the image the arguments describe, and prints its digest and the tarball's path on stdout.
func run(args []string, stdout, stderr io.Writer) error {
	spec, output, err := parse(args, stderr)
	if err != nil {
		return err
	}
	built, err := build(spec)
	if err != nil {
		return err
	}
	if err := write(output, spec.Tag, built); err != nil {
		return err
	}
	digest, err := built.Digest()
	if err != nil {
		return fmt.Errorf("digest of the image: %w", err)
	}
	_, err = fmt.Fprintf(stdout, "%s %s\n", digest, output)
	return err
}

func parse(args []string, stderr io.Writer) (imageSpec, string, error) {
	var spec imageSpec
	var output string
	set := flag.NewFlagSet("image", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&output, "output", "", "tarball to `write`")
	set.StringVar(&spec.Tag, "tag", "", "`name:tag` of the image; other images go into tarballs of their own")
	set.StringVar(&spec.Architecture, "architecture", runtime.GOARCH, "architecture the binaries were built for")
	set.StringVar(&spec.User, "user", "", "user[:group] the entrypoint runs as, by number; empty is root")
	set.Func("file", "`source=/path/in/image`, repeatable; the mode's executable bit is kept", func(s string) error {
		file, err := parseFile(s)
		spec.Files = append(spec.Files, file)
		return err
	})
	set.Func("entrypoint", "`word` of the entrypoint, repeatable", func(s string) error {
		spec.Entrypoint = append(spec.Entrypoint, s)
		return nil
	})
	if err := set.Parse(args); err != nil {
		return imageSpec{}, "", err
	}
	switch {
	case set.NArg() > 0:
		return imageSpec{}, "", fmt.Errorf("unexpected argument %q: everything is given by flags", set.Arg(0))
	case output == "":
		return imageSpec{}, "", fmt.Errorf("--output is missing: name the tarball to write")
	}
	return spec, output, nil
}
