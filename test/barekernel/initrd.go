package barekernel

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// modulesDir is where a machine finds its modules, named so that their order is that of loading.
const modulesDir = "/modules"

// writeInitrd writes the machine's file system, which the kernel unpacks: the program as /init, and modules.
func writeInitrd(path, program string, modules []string) error {
	var image bytes.Buffer
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "run", modulesDir[1:]} {
		appendEntry(&image, dir, 0o040755, nil)
	}
	files := map[string]string{"init": program}
	for i, m := range modules {
		files[fmt.Sprintf("%s/%03d-%s", modulesDir[1:], i, filepath.Base(m))] = m
	}
	for name, source := range files {
		content, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("read what a machine needs: %w", err)
		}
		appendEntry(&image, name, 0o100755, content)
	}
	appendEntry(&image, "TRAILER!!!", 0, nil)
	if err := os.WriteFile(path, image.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write a machine's file system: %w", err)
	}
	return nil
}

// appendEntry writes one file in the cpio format "newc" (Documentation/driver-api/early-userspace/buffer-format.rst):
// thirteen numbers of eight hexadecimal digits, the name, the content, each padded to four bytes.
func appendEntry(image *bytes.Buffer, name string, mode uint32, content []byte) {
	image.WriteString("070701")
	for _, field := range []int{image.Len(), int(mode), 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(image, "%08X", field)
	}
	image.WriteString(name + "\x00")
	pad(image)
	image.Write(content)
	pad(image)
}

func pad(image *bytes.Buffer) { image.Write(make([]byte, -image.Len()&3)) }
