package server

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// fileName is what a write check makes, and finds when the machine went down during the one before.
	fileName = ".fettle-write-check"
	// fileSize is one block of common file systems, in bytes.
	fileSize = 4096
)

var errOtherContent = errors.New("what was read is not what was written")

// writeCheck returns the step that failed. The file is made anew each time and nothing that is there is followed or
// written to, since others may be able to make files in the folder too.
func writeCheck(folder string) (step string, err error) {
	name := filepath.Join(folder, fileName)
	f, err := makeFile(name)
	if err != nil {
		return "create a file in", err
	}
	defer f.Close()
	step, err = writeAndRead(f)
	if removed := os.Remove(name); err == nil && removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		return "remove a file from", removed
	}
	return step, err
}

// makeFile removes what is in the way once. What is there then is another agent's check of this moment, or one that a
// directory stands for, which nobody made by chance.
func makeFile(name string) (*os.File, error) {
	for attempt := 0; ; attempt++ {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
		if !errors.Is(err, fs.ErrExist) || attempt > 0 {
			return f, err
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

func writeAndRead(f *os.File) (step string, err error) {
	written := bytes.Repeat([]byte("fettle"), fileSize/6)
	if _, err := f.Write(written); err != nil {
		return "write a file in", err
	}
	if err := f.Sync(); err != nil {
		return "sync a file in", err
	}
	read := make([]byte, len(written))
	if _, err := f.ReadAt(read, 0); err != nil {
		return "read a file in", err
	}
	if !bytes.Equal(read, written) {
		return "read a file in", errOtherContent
	}
	return "", nil
}
