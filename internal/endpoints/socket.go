package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// socketMode : what the socket answers is for root.
const socketMode = 0o600

// listenSocket listens on a unix socket. One that a dead agent left is replaced; one that somebody answers on, and what
// is no socket at all, is left alone.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	if err := claimable(ctx, path); err != nil {
		return nil, err
	}
	// Made under another name, closed to others, and then renamed, so that nobody finds it open, or not there.
	temporary := filepath.Join(filepath.Dir(path), "."+strconv.Itoa(os.Getpid()))
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make room for the socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", temporary)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	socket, err := publish(temporary, path)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // the name it knows is no more
	}
	return &ownSocket{Listener: listener, path: path, file: socket}, nil
}

// publish gives the socket its mode and its name.
func publish(temporary, path string) (fs.FileInfo, error) {
	if err := os.Chmod(temporary, socketMode); err != nil {
		return nil, fmt.Errorf("close the socket to others: %w", err)
	}
	socket, err := os.Lstat(temporary)
	if err != nil {
		return nil, fmt.Errorf("look at the socket: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, fmt.Errorf("put the socket in place: %w", err)
	}
	return socket, nil
}

// claimable is nil when there is nothing at path, or a socket that nobody listens on.
func claimable(ctx context.Context, path string) error {
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the socket: %w", err)
	}
	if there.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is no socket; remove it, or configure another path with endpoints.socket", path)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	connection, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		err = connection.Close()
	}
	return errors.Join(fmt.Errorf("%w on %s; is another agent running on this machine?", errOther, path), err)
}

// errOther says that the socket is somebody else's, who lives.
var errOther = errors.New("another process answers")

// ownSocket takes its name away when it is closed, unless another socket has the name by then.
type ownSocket struct {
	net.Listener
	path string
	file fs.FileInfo
}

// watch closes a socket whose name was taken away, by whoever clears folders: nobody finds it any more.
func (s *ownSocket) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookAgain):
		}
		if there, err := os.Lstat(s.path); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(there, s.file) {
			_ = s.Listener.Close() // and another is made
			return
		}
	}
}

// Close closes the socket and takes its name away.
func (s *ownSocket) Close() error {
	err := s.Listener.Close()
	if there, lookErr := os.Lstat(s.path); lookErr == nil && os.SameFile(there, s.file) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
